//! Lock + release of a free lock beside the least that can be asked of etcd for it: a
//! transaction that puts a leased key, and one that deletes it guarded by its create revision.
//! Both through the same client, in turns; the medians' ratio is the figure.
//!
//! Run with `ci/with-etcd cargo bench --bench uncontended`.

#![allow(clippy::print_stdout, reason = "the output is the point")]

mod common;

use common::{Result, connect, delete, median, put};
use etcd_lock::{Mutex, Session};
use std::time::Instant;

const ROUNDS: usize = 21;
const PAIRS: usize = 200;

#[tokio::main]
async fn main() -> Result<()> {
    let client = connect().await?;
    let session = Session::open(client.clone()).await?;
    let mutex = Mutex::new(&session, "bench/ours")?;
    let (lease, key) = (session.lease_id(), "bench/bare/key");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        // One pair of each in turns, so that what disturbs one disturbs the other.
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let start = Instant::now();
            mutex.lock().await?.release().await?;
            a.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let mut kv = client.kv_client();
            let revision = put(&mut kv, key, lease).await?;
            delete(&mut kv, key, revision).await?;
            b.push(start.elapsed().as_secs_f64());
        }
        if round > 0 {
            ours.push(median(a));
            theirs.push(median(b));
        }
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
    let (low, high) = ratios.iter().fold((f64::MAX, 0_f64), |(low, high), r| {
        (low.min(*r), high.max(*r))
    });
    let (ours, theirs) = (median(ours) * 1e6, median(theirs) * 1e6);
    println!("lock + release        {ours:>10.1} us");
    println!("put + guarded delete  {theirs:>10.1} us");
    println!(
        "ratio                 {:>10.3}   ({low:.3} to {high:.3} in {ROUNDS} rounds of {PAIRS})",
        ours / theirs
    );
    session.close().await?;
    Ok(())
}
