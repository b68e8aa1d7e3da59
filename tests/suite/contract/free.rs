//! A lock that was free the last time is tried before its line is joined:
//! - each lock and each release of it is one transaction, also with locks below its name;
//! - who finds it held after all stands in the line, by one transaction more, and so do all who come after;
//! - a try whose answer is lost has the lock, once.

use std::time::Duration;

use etcd_lock::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{
    BOUND, Etcd, Proxy, connect, ensure, keys, mutex, session, soon, soon_nothing, waiter,
};

async fn lock_and_release(mutex: &Mutex, times: usize) {
    for _ in 0..times {
        let guard = timeout(BOUND, mutex.lock()).await.expect("its turn");
        guard.unwrap().release().await.unwrap();
    }
}

/// What is done meanwhile, in transactions.
async fn transactions(etcd: &Etcd, work: impl Future<Output = ()>) -> f64 {
    let before = etcd.calls("Txn").await;
    work.await;
    etcd.calls("Txn").await - before
}

#[tokio::test]
async fn a_lock_and_its_release_are_a_transaction_each() {
    let etcd = Etcd::start().await;
    // A long TTL: nothing else is asked.
    let session = session(etcd.client().await, 600).await;
    let free = mutex(&session, "a");
    let made = transactions(&etcd, lock_and_release(&free, 5)).await;
    assert!((made - 10.0).abs() < 0.1, "{made} with nothing below");

    let below = mutex(&session, "a/b");
    let held = below.lock().await.unwrap();
    // The first finds out that there is something below; then nobody tries any more.
    lock_and_release(&free, 1).await;
    let made = transactions(&etcd, lock_and_release(&free, 5)).await;
    assert!(
        (made - 10.0).abs() < 2.1,
        "{made} with {} held",
        held.name()
    );
}

#[tokio::test]
async fn who_finds_it_held_stands_in_line_and_tries_no_more() {
    let etcd = Etcd::start().await;
    let [ours, theirs] = [
        session(etcd.client().await, 600).await,
        session(etcd.client().await, 600).await,
    ]
    .map(|session| mutex(&session, "a"));
    lock_and_release(&ours, 1).await;
    let held = theirs.lock().await.unwrap();

    let first = waiter(&ours).await;
    let second = waiter(&ours).await;
    let line = ours.queue().await.unwrap();
    let leases: Vec<_> = line.iter().map(|waiter| waiter.lease).collect();
    assert_eq!(leases.len(), 3);
    assert_eq!(leases[1], leases[2], "both of ours, behind the holder");

    held.release().await.unwrap();
    let first = timeout(BOUND, first).await.expect("its turn").unwrap();
    assert_eq!(first.token(), line[1].token);
    let busy = theirs.try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.holder().token, first.token());
    first.release().await.unwrap();
    let second = timeout(BOUND, second).await.expect("its turn").unwrap();
    assert_eq!(second.token(), line[2].token);
}

#[tokio::test]
async fn of_a_crowd_one_tries_in_vain() {
    let etcd = Etcd::start().await;
    let [ours, theirs] = [
        session(etcd.client().await, 600).await,
        session(etcd.client().await, 600).await,
    ]
    .map(|session| mutex(&session, "a"));
    lock_and_release(&ours, 1).await;
    let held = theirs.lock().await.unwrap();
    let before = etcd.calls("Txn").await;
    let mut all = JoinSet::new();
    for _ in 0..20 {
        let ours = ours.clone();
        all.spawn(async move { lock_and_release(&ours, 1).await });
    }
    soon("everybody stands in the line", async || {
        let line = keys(&etcd.client().await, "a").await.len();
        ensure(line == 21, line)
    })
    .await;
    let made = etcd.calls("Txn").await - before;
    // Twenty joins and a try; the read of the line, when it is followed, and of the holder's own key.
    assert!((21.0..=25.0).contains(&made), "{made} transactions");
    held.release().await.unwrap();
    timeout(BOUND, all.join_all())
        .await
        .expect("everybody has a turn");
}

#[tokio::test]
async fn a_try_whose_answer_is_lost_has_the_lock_once() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    let session = session(connect(&[proxy.endpoint()]).await, 20).await;
    let ours = mutex(&session, "a");
    lock_and_release(&ours, 1).await;

    proxy.drop_answers();
    let turn = tokio::spawn(ours.lock());
    let key = soon("the key is put", async || {
        let keys = keys(&client, "a").await;
        let [key] = &keys[..] else {
            return Err(format!("{keys:?}"));
        };
        Ok(key.clone())
    })
    .await;
    proxy.heal();
    let guard = timeout(BOUND, turn).await.expect("it is answered at last");
    let guard = guard.unwrap().unwrap();
    assert_eq!(guard.key(), key);
    let stored = client.kv_client().get(key, None).await.unwrap();
    let created = stored.kvs()[0].create_revision();
    assert_eq!(guard.token().get(), created.cast_unsigned());
    let waits = ours.lock_within(Duration::from_millis(200)).await;
    assert!(waits.is_err(), "{waits:?}");
    guard.release().await.unwrap();
    session.close().await.unwrap();
    soon_nothing(&client).await;
}
