//! Lock and release where nobody else wants the lock.
//!
//! Measured once besides, in turns: with three members on a disk a bare pair takes 3.4 ms; our connection 0.79 of
//! that, etcd-client's 0.98, Go's `concurrency.Mutex` 1.05. With one member in memory, 0.77, 1.06 and 1.01.

use crate::bare::{lease, pair};
use crate::support::Cluster;
use crate::table::{Table, median};
use crate::{Result, server};
use etcd_lock::etcd_client::Client;
use etcd_lock::{Mutex, Session};
use std::time::Instant;

const ROUNDS: usize = 11;
const PAIRS: usize = 200;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Lock and release, nobody else there");
    let (theirs, ours) = (server::theirs().await?, server::ours().await?);
    let [same, own, bare] = take_turns(&theirs, &ours).await?;
    table.row(
        "on etcd-client's connection",
        "us",
        &same,
        &[("bare", &bare)],
        "<= 1.03",
    );
    table.row(
        "on our connection",
        "us",
        &own,
        &[("bare", &bare)],
        "<= 0.90",
    );
    let cluster = Cluster::start(3).await;
    let ours = etcd_lock::connect(cluster.endpoints(), None).await?;
    let [same, own, bare] = take_turns(&cluster.client().await, &ours).await?;
    let bare: &[(&str, &[f64])] = &[("bare", &bare)];
    table.row(
        "three members, etcd-client's connection",
        "us",
        &same,
        bare,
        "<= 1.03",
    );
    table.row("three members, our connection", "us", &own, bare, "<= 0.90");
    Ok(())
}

/// The medians of each round, in microseconds: on their connection, on ours, and the bare pair. One of each in turns,
/// so that what disturbs one disturbs the others.
async fn take_turns(theirs: &Client, ours: &Client) -> Result<[Vec<f64>; 3]> {
    let lease = lease(theirs).await?;
    let sessions = [
        Session::open(theirs.clone()).await?,
        Session::open(ours.clone()).await?,
    ];
    let same = Mutex::new(&sessions[0], "bench/same")?;
    let own = Mutex::new(&sessions[1], "bench/own")?;
    let mut rounds = [const { Vec::new() }; 3];
    for round in 0..=ROUNDS {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..PAIRS {
            let begun = Instant::now();
            same.lock().await?.release().await?;
            times[0].push(begun.elapsed());
            let begun = Instant::now();
            own.lock().await?.release().await?;
            times[1].push(begun.elapsed());
            let begun = Instant::now();
            pair(theirs, "bench/bare/key", lease).await?;
            times[2].push(begun.elapsed());
        }
        // The first warms everything up.
        if round > 0 {
            for (rounds, times) in rounds.iter_mut().zip(times) {
                let times: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
                rounds.push(median(&times));
            }
        }
    }
    for session in sessions {
        session.close().await?;
    }
    Ok(rounds)
}
