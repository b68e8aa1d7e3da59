//! Breaking a hold from code, and the line as an operator sees it:
//! - only the hold that was meant, and only while it holds; its owner is told that it was broken;
//! - what a break leaves beside the key is gone once the owner has heard of it, or with its lease;
//! - the queue says since when, whose keys are another client's, and leases how long they would live.

use std::time::{Duration, SystemTime};

use etcd_lock::etcd_client::PutOptions;
use etcd_lock::{Lost, Session};
use tokio::time::timeout;

use crate::support::{
    Etcd, connect, etcdctl_lock, keys, lost, mutex, session, soon_keys, soon_nothing, waiter,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn only_the_hold_that_was_meant_is_broken_and_it_is_told_so() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (etcd.client().await, etcd.client().await);
    let (ours, theirs) = (session(ours, 60).await, session(theirs, 60).await);
    let (door, other) = (mutex(&ours, "a"), mutex(&theirs, "a"));
    let guard = door.lock().await.unwrap();
    let next = waiter(&other).await;
    let line = other.queue().await.unwrap();

    // The waiter's token, and one that nobody has.
    for token in [line[1].token, other_token(&line[1])] {
        assert_eq!(other.break_if(token).await.unwrap(), None);
    }
    assert_eq!(other.queue().await.unwrap(), line);
    assert!(guard.is_held());

    let broken = other.break_if(guard.token()).await.unwrap();
    assert_eq!(broken.as_ref(), Some(&line[0]));
    let next = timeout(SECOND, next).await.expect("at once").unwrap();
    assert_eq!(timeout(SECOND, guard.lost()).await, Ok(Lost::Broken));
    // Again, as somebody in a hurry would.
    assert_eq!(other.break_if(guard.token()).await.unwrap(), None);
    assert!(next.is_held());

    assert_eq!(lost(guard.release().await), Lost::Broken);
    next.release().await.unwrap();
    let client = etcd.client().await;
    soon_keys(&client, "a/", &[]).await;
    assert!(ours.is_certain());
    ours.close().await.unwrap();
    theirs.close().await.unwrap();
    soon_nothing(&client).await;
}

fn other_token(waiter: &etcd_lock::Waiter) -> etcd_lock::FencingToken {
    (waiter.token.get() + 1).to_string().parse().unwrap()
}

#[tokio::test]
async fn a_hold_broken_right_away_is_told_so_at_its_release_or_leaves_nothing_when_dropped() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 60).await;
    let client = etcd.client().await;
    let door = mutex(&session, "a");
    for release in [true, false] {
        let guard = door.lock().await.unwrap();
        let broken = door.break_if(guard.token()).await.unwrap();
        assert_eq!(broken.unwrap().key, guard.key());
        if release {
            assert_eq!(lost(guard.release().await), Lost::Broken);
        } else {
            drop(guard);
        }
        soon_keys(&client, "a/", &[]).await;
    }
    // A delete of another hold's key, of the same number maybe, is not taken for a break.
    let guard = door.lock().await.unwrap();
    client.kv_client().delete(guard.key(), None).await.unwrap();
    assert_eq!(timeout(SECOND, guard.lost()).await, Ok(Lost::KeyDeleted));
}

#[tokio::test]
async fn a_crashed_holder_that_is_broken_leaves_nothing_when_its_lease_ends() {
    let etcd = Etcd::start().await;
    let proxy = crate::support::Proxy::to(&etcd.endpoint()).await;
    let cut_off = session(connect(&[proxy.endpoint()]).await, 2).await;
    let guard = mutex(&cut_off, "a").lock().await.unwrap();
    proxy.cut();
    let operator = session(etcd.client().await, 60).await;
    let door = mutex(&operator, "a");
    let broken = door.break_if(guard.token()).await.unwrap();
    assert_eq!(broken.unwrap().lease, cut_off.lease_id());
    let next = timeout(SECOND, door.lock())
        .await
        .expect("at once")
        .unwrap();
    next.release().await.unwrap();
    soon_keys(&etcd.client().await, "a/", &[]).await;
}

#[tokio::test]
async fn holds_of_others_are_marked_in_the_queue_and_broken_without_a_trace() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let door = mutex(&session, "a");
    let mut kv = client.kv_client();
    kv.put("a/by-hand", "maintenance", None).await.unwrap();
    kv.put(&b"a/\xff"[..], "", None).await.unwrap();
    let lease = client.lease_client().grant(60, None).await.unwrap().id();
    let leased = PutOptions::new().with_lease(lease);
    kv.put("a/0-leased", "", Some(leased)).await.unwrap();
    let ours = waiter(&door).await;

    let line = door.queue().await.unwrap();
    let foreign: Vec<_> = line.iter().map(|waiter| waiter.foreign).collect();
    assert_eq!(foreign, [true, true, true, false]);
    for other in &line[..3] {
        assert_eq!(other.since, None);
        assert_eq!(
            door.break_if(other.token)
                .await
                .unwrap()
                .as_ref()
                .map(|w| &w.key),
            Some(&other.key)
        );
    }
    let guard = timeout(SECOND, ours).await.expect("at once").unwrap();
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
    guard.release().await.unwrap();

    let mut etcdctl = etcdctl_lock(&etcd.endpoint(), "a", 60);
    etcdctl.line().await;
    let line = door.queue().await.unwrap();
    assert!(line[0].foreign, "{line:?}");
    assert!(door.break_if(line[0].token).await.unwrap().is_some());
    assert_eq!(keys(&client, "a/").await, [""; 0]);
}

#[tokio::test]
async fn the_queue_says_since_when_and_a_lease_how_long_it_would_live() {
    let etcd = Etcd::start().await;
    let builder = Session::builder(etcd.client().await).label("up since yesterday");
    let session = builder.ttl(60 * SECOND).open().await.unwrap();
    let door = mutex(&session, "a");
    let began = SystemTime::now();
    let guard = door.lock().await.unwrap();
    let line = door.queue().await.unwrap();
    assert_eq!(line[0].label, "up since yesterday");
    let since = line[0].since.expect("ours say so");
    // To the second.
    assert!(
        began - SECOND < since && since <= SystemTime::now(),
        "{since:?}"
    );

    let left = session.ttl_left(line[0].lease).await.unwrap().unwrap();
    assert!(50 * SECOND < left && left <= 60 * SECOND, "{left:?}");
    assert_eq!(session.ttl_left(4711).await.unwrap(), None);
    guard.release().await.unwrap();
}
