//! - It waits in line, with `etcdctl lock` as well, in both directions; `--wait` and `--skip` bound that.
//! - A signal ends the wait, and nothing is left of it.
//! - The lock is held until all that the child has started has ended.

use std::time::Duration;

use tokio::time::Instant;

use super::tool::{Family, PAIR, code, complaint, output, run, soon_gone};
use crate::support::{
    Etcd, ensure, etcdctl_lock, is_alive, keys, mutex, session, soon, soon_nothing,
};

#[tokio::test]
async fn etcdctl_waits_behind_it_and_it_behind_etcdctl() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut ours = run(&etcd.endpoint(), "a", PAIR);
    let family = Family::of(&mut ours).await;
    let mut theirs = etcdctl_lock(&etcd.endpoint(), "a", 3);
    let standing = async |count| {
        soon("all stand in the line", async || {
            let line = keys(&client, "a/").await;
            ensure(line.len() == count, format!("{line:?}"))
        })
        .await;
    };
    standing(2).await;
    theirs.is_silent_for(Duration::from_millis(500)).await;
    ours.process.term();
    let key = theirs.line().await;
    assert!(family.alive().is_empty());
    let mut ours = run(&etcd.endpoint(), "a", "echo $ETCD_LOCK_KEY");
    standing(2).await;
    ours.is_silent_for(Duration::from_millis(500)).await;
    assert_eq!(keys(&client, "a/").await[0], key);
    theirs.process.term();
    assert_ne!(ours.line().await, key);
    assert_eq!(ours.process.exit().await.code(), Some(0));
    soon_nothing(&client).await;
}

#[tokio::test]
async fn skip_does_not_wait_and_tells_who_holds() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let skip = ["run", "--skip", "a", "--", "echo", "it ran"];
    let busy = output(&etcd.endpoint(), &skip).await;
    assert_eq!((code(&busy), &*busy.stdout), (124, &b""[..]));
    let said = complaint(&busy);
    assert!(
        said.starts_with("\"a\" is held by ") && said.contains(guard.key()),
        "{said}"
    );
    guard.release().await.unwrap();
    let free = output(&etcd.endpoint(), &skip).await;
    assert_eq!((code(&free), &*free.stdout), (0, &b"it ran\n"[..]));
    session.close().await.unwrap();
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn wait_bounds_the_wait_and_tells_who_holds() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let begun = Instant::now();
    let args = ["run", "--wait", "1500ms", "a", "--", "echo", "it ran"];
    let late = output(&etcd.endpoint(), &args).await;
    assert!(begun.elapsed() >= Duration::from_millis(1500));
    assert_eq!((code(&late), &*late.stdout), (124, &b""[..]));
    let said = complaint(&late);
    assert!(
        said.contains("within 1.5s") && said.contains(guard.key()),
        "{said}"
    );
    soon("it has left the line", async || {
        let line = keys(&etcd.client().await, "a/").await;
        ensure(line == [guard.key()], format!("{line:?}"))
    })
    .await;
    let args = ["elect", "--wait", "100ms", "a", "--", "echo", "it ran"];
    let late = output(&etcd.endpoint(), &args).await;
    assert_eq!((code(&late), &*late.stdout), (124, &b""[..]));
}

#[tokio::test]
async fn a_signal_ends_the_wait_and_nothing_is_left() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let waiting = run(&etcd.endpoint(), "a", "echo it ran");
    soon("it waits", async || {
        let line = keys(&client, "a/").await;
        ensure(line.len() == 2, format!("{line:?}"))
    })
    .await;
    waiting.process.term();
    assert_eq!(waiting.process.exit().await.code(), Some(143));
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
    guard.release().await.unwrap();
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn the_lock_is_held_until_all_that_the_child_has_started_has_ended() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    let mut ours = run(
        &etcd.endpoint(),
        "a",
        "sleep 2 >&- 2>&- & echo $$ $! $PPID; exit 3",
    );
    let line = ours.line().await;
    let rest: i32 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(is_alive(rest));
    let guard = mutex(&session, "a").lock().await.unwrap();
    assert!(!is_alive(rest));
    assert_eq!(ours.process.exit().await.code(), Some(3));
    drop(guard);
    session.close().await.unwrap();
    let pids: Vec<i32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let family = Family {
        child: pids[0],
        grandchild: pids[1],
        guard: pids[2],
    };
    soon_gone(&client, &family).await;
}
