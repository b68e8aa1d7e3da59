//! Critical sections a second on one lock that is held for no time, in one process: beside the
//! bare limit (a put, a delete, one watch on the prefix, the queue in memory, nothing that makes
//! a lock safe) and beside etcd's own lock, as etcd-client offers it. In turns, medians.
//!
//! Run with `ci/with-etcd cargo bench --bench contended`.

#![allow(clippy::print_stdout, reason = "the output is the point")]

mod common;

use common::{Result, connect, delete, median, per_second, put};
use etcd_lock::etcd_client::{Client, EventType, LockOptions, WatchOptions};
use etcd_lock::{Mutex, Session};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const ROUNDS: usize = 5;
const MOST: usize = 128;
const ROUND: Duration = Duration::from_millis(1500);

#[tokio::main]
async fn main() -> Result<()> {
    let client = connect().await?;
    let session = Session::open(client.clone()).await?;
    let lease = session.lease_id();
    let bare = Bare::follow(client.clone(), lease).await?;
    // etcd's own lock tells its clients apart by their leases alone.
    let mut leases = Vec::new();
    for _ in 0..MOST {
        leases.push(client.lease_client().grant(600, None).await?.id());
    }
    println!("contenders   this crate   bare limit   ratio   etcd's lock()   ratio");
    for n in [2, 16, MOST] {
        let (mut ours, mut limit, mut server) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mutex = Mutex::new(&session, "bench/ours")?;
            let section = async |_| Ok(mutex.lock().await?.release().await?);
            ours.push(per_second(n, ROUND, section).await?);
            limit.push(per_second(n, ROUND, async |i| bare.section(i).await).await?);
            let section = async |i: usize| server_section(client.clone(), leases[i]).await;
            server.push(per_second(n, ROUND, section).await?);
        }
        let (ours, limit, server) = (median(ours), median(limit), median(server));
        let (to_limit, to_server) = (ours / limit, ours / server);
        println!(
            "{n:>10}   {ours:>8.0}/s   {limit:>8.0}/s   {to_limit:>5.2}   {server:>11.0}/s   {to_server:>5.1}"
        );
    }
    session.close().await?;
    Ok(())
}

/// etcd's own lock: the server waits in line for its client.
async fn server_section(mut client: Client, lease: i64) -> Result<()> {
    let options = LockOptions::new().with_lease(lease);
    let key = client
        .lock("bench/server", Some(options))
        .await?
        .key()
        .to_vec();
    client.unlock(key).await?;
    Ok(())
}

/// The limit: every process sees the whole line, and nothing is ever looked at again.
struct Bare {
    client: Client,
    lease: i64,
    queue: Arc<StdMutex<Queue>>,
    _follower: JoinSet<()>,
}

#[derive(Default)]
struct Queue {
    line: BTreeMap<i64, Vec<u8>>,
    waiting: HashMap<i64, oneshot::Sender<()>>,
}

impl Queue {
    fn call_first(&mut self) {
        if let Some(first) = self.line.keys().next()
            && let Some(turn) = self.waiting.remove(first)
        {
            turn.send(()).ok();
        }
    }
}

impl Bare {
    async fn follow(client: Client, lease: i64) -> Result<Self> {
        let queue = Arc::<StdMutex<Queue>>::default();
        let prefix = WatchOptions::new().with_prefix();
        let mut watch = client
            .watch_client()
            .watch("bench/bare/", Some(prefix))
            .await?;
        let (seen, mut follower) = (queue.clone(), JoinSet::new());
        follower.spawn(async move {
            while let Ok(Some(message)) = watch.message().await {
                let Ok(mut queue) = seen.lock() else { return };
                for event in message.events() {
                    let Some(kv) = event.kv() else { continue };
                    if event.event_type() == EventType::Put {
                        queue.line.insert(kv.create_revision(), kv.key().to_vec());
                    } else {
                        queue.line.retain(|_, key| key != kv.key());
                    }
                }
                queue.call_first();
            }
        });
        Ok(Self {
            client,
            lease,
            queue,
            _follower: follower,
        })
    }

    async fn section(&self, i: usize) -> Result<()> {
        let (key, mut kv) = (format!("bench/bare/{i}"), self.client.kv_client());
        let revision = put(&mut kv, &key, self.lease).await?;
        let (turn, called) = oneshot::channel();
        if let Ok(mut queue) = self.queue.lock() {
            queue.waiting.insert(revision, turn);
            queue.call_first();
        }
        called.await?;
        delete(&mut kv, &key, revision).await
    }
}
