//! Many locks, each task with one of its own. Each round begins on an etcd that has no past.

use crate::bare::{lease, pair};
use crate::measure::{cpu, per_second};
use crate::table::Table;
use crate::{Result, server};
use etcd_lock::{Mutex, Session};
use std::time::Duration;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
const MOST: usize = 512;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Many locks, each task with one of its own: lock and release");
    let client = server::theirs().await?;
    let sessions = [
        Session::open(client.clone()).await?,
        Session::open(server::ours().await?).await?,
    ];
    let lease = lease(&client).await?;
    let mutexes = |session, name| -> Result<Vec<Mutex>> {
        let all = (0..MOST).map(|i| Mutex::new(session, &format!("bench/{name}/{i}")));
        Ok(all.collect::<Result<_, _>>()?)
    };
    let (same, own) = (
        mutexes(&sessions[0], "same")?,
        mutexes(&sessions[1], "own")?,
    );
    let keys: Vec<String> = (0..MOST).map(|i| format!("bench/bare/{i}/key")).collect();
    for (n, target) in [(1, ">= 0.95"), (64, ">= 2"), (MOST, ">= 4")] {
        let (mut rounds, mut cpus) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
        for _ in 0..ROUNDS {
            for (who, mutexes) in [&same, &own].into_iter().enumerate() {
                let section = async |i: usize| Ok(mutexes[i].lock().await?.release().await?);
                server::compact(&client).await?;
                let before = cpu()?;
                let rate = per_second(n, ROUND, section).await?;
                rounds[who].push(rate);
                cpus[who].push(each(cpu()? - before, rate));
            }
            let section = async |i: usize| pair(&client, &keys[i], lease).await;
            server::compact(&client).await?;
            let before = cpu()?;
            let rate = per_second(n, ROUND, section).await?;
            rounds[2].push(rate);
            cpus[2].push(each(cpu()? - before, rate));
        }
        for (rounds, what, unit, target) in [
            (rounds, "", "/s", target),
            (cpus, ", client's CPU", "us", "< 1 at 512"),
        ] {
            let [same, own, bare] = rounds;
            let bare: &[(&str, &[f64])] = &[("bare", &bare)];
            let what = |connection| format!("{n} tasks, {connection} connection{what}");
            table.row(&what("etcd-client's"), unit, &same, bare, target);
            table.row(&what("our"), unit, &own, bare, target);
        }
    }
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}

/// Microseconds of a core for each.
fn each(cpu: f64, rate: f64) -> f64 {
    cpu * 1e6 / (rate * ROUND.as_secs_f64())
}
