//! - One holder at a time, between tasks of one session and between sessions.
//! - Who holds is not let in again: no re-entrancy.
//! - A try takes a free lock, and only a free one.
//! - A released or dropped lock is free again, for the same session too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use etcd_lock::{Mutex, Session};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{Etcd, keys, mutex, session, soon_keys, soon_nothing, waiter};

/// Long enough for a lock that is free, also on a loaded machine, and short enough to wait for nothing.
const MOMENT: Duration = Duration::from_millis(500);

/// Each worker adds one to a number in etcd so many times, by reading and writing it.
async fn workers_lose_no_update(etcd: &Etcd, sessions: &[Session], workers: u32, times: u32) {
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..workers {
        let mutex = mutex(&sessions[n as usize % sessions.len()], "numbers");
        let (client, inside) = (etcd.client().await, inside.clone());
        tasks.spawn(async move {
            for _ in 0..times {
                let guard = mutex.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "somebody else is inside");
                let found = client.kv_client().get("number", None).await.unwrap();
                let number = found
                    .kvs()
                    .first()
                    .map_or(0, |kv| kv.value_str().unwrap().parse::<u32>().unwrap());
                let next = (number + 1).to_string();
                client.kv_client().put("number", next, None).await.unwrap();
                inside.fetch_sub(1, SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let number = etcd.client().await.get("number", None).await.unwrap();
    let number = number.kvs()[0].value_str().unwrap().to_owned();
    assert_eq!(number, (workers * times).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_session_exclude_each_other() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    workers_lose_no_update(&etcd, &[session], 8, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_exclude_each_other() {
    let etcd = Etcd::start().await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(session(etcd.client().await, 2).await);
    }
    workers_lose_no_update(&etcd, &sessions, 16, 10).await;
}

#[tokio::test]
async fn a_holder_waits_for_itself() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let mutex = mutex(&session, "a");
    let first = mutex.lock().await.unwrap();
    let mut second = waiter(&mutex.clone()).await;
    let early = timeout(MOMENT, &mut second).await;
    assert!(early.is_err(), "two guards of one session: {early:?}");
    first.release().await.unwrap();
    assert!(second.await.unwrap().is_held());
}

#[tokio::test]
async fn a_try_takes_a_free_lock_and_only_a_free_one() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let guard = mutex(&ours, "a").try_lock().await.unwrap().unwrap();
    assert!(guard.is_held());
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
    for session in [&ours, &theirs] {
        let tried = mutex(session, "a").try_lock().await.unwrap();
        assert_eq!(tried.unwrap_err().holder().key, guard.key());
        assert_eq!(keys(&client, "a/").await, [guard.key()], "a try left a key");
    }
    guard.release().await.unwrap();
    let guard = mutex(&theirs, "a").try_lock().await.unwrap().unwrap();
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
}

#[tokio::test]
async fn a_try_does_not_pass_those_who_wait() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let mutex = mutex(&session, "a");
    let first = mutex.lock().await.unwrap();
    let second = waiter(&mutex).await;
    first.release().await.unwrap();
    // Whether or not the waiter has been told already.
    assert!(mutex.try_lock().await.unwrap().is_err());
    let second = second.await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_err());
    second.release().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_released_or_dropped_lock_can_be_locked_again() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let mutex = mutex(&session, "a");
    let mut last = 0;
    for round in 0..20 {
        let guard = take(&mutex, round).await;
        assert!(guard.is_held());
        assert!(guard.token().get() > last, "{} after {last}", guard.token());
        last = guard.token().get();
        if round % 2 == 0 {
            guard.release().await.unwrap();
            assert_eq!(
                keys(&client, "a/").await,
                [""; 0],
                "released but still there"
            );
        } else {
            drop(guard);
            soon_keys(&client, "a/", &[]).await;
        }
    }
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

/// By each of the three ways in turn.
async fn take(mutex: &Mutex, round: u32) -> etcd_lock::LockGuard {
    match round % 3 {
        0 => mutex.lock().await.unwrap(),
        1 => mutex.lock_within(Duration::from_secs(20)).await.unwrap(),
        _ => mutex.try_lock().await.unwrap().unwrap(),
    }
}
