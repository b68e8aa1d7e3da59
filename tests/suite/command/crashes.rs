//! A crash of the command, or of its guard, leaves no child running under a lost lock.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::tool::{DEAF, Family, PAIR, program, run, soon_gone};
use crate::support::{Etcd, Puppet, is_alive, keys, mutex, session};

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn stop(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
}

#[tokio::test]
async fn a_command_that_is_killed_takes_its_children_along_at_once() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut ours = run(&etcd.endpoint(), "a", DEAF);
    let family = Family::of(&mut ours).await;
    kill(ours.process.pid());
    family.soon_dead().await;
    assert_eq!(
        keys(&client, "a/").await.len(),
        1,
        "long before its lease ends"
    );
    let session = session(client.clone(), 60).await;
    let next = mutex(&session, "a").lock().await.unwrap();
    assert!(next.is_held());
    drop(next);
    session.close().await.unwrap();
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_command_that_stands_still_loses_its_children_before_the_next_one_holds() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut ours = run(&etcd.endpoint(), "a", DEAF);
    let family = Family::of(&mut ours).await;
    ours.process.stop();
    let session = session(client.clone(), 60).await;
    let next = mutex(&session, "a").lock().await.unwrap();
    assert!(
        next.is_held() && family.alive().is_empty(),
        "{:?}",
        family.alive()
    );
    ours.process.cont();
    assert_eq!(ours.process.exit().await.code(), Some(123));
    drop(next);
    session.close().await.unwrap();
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_guard_that_is_killed_takes_the_children_along_and_the_lock_is_released() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut ours = run(&etcd.endpoint(), "a", DEAF);
    let family = Family::of(&mut ours).await;
    kill(family.guard);
    assert_eq!(ours.process.exit().await.code(), Some(125));
    assert!(family.alive().is_empty(), "{:?}", family.alive());
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_guard_that_stands_still_does_not_keep_the_children_alive() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut ours = run(&etcd.endpoint(), "a", DEAF);
    let family = Family::of(&mut ours).await;
    stop(family.guard);
    let key = keys(&client, "a/").await.remove(0);
    client.kv_client().delete(key, None).await.unwrap();
    assert_eq!(ours.process.exit().await.code(), Some(123));
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_guard_that_stood_still_hears_of_renewals_first() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let args = ["run", "--ttl", "6s", "a", "--", "sh", "-c", PAIR];
    let mut ours = Puppet::spawn(&program(&etcd.endpoint(), &args));
    let family = Family::of(&mut ours).await;
    stop(family.guard);
    // Longer than the lock was certain when it stopped.
    tokio::time::sleep(Duration::from_secs(5)).await;
    kill_process(Pid::from_raw(family.guard).unwrap(), Signal::CONT).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(family.alive().len(), 2);
    ours.process.term();
    assert_eq!(ours.process.exit().await.code(), Some(143));
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_child_does_not_outlive_command_and_guard_that_are_killed_together() {
    let etcd = Etcd::start().await;
    let mut ours = run(&etcd.endpoint(), "a", "echo $$ $$ $PPID; exec sleep 1000");
    let line = ours.line().await;
    let pids: Vec<i32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    // The guard first, which cannot act any more; and the command, which has no time to.
    stop(ours.process.pid());
    stop(pids[2]);
    kill(pids[2]);
    kill(ours.process.pid());
    crate::support::soon("the child is dead", async || {
        crate::support::ensure(!is_alive(pids[0]), "alive")
    })
    .await;
}
