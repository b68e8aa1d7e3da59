//! - A closed session frees everything it holds and tells guards and waiters `Closed`; closing again is no error.
//! - A session lives as long as anything that uses it, and its lease goes with the last of them.
//! - A key deleted or a lease revoked by hand: holder and waiter are told the cause; the others go on (scenarios 3, 5).
//! - After it all nothing is left, neither keys nor leases.

use std::time::Duration;

use etcd_client::Client;
use etcd_lock::{Error, LockGuard, Lost, Result, Session};
use tokio::task::JoinSet;

use crate::support::{Etcd, ensure, leases, mutex, session, soon, soon_keys, soon_nothing, waiter};

fn lost(result: Result<LockGuard>) -> Lost {
    match result {
        Err(Error::Lost(lost)) => lost,
        other => panic!("not lost but {other:?}"),
    }
}

#[tokio::test]
async fn a_closed_session_frees_everything_and_says_so() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    // Long: what goes, goes because of the close.
    let ours = session(client.clone(), 600).await;
    let theirs = session(client.clone(), 600).await;
    let (held, awaited) = (mutex(&ours, "held"), mutex(&theirs, "awaited"));
    let guard = held.lock().await.unwrap();
    let successor = waiter(&mutex(&theirs, "held")).await;
    let holder = awaited.lock().await.unwrap();
    let waiting = waiter(&mutex(&ours, "awaited")).await;
    let clone = ours.clone();
    let (told, closed) = tokio::join!(guard.lost(), clone.close());
    closed.unwrap();
    assert_eq!(told, Lost::Closed);
    assert!(!guard.is_held() && guard.certain_until().is_none());
    assert!(!ours.is_certain() && ours.certain_until().is_none());
    assert_eq!(ours.ended().await, Lost::Closed);
    assert_eq!(lost(waiting.await), Lost::Closed);
    // Confirmed: gone by now, not soon.
    assert_eq!(leases(&client).await, [theirs.lease_id()]);
    assert!(successor.await.unwrap().is_held());
    soon_keys(&client, "awaited/", &[holder.key()]).await;
    ours.close().await.unwrap();
    theirs.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_guard_alone_keeps_its_session_alive() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let guard = {
        let session = session(etcd.client().await, 2).await;
        mutex(&session, "a").lock().await.unwrap()
    };
    // Longer than the lease lives without renewal: TTL 2 s, checked for expiry every 500 ms.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert!(guard.is_held());
    drop(guard);
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_lease_goes_with_the_last_that_uses_it() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let open = || session(client.clone(), 600);
    // Whatever is dropped last.
    drop(open().await);
    soon_nothing(&client).await;
    let door = mutex(&open().await, "a");
    assert_eq!(leases(&client).await.len(), 1);
    let clone = door.clone();
    drop(door);
    assert!(clone.queue().await.is_ok(), "a clone is the same session");
    drop(clone);
    soon_nothing(&client).await;
    let holder = mutex(&open().await, "a").lock().await.unwrap();
    let waiting = waiter(&mutex(&open().await, "a")).await;
    assert_eq!(leases(&client).await.len(), 2);
    drop(waiting);
    soon("the waiter's lease is gone", async || {
        let left = leases(&client).await;
        ensure(left.len() == 1, format!("{left:?}"))
    })
    .await;
    assert!(holder.is_held());
    drop(holder);
    soon_nothing(&client).await;
}

async fn delete(client: &Client, key: &str) {
    let deleted = client.kv_client().delete(key, None).await.unwrap();
    assert_eq!(deleted.deleted(), 1);
}

#[tokio::test]
async fn a_key_deleted_by_hand_is_told_to_its_owner_alone() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let holder = mutex(&ours, "a").lock().await.unwrap();
    let kept = mutex(&ours, "b").lock().await.unwrap();
    let first = waiter(&mutex(&ours, "a")).await;
    let second = waiter(&mutex(&theirs, "a")).await;
    let line = mutex(&ours, "a").queue().await.unwrap();
    delete(&client, &line[1].key).await;
    assert_eq!(lost(first.await), Lost::KeyDeleted);
    assert!(holder.is_held() && !second.is_over());
    delete(&client, holder.key()).await;
    assert_eq!(holder.lost().await, Lost::KeyDeleted);
    assert!(!holder.is_held() && holder.certain_until().is_none());
    let second = second.await.unwrap();
    assert!(second.token() > holder.token());
    assert!(kept.is_held() && ours.is_certain(), "only that key is lost");
    // The session goes on, and a new hold is as good as any.
    drop(second);
    assert!(mutex(&ours, "a").lock().await.unwrap().is_held());
}

#[tokio::test]
async fn a_lease_revoked_by_hand_is_told_to_all_who_used_it() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let revoke = async |session: &Session| {
        let revoked = client.lease_client().revoke(session.lease_id()).await;
        revoked.unwrap();
    };
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let holder = mutex(&theirs, "a").lock().await.unwrap();
    let kept = mutex(&ours, "b").lock().await.unwrap();
    let waiting = waiter(&mutex(&ours, "a")).await;
    revoke(&ours).await;
    assert_eq!(lost(waiting.await), Lost::LeaseGone);
    assert_eq!(kept.lost().await, Lost::LeaseGone);
    assert_eq!(ours.ended().await, Lost::LeaseGone);
    assert!(holder.is_held());
    let waiting = waiter(&mutex(&session(etcd.client().await, 2).await, "a")).await;
    revoke(&theirs).await;
    assert_eq!(holder.lost().await, Lost::LeaseGone);
    assert!(waiting.await.unwrap().is_held());
    // Nothing brings it back.
    let again = mutex(&ours, "a").lock().await;
    assert_eq!(lost(again), Lost::LeaseGone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_busy_day_nothing_is_left() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut tasks = JoinSet::new();
    for worker in 0..12_u32 {
        let session = session(client.clone(), 600).await;
        tasks.spawn(async move {
            for round in 0..12 {
                let door = mutex(&session, if round % 4 == 0 { "a" } else { "a/b" });
                match (worker + round) % 4 {
                    0 => door.lock().await.unwrap().release().await.unwrap(),
                    1 => drop(door.lock().await.unwrap()),
                    2 => drop(door.try_lock().await.unwrap()),
                    _ => drop(door.lock_within(Duration::from_millis(5)).await),
                }
            }
            // The others are only dropped.
            if worker % 2 == 0 {
                session.close().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    soon_nothing(&client).await;
}
