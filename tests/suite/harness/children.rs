//! A puppet speaks, stands still and dies as told; so does what is on a leash. A condition that never comes is told.

use std::time::Duration;

use tokio::time::timeout;

use crate::support::{
    Etcd, Leashed, Puppet, ensure, etcdctl, etcdctl_elect, etcdctl_lock, etcdctl_observe, is_alive,
    keys, role, say, soon, unique, within,
};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_puppet_speaks_stands_still_and_dies() {
    if role().as_deref() == Some("clock") {
        loop {
            say(std::env::var("WORD").unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut puppet = Puppet::rerun(
        a_puppet_speaks_stands_still_and_dies,
        "clock",
        &[("WORD", "tick")],
    );
    assert_eq!(puppet.line().await, "tick");
    puppet.process.stop();
    while timeout(SHORT, puppet.next_line()).await.is_ok() {}
    puppet.is_silent_for(SHORT).await;
    puppet.process.cont();
    assert_eq!(puppet.line().await, "tick");
    puppet.process.kill();
    while puppet.next_line().await.is_some() {}
    assert!(puppet.process.exited().is_some());
}

#[tokio::test]
async fn etcdctl_locks_and_elects_as_a_puppet() {
    let etcd = Etcd::start().await;
    let (client, endpoint) = (etcd.client().await, etcd.endpoint());
    let (lock, election) = (unique("lock"), unique("election"));
    let mut first = etcdctl_lock(&endpoint, &lock, 2);
    assert_eq!(
        vec![first.line().await],
        keys(&client, &format!("{lock}/")).await
    );
    let mut second = etcdctl_lock(&endpoint, &lock, 2);
    soon("the second waits", async || {
        ensure(keys(&client, &lock).await.len() == 2, "it does not")
    })
    .await;
    first.process.term();
    let key = second.line().await;
    assert_eq!(vec![key], keys(&client, &lock).await);
    assert!(first.process.exit().await.code().is_some() || first.process.exited().is_some());
    let mut observer = etcdctl_observe(&endpoint, &election);
    let mut leader = etcdctl_elect(&endpoint, &election, "me");
    let key = leader.line().await;
    assert_eq!(
        (
            leader.line().await,
            observer.line().await,
            observer.line().await
        ),
        ("me".into(), key, "me".into())
    );
    let got = etcdctl(&endpoint, &["get", "--prefix", "--keys-only", &election]).await;
    assert!(
        got.status.success()
            && String::from_utf8(got.stdout)
                .unwrap()
                .starts_with(&election)
    );
}

#[tokio::test]
async fn a_leash_takes_the_children_of_its_process_too() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "sleep 1000 & echo $!; wait"]);
    let mut puppet = Puppet::spawn(&command);
    let child = puppet.line().await.parse().unwrap();
    assert!(is_alive(child));
    Leashed::kill(&puppet.process);
    soon("the grandchild is gone", async || {
        ensure(!is_alive(child), child)
    })
    .await;
}

#[tokio::test]
async fn a_condition_that_never_comes_is_told_with_its_last_state() {
    let wait = tokio::spawn(within(SHORT, "pigs fly", async || {
        ensure(false, "a pig on the ground")
    }));
    let message = *wait
        .await
        .unwrap_err()
        .into_panic()
        .downcast::<String>()
        .unwrap();
    assert!(
        message.contains("pigs fly") && message.contains("a pig on the ground"),
        "{message}"
    );
    assert!(message.contains("children.rs"), "{message}");
}
