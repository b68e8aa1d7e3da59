//! - The delete is carried out, its answer lost, the session locks again, the old release is tried again: the newer
//!   key survives (scenario 36).
//! - Released through a member without its peers: in the end the key is gone, and the session lives (scenario 37).
//! - Released over a line that fails, or under a scope that is cancelled already: done all the same (scenario 38).
//! - Who gives up counts as not holding before the key is gone (scenario 40), and the work has ended by then (41).
//! - The release of a lost guard is quick, also without etcd, and says how it was lost (scenario 42).
//! - A release that cannot be confirmed ends within the TTL and says what is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use etcd_lock::{Error, Lost, Session};
use tokio::time::{Instant, timeout};

use crate::support::{
    Cluster, Etcd, Member, Proxy, connect, ensure, keys, mutex, session, soon, soon_keys, waiter,
};

type Fault = fn(&Proxy);

async fn session_through(proxy: &Proxy, ttl: u64) -> Session {
    session(connect(&[proxy.endpoint()]).await, ttl).await
}

#[tokio::test]
async fn a_release_that_is_tried_again_spares_the_next_hold() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let door = mutex(&session_through(&proxy, 60).await, "a");
    let old = door.lock().await.unwrap();
    proxy.drop_answers();
    let releasing = tokio::spawn(old.release());
    soon_keys(&client, "a/", &[]).await;
    // It is carried out, but nobody knows: it is tried again and again while the next hold begins.
    let locking = tokio::spawn(door.lock());
    soon("the next key stands", async || {
        let found = keys(&client, "a/").await;
        ensure(found.len() == 1, format!("{found:?}"))
    })
    .await;
    let before = etcd.calls("Txn").await;
    soon("both are tried again", async || {
        let calls = etcd.calls("Txn").await - before;
        ensure(calls > 3.5, calls)
    })
    .await;
    assert!(!releasing.is_finished());
    proxy.heal();
    let new = locking.await.unwrap().unwrap();
    releasing.await.unwrap().unwrap();
    assert!(new.is_held());
    assert_eq!(keys(&client, "a/").await, [new.key()]);
    new.release().await.unwrap();
}

#[tokio::test]
async fn a_release_through_a_member_without_peers_is_done_when_they_are_back() {
    let cluster = Cluster::start(3).await;
    let alone = &cluster.members[0];
    let client = alone.client().await;
    let session = session(client.clone(), 20).await;
    let waits = mutex(&session, "waits").lock().await.unwrap();
    let dropped = mutex(&session, "dropped").lock().await.unwrap();
    let cut_off = mutex(&session, "cut off").lock().await.unwrap();
    cluster.members[1..].iter().for_each(Member::stop);
    let waiting = tokio::spawn(waits.release());
    drop(dropped);
    assert!(
        timeout(Duration::from_millis(500), cut_off.release())
            .await
            .is_err()
    );
    // Longer than an election takes, shorter than the TTL.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished(), "confirmed by whom?");
    cluster.members[1..].iter().for_each(Member::cont);
    waiting.await.unwrap().unwrap();
    soon_keys(&client, "", &[]).await;
    assert!(
        session.is_certain(),
        "the keys were to go without the lease"
    );
    assert!(mutex(&session, "dropped").lock().await.unwrap().is_held());
}

#[tokio::test]
async fn a_release_over_a_line_that_fails_is_done_when_it_is_back() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session_through(&proxy, 60).await;
    let faults: [Fault; 3] = [Proxy::cut, Proxy::hold, Proxy::drop_answers];
    for fault in faults {
        let waits = mutex(&session, "a").lock().await.unwrap();
        let cancelled = mutex(&session, "b").lock().await.unwrap();
        let unpolled = mutex(&session, "c").lock().await.unwrap();
        fault(&proxy);
        let waiting = tokio::spawn(waits.release());
        // A scope that is cancelled already: polled once, or never.
        assert!(timeout(Duration::ZERO, cancelled.release()).await.is_err());
        drop(unpolled.release());
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "confirmed by whom?");
        proxy.heal();
        waiting.await.unwrap().unwrap();
        soon_keys(&client, "", &[]).await;
        assert!(
            session.is_certain(),
            "the keys were to go without the lease"
        );
    }
}

#[tokio::test]
async fn a_release_that_is_never_answered_ends_within_the_ttl() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session_through(&proxy, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    proxy.hold();
    let begun = Instant::now();
    let error = guard.release().await.unwrap_err();
    let took = begun.elapsed();
    assert!(
        took < session.ttl() + Duration::from_millis(500),
        "{took:?}"
    );
    // Held to the end of the work: that is not what was lost.
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("a/") && text.contains("within 2s"), "{text}");
    // And it keeps its word.
    soon_keys(&etcd.client().await, "", &[]).await;
}

#[tokio::test]
async fn a_guard_counts_as_lost_before_its_key_is_gone() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session_through(&proxy, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    proxy.hold();
    assert!(timeout(Duration::ZERO, session.close()).await.is_err());
    assert!(!guard.is_held() && guard.certain_until().is_none());
    assert_eq!(guard.lost().await, Lost::Closed);
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
    proxy.heal();
    session.close().await.unwrap();
    assert_eq!(keys(&client, "a/").await, [""; 0]);
}

/// Says when it is dropped.
struct Bell(Arc<AtomicBool>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test]
async fn work_has_ended_when_the_next_holder_begins() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let guard = mutex(&ours, "a").lock().await.unwrap();
    let next = waiter(&mutex(&theirs, "a")).await;
    let ended = Arc::new(AtomicBool::new(false));
    let bell = Bell(ended.clone());
    let holder = async move {
        // The scope of the work is cancelled from without.
        let work = guard.run_until_lost(async move {
            let _bell = bell;
            std::future::pending::<()>().await;
        });
        assert!(timeout(Duration::from_millis(50), work).await.is_err());
        guard.release().await.unwrap();
    };
    let successor = async {
        let next = next.await.unwrap();
        assert!(
            ended.load(SeqCst),
            "work goes on under somebody else's lock"
        );
        next
    };
    let ((), _next) = tokio::join!(holder, successor);
}

#[tokio::test]
async fn the_release_of_a_lost_guard_says_so_at_once() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs, third) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let deleted = mutex(&ours, "deleted").lock().await.unwrap();
    let untold = mutex(&ours, "untold").lock().await.unwrap();
    let revoked = mutex(&theirs, "revoked").lock().await.unwrap();
    let closed = mutex(&third, "closed").lock().await.unwrap();
    client
        .kv_client()
        .delete(deleted.key(), None)
        .await
        .unwrap();
    assert_eq!(deleted.lost().await, Lost::KeyDeleted);
    let revoke = client.lease_client().revoke(theirs.lease_id()).await;
    revoke.unwrap();
    assert_eq!(revoked.lost().await, Lost::LeaseGone);
    third.close().await.unwrap();
    // Lost, but not told yet: it asks etcd.
    client.kv_client().delete(untold.key(), None).await.unwrap();
    let error = untold.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost(Lost::KeyDeleted)), "{error:?}");
    // Told already: nothing to ask.
    etcd.stop();
    let begun = Instant::now();
    for (guard, cause) in [
        (deleted, Lost::KeyDeleted),
        (revoked, Lost::LeaseGone),
        (closed, Lost::Closed),
    ] {
        match guard.release().await {
            Err(Error::Lost(lost)) => assert_eq!(lost, cause),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "{:?}",
        begun.elapsed()
    );
    etcd.cont();
}
