//! Many locks and many waiters in one process: one connection, few streams, nothing left (scenario 54).

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use tokio::task::JoinSet;

use crate::support::{Etcd, ensure, leases, mutex, session, soon, within};

/// A debug build on two cores makes a few thousand joins a second.
const MANY: usize = 10_000;
const TTL: u64 = 20;
const PREFIX: &str = "many/";

async fn count(client: &Client) -> i64 {
    let options = GetOptions::new().with_prefix().with_count_only();
    let answer = client.kv_client().get(PREFIX, Some(options)).await;
    answer.unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_and_as_many_waiters_need_two_connections_and_few_streams() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let holder = session(etcd.client().await, TTL).await;
    let waiter = session(etcd.client().await, TTL).await;
    let names = || (0..MANY).map(|n| format!("{PREFIX}{n}"));

    let mut locks = JoinSet::new();
    for name in names() {
        locks.spawn(mutex(&holder, &name).lock());
    }
    let guards = locks.join_all().await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();

    let mut waits = JoinSet::new();
    for name in names() {
        waits.spawn(mutex(&waiter, &name).lock());
    }
    let all = i64::try_from(2 * MANY).unwrap();
    within(
        Duration::from_secs(60),
        "everybody stands in line",
        async || {
            let now = count(&client).await;
            ensure(now == all, now)
        },
    )
    .await;

    // One for the holder, one for the waiters, one for the test's own client.
    soon("three connections", async || {
        let now = etcd.connections();
        ensure(now <= 3, now)
    })
    .await;
    let watches = etcd.open_streams("Watch").await;
    let renewals = etcd.open_streams("LeaseKeepAlive").await;
    assert!(watches <= 2.0, "{watches} watch streams");
    assert!(renewals <= 2.0, "{renewals} streams of renewals");
    assert!(guards.iter().all(|guard| guard.is_held()));

    // Everything that is held goes at once, and everybody gets a turn.
    holder.close().await.unwrap();
    assert!(guards.iter().all(|guard| !guard.is_held()));
    let turns = tokio::time::timeout(Duration::from_secs(60), waits.join_all()).await;
    let turns = turns.expect("everybody has a turn");
    let held = turns.iter().filter(|turn| turn.is_ok()).count();
    assert_eq!(held, MANY);
    waiter.close().await.unwrap();
    assert_eq!(count(&client).await, 0);
    within(Duration::from_secs(60), "no lease, no watch", async || {
        let left = leases(&client).await;
        let still = etcd.metric("etcd_debugging_mvcc_watcher_total").await;
        ensure(left.is_empty() && still == 0.0, format!("{left:?} {still}"))
    })
    .await;
}
