//! What the benches share: the client, the bare pair of transactions, and counting.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of each bench, none uses all of it"
)]

use etcd_lock::etcd_client::{Client, Compare, CompareOp, KvClient, PutOptions, Txn, TxnOp};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// A client of the etcd that `ci/with-etcd` has started.
pub async fn connect() -> Result<Client> {
    let endpoints = std::env::var("ETCD_ENDPOINTS")
        .map_err(|_| "no ETCD_ENDPOINTS; run this through ci/with-etcd")?;
    let endpoints: Vec<&str> = endpoints.split(',').collect();
    Ok(Client::connect(endpoints, None).await?)
}

/// Puts a leased key that is not there; gives its create revision. With [`delete`], the least that
/// can be asked of etcd for a lock: no safety, just the two transactions.
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

/// How often `n` contenders make their `section` in a second, all in this task, for `time`.
pub async fn per_second(
    n: usize,
    time: Duration,
    section: impl AsyncFn(usize) -> Result<()>,
) -> Result<f64> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let contender = async |i| -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            section(i).await?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let start = Instant::now();
    let all = futures_util::future::try_join_all((0..n).map(&contender));
    let (ended, ()) = tokio::join!(all, async {
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
    });
    ended?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let done = done.into_inner() as f64;
    Ok(done / start.elapsed().as_secs_f64())
}

pub fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}
