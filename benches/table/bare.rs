//! The limits: what etcd has to be asked at least, and nothing that makes a lock safe.

use crate::Result;
use etcd_lock::etcd_client::{
    Client, Compare, CompareOp, EventType, KvClient, LockOptions, PutOptions, Txn, TxnOp,
    WatchOptions,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Puts a leased key that is not there; gives its create revision.
pub async fn put(kv: &mut KvClient, key: &str, lease: i64) -> Result<i64> {
    let leased = PutOptions::new().with_lease(lease);
    let put = Txn::new()
        .when([Compare::create_revision(key, CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key, "", Some(leased))]);
    let answer = kv.txn(put).await?;
    Ok(answer.header().ok_or("no header")?.revision())
}

/// Deletes a key, if it still is the one of that create revision.
pub async fn delete(kv: &mut KvClient, key: &str, revision: i64) -> Result<()> {
    let delete = Txn::new()
        .when([Compare::create_revision(key, CompareOp::Equal, revision)])
        .and_then([TxnOp::delete(key, None)]);
    kv.txn(delete).await?;
    Ok(())
}

/// Both: the limit for a lock that nobody else wants.
pub async fn pair(client: &Client, key: &str, lease: i64) -> Result<()> {
    let mut kv = client.kv_client();
    let revision = put(&mut kv, key, lease).await?;
    delete(&mut kv, key, revision).await
}

/// A lease that outlives every bench.
pub async fn lease(client: &Client) -> Result<i64> {
    Ok(client.lease_client().grant(600, None).await?.id())
}

/// etcd's own lock, by whoever has this lease: the server waits in line for its client.
pub async fn server_lock(mut client: Client, name: &str, lease: i64) -> Result<Vec<u8>> {
    let options = LockOptions::new().with_lease(lease);
    let locked = client.lock(name, Some(options)).await?;
    Ok(locked.key().to_vec())
}

/// The limit for a lock that many want: one watch on the whole line, which is kept in memory, and nothing is ever
/// looked at again.
pub struct Line {
    client: Client,
    lease: i64,
    queue: Arc<Mutex<Queue>>,
    _follower: JoinSet<()>,
}

/// The key of who has its turn.
pub struct Turn(String, i64);

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

impl Line {
    pub async fn follow(client: Client) -> Result<Self> {
        let lease = lease(&client).await?;
        let queue = Arc::<Mutex<Queue>>::default();
        let prefix = WatchOptions::new().with_prefix();
        let mut watches = client.watch_client();
        let mut watch = watches.watch("bench/bare/", Some(prefix)).await?;
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

    /// The names of contenders are theirs in all processes.
    pub async fn lock(&self, contender: &str) -> Result<Turn> {
        let key = format!("bench/bare/{contender}");
        let revision = put(&mut self.client.kv_client(), &key, self.lease).await?;
        let (turn, called) = oneshot::channel();
        if let Ok(mut queue) = self.queue.lock() {
            queue.waiting.insert(revision, turn);
            queue.call_first();
        }
        called.await?;
        Ok(Turn(key, revision))
    }

    pub async fn release(&self, Turn(key, revision): Turn) -> Result<()> {
        delete(&mut self.client.kv_client(), &key, revision).await
    }
}
