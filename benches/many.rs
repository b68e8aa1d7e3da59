//! Many locks of one process, each task with a lock of its own: lock + release a second, beside
//! the bare pair of transactions for each. Both through the same client, in turns; medians. With
//! many tasks the changes that queue up ride together, which the bare pairs do not.
//!
//! Run with `ci/with-etcd cargo bench --bench many`.

#![allow(clippy::print_stdout, reason = "the output is the point")]

mod common;

use common::{Result, connect, delete, median, per_second, put};
use etcd_lock::{Mutex, Session};
use std::time::Duration;

const ROUNDS: usize = 5;
const MOST: usize = 512;
const ROUND: Duration = Duration::from_millis(1500);

#[tokio::main]
async fn main() -> Result<()> {
    let client = connect().await?;
    let session = Session::open(client.clone()).await?;
    let lease = session.lease_id();
    let mutexes: Vec<Mutex> = (0..MOST)
        .map(|i| Mutex::new(&session, &format!("bench/ours/{i}")))
        .collect::<Result<_, _>>()?;
    let keys: Vec<String> = (0..MOST).map(|i| format!("bench/bare/{i}/key")).collect();
    println!("tasks   this crate   bare limit   ratio");
    for n in [1, 64, MOST] {
        let (mut ours, mut limit) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let pair = async |i: usize| Ok(mutexes[i].lock().await?.release().await?);
            ours.push(per_second(n, ROUND, pair).await?);
            let pair = async |i: usize| {
                let (mut kv, key) = (client.kv_client(), &keys[i]);
                let revision = put(&mut kv, key, lease).await?;
                delete(&mut kv, key, revision).await
            };
            limit.push(per_second(n, ROUND, pair).await?);
        }
        let (ours, limit) = (median(ours), median(limit));
        let ratio = ours / limit;
        println!("{n:>5}   {ours:>8.0}/s   {limit:>8.0}/s   {ratio:>5.2}");
    }
    session.close().await?;
    Ok(())
}
