//! - A hold is renewed for as long as it is wanted, with one token (renewal).
//! - Certainty is the granted TTL less the margin.
//! - A fence is true in a user's transaction while the key of its hold stands, and never after, not even for a later
//!   hold on the same key.
//! - `run_until_lost` gives the work's result, or drops the work and tells the cause.
//! - A key is created at most once and only its own hold deletes it (R4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use etcd_client::{Client, Compare, Txn, TxnOp};
use etcd_lock::{Error, Lost, Session};
use tokio::time::Instant;

use crate::support::{Etcd, keys, mutex, session, soon, soon_keys};

#[tokio::test]
async fn a_hold_outlives_many_ttls() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let token = guard.token();
    let end = Instant::now() + 3 * session.ttl() + Duration::from_millis(500);
    while Instant::now() < end {
        let until = guard.certain_until().expect("it is held all the time");
        assert!(until > Instant::now() && guard.is_held() && session.is_certain());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn certainty_is_the_granted_ttl_less_the_margin() {
    let etcd = Etcd::start().await;
    let seconds = Duration::from_secs;
    let asked = [
        // TTL and margin asked for, TTL granted, margin in force.
        (seconds(100), Some(seconds(30)), seconds(100), seconds(30)),
        (seconds(100), None, seconds(100), seconds(10)),
        (
            Duration::from_millis(20_100),
            None,
            seconds(21),
            Duration::from_millis(2_100),
        ),
        (
            seconds(1),
            Some(Duration::from_millis(500)),
            seconds(2),
            Duration::from_millis(500),
        ),
    ];
    for (ttl, margin, granted, in_force) in asked {
        let mut builder = Session::builder(etcd.client().await).ttl(ttl);
        if let Some(margin) = margin {
            builder = builder.margin(margin);
        }
        let before = Instant::now();
        let session = builder.open().await.unwrap();
        let after = Instant::now();
        assert_eq!(session.ttl(), granted);
        let until = session.certain_until().unwrap();
        // The two clocks that are asked are read one after the other.
        let read = Duration::from_millis(5);
        let span = before + granted - in_force - read..after + granted - in_force + read;
        assert!(span.contains(&until), "asked for {ttl:?}, {margin:?}");
    }
}

/// Whether a user's transaction with this condition goes through.
async fn written(client: &Client, fence: Compare) -> bool {
    let txn = Txn::new()
        .when([fence])
        .and_then([TxnOp::put("report", "done", None)]);
    client.kv_client().txn(txn).await.unwrap().succeeded()
}

#[tokio::test]
async fn a_fence_is_true_for_its_own_hold_only() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let first = door.lock().await.unwrap();
    let (fence, key) = (first.fence(), first.key().to_owned());
    assert!(written(&client, fence.clone()).await);
    first.release().await.unwrap();
    assert!(!written(&client, fence.clone()).await);
    let second = door.lock().await.unwrap();
    assert_eq!(second.key(), key, "this test is about two holds on one key");
    assert!(!written(&client, fence).await);
    assert!(written(&client, second.fence()).await);
    client.kv_client().delete(key, None).await.unwrap();
    assert!(!written(&client, second.fence()).await);
}

/// Says when it is dropped.
struct Bell(Arc<AtomicBool>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test]
async fn work_under_the_lock_gives_its_result() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let work = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err::<u32, _>("its own error")
    };
    assert_eq!(guard.run_until_lost(work).await, Ok(Err("its own error")));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn work_is_dropped_when_the_lock_is_lost() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(AtomicBool::new(false));
    let key = guard.key().to_owned();
    let run = async {
        let bell = Bell(dropped.clone());
        let ran = guard.run_until_lost(async {
            let _bell = bell;
            begun.store(true, SeqCst);
            std::future::pending::<()>().await;
        });
        let ran = ran.await;
        assert!(dropped.load(SeqCst), "the work lives on");
        ran
    };
    let operator = async {
        soon("the work has begun", async || {
            begun.load(SeqCst).then_some(()).ok_or("not yet".into())
        })
        .await;
        client.kv_client().delete(key, None).await.unwrap();
    };
    let (ran, ()) = tokio::join!(run, operator);
    assert_eq!(ran, Err(Lost::KeyDeleted));
    assert!(!guard.is_held());
}

#[tokio::test]
async fn work_never_begins_under_a_lost_lock() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    session.close().await.unwrap();
    let ran = guard.run_until_lost(async { panic!("it has begun") }).await;
    assert_eq!(ran, Err::<(), _>(Lost::Closed));
}

#[tokio::test]
async fn a_hold_never_deletes_a_key_that_others_made_in_its_place() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let door = mutex(&session, "a");
    for release in [true, false] {
        let guard = door.lock().await.unwrap();
        let key = guard.key().to_owned();
        let mut kv = client.kv_client();
        kv.delete(key.as_str(), None).await.unwrap();
        kv.put(key.as_str(), "somebody else's", None).await.unwrap();
        if release {
            let error = guard.release().await.unwrap_err();
            assert!(matches!(error, Error::Lost(Lost::KeyDeleted)), "{error}");
        } else {
            drop(guard);
            // What is dropped after it is deleted after it: then its own delete has been made.
            let other = mutex(&session, "b").lock().await.unwrap();
            drop(other);
            soon_keys(&client, "b/", &[]).await;
        }
        assert_eq!(keys(&client, "a/").await, [key.as_str()]);
        kv.delete(key, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_key_that_is_there_already_is_neither_overwritten_nor_taken_for_ours() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let guard = door.lock().await.unwrap();
    let key = guard.key().to_owned();
    guard.release().await.unwrap();
    let put = client.kv_client().put(key.as_str(), "theirs", None).await;
    put.unwrap();
    for tried in [false, true] {
        let error = if tried {
            door.try_lock().await.map(drop).unwrap_err()
        } else {
            door.lock().await.map(drop).unwrap_err()
        };
        let text = error.to_string();
        assert!(text.contains(&key) && text.contains("delete it"), "{text}");
    }
    let stored = client.kv_client().get(key.as_str(), None).await.unwrap();
    assert_eq!(stored.kvs()[0].value_str().unwrap(), "theirs");
    client.kv_client().delete(key, None).await.unwrap();
    door.lock().await.unwrap().release().await.unwrap();
}
