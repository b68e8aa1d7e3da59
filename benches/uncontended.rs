//! Lock + release of a free lock beside the least that can be asked of etcd for it: a
//! transaction that puts a leased key, and one that deletes it guarded by its create revision.
//! Both through the same client, in turns; the medians' ratio is the figure.
//!
//! Run with `ci/with-etcd cargo bench --bench uncontended`.

#![allow(clippy::print_stdout, reason = "the output is the point")]

use etcd_lock::etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use etcd_lock::{Mutex, Session};
use std::time::{Duration, Instant};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const ROUNDS: usize = 21;
const PAIRS: usize = 200;

#[tokio::main]
async fn main() -> Result<()> {
    let endpoints = std::env::var("ETCD_ENDPOINTS")
        .map_err(|_| "no ETCD_ENDPOINTS; run this through ci/with-etcd")?;
    let endpoints: Vec<&str> = endpoints.split(',').collect();
    let client = Client::connect(endpoints, None).await?;
    let session = Session::open(client.clone()).await?;
    let mutex = Mutex::new(&session, "bench/ours")?;
    let bare = Bare {
        lease: session.lease_id(),
        client,
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        // One pair of each in turns, so that what disturbs one disturbs the other.
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let start = Instant::now();
            mutex.lock().await?.release().await?;
            a.push(start.elapsed());
            let start = Instant::now();
            bare.pair().await?;
            b.push(start.elapsed());
        }
        if round > 0 {
            ours.push(median(&mut a));
            theirs.push(median(&mut b));
        }
    }
    let ratios: Vec<f64> = ours
        .iter()
        .zip(&theirs)
        .map(|(a, b)| a.as_secs_f64() / b.as_secs_f64())
        .collect();
    let (low, high) = ratios.iter().fold((f64::MAX, 0_f64), |(low, high), r| {
        (low.min(*r), high.max(*r))
    });
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!("lock + release        {ours:>10.1?}");
    println!("put + guarded delete  {theirs:>10.1?}");
    println!(
        "ratio                 {:>10.3}   ({low:.3} to {high:.3} in {ROUNDS} rounds of {PAIRS})",
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
    session.close().await?;
    Ok(())
}

/// The bare pair: no safety, just the two transactions.
struct Bare {
    client: Client,
    lease: i64,
}

impl Bare {
    async fn pair(&self) -> Result<()> {
        let key = "bench/bare/key";
        let mut kv = self.client.kv_client();
        let leased = PutOptions::new().with_lease(self.lease);
        let put = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, "", Some(leased))]);
        let answer = kv.txn(put).await?;
        let revision = answer.header().ok_or("no header")?.revision();
        let delete = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, revision)])
            .and_then([TxnOp::delete(key, None)]);
        kv.txn(delete).await?;
        Ok(())
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
