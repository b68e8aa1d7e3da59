//! What is used is given back: after 10,000 cycles, 10,000 cancelled waits and 1,000 sessions, etcd's gauges, our tasks
//! and our memory are where they were.

use std::time::Duration;

use etcd_client::Client;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{Etcd, ensure, keys, leases, mutex, session, unique, within};

const TASKS: usize = 50;
const CYCLES: usize = 10_000;
const WAITS: usize = 10_000;
const SESSIONS: usize = 1_000;

/// What may not grow.
#[derive(Clone, Debug, PartialEq)]
struct Used {
    keys: usize,
    leases: usize,
    watchers: f64,
    streams_of_watches: f64,
    open_calls: f64,
    connections: usize,
    tasks: usize,
}

async fn used(etcd: &Etcd, client: &Client) -> Used {
    let calls = |what| async move { etcd.metric_sum(what, "grpc_type").await };
    let (begun, ended) = (
        calls("grpc_server_started_total").await,
        calls("grpc_server_handled_total").await,
    );
    Used {
        keys: keys(client, "").await.len(),
        leases: leases(client).await.len(),
        watchers: etcd.metric("etcd_debugging_mvcc_watcher_total").await,
        streams_of_watches: etcd.metric("etcd_debugging_mvcc_watch_stream_total").await,
        open_calls: begun - ended,
        connections: etcd.connections(),
        tasks: Handle::current().metrics().num_alive_tasks(),
    }
}

/// Bytes of memory that this process really has.
fn memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Locks and releases, drops or tries, of all of which nothing may remain.
async fn cycles(client: &Client) {
    let session = session(client.clone(), 600).await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let door = mutex(&session, &unique("cycle"));
        tasks.spawn(async move {
            for _ in 0..CYCLES / TASKS {
                let guard = door.lock().await.unwrap();
                if task % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    session.close().await.unwrap();
}

/// Gives up waits for what somebody else holds, anywhere between their beginning and their place in line.
async fn cancelled_waits(client: &Client) {
    let (holder, waiter) = (
        session(client.clone(), 600).await,
        session(client.clone(), 600).await,
    );
    let name = unique("wait");
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let door = mutex(&waiter, &name);
        tasks.spawn(async move {
            for _ in 0..WAITS / TASKS {
                let limit = Duration::from_micros(fastrand::u64(..20_000));
                assert!(timeout(limit, door.lock()).await.is_err());
            }
        });
    }
    tasks.join_all().await;
    guard.release().await.unwrap();
    holder.close().await.unwrap();
    waiter.close().await.unwrap();
}

/// Opens sessions, closes or only drops them.
async fn sessions(client: &Client) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..SESSIONS / TASKS {
                let session = session(client.clone(), 600).await;
                let guard = mutex(&session, &unique("session")).lock().await.unwrap();
                if task % 2 == 0 {
                    session.close().await.unwrap();
                }
                drop(guard);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_cancelled_waits_and_sessions_give_back_all_that_they_used() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    keys(&client, "").await; // Connects it.
    let before = used(&etcd, &client).await;
    let round = async || {
        cycles(&client).await;
        cancelled_waits(&client).await;
        sessions(&client).await;
        within(Duration::from_secs(60), "nothing is left", async || {
            let now = used(&etcd, &client).await;
            ensure(now == before, format!("{now:?}, before {before:?}"))
        })
        .await;
        memory()
    };
    // The allocator keeps some of what it has had; the same work once more takes no more of it.
    let (first, second) = (round().await, round().await);
    let grown = second.saturating_sub(first);
    assert!(
        grown < 2_000_000,
        "{grown} bytes more than the {first} before"
    );
}
