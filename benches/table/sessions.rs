//! One lock, held for no time, that many sessions want, as in as many processes: each has a connection of its own.

use crate::bare::{lease, server_lock};
use crate::measure::per_second;
use crate::table::Table;
use crate::{Result, server};
use etcd_lock::{Mutex, Session};
use std::time::Duration;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Critical sections of many sessions with one contender each (our connections)");
    let client = server::theirs().await?;
    for n in [16, 64, 256] {
        let (mut mutexes, mut leases) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let session = Session::open(server::ours().await?).await?;
            mutexes.push(Mutex::new(&session, "bench/sessions")?);
            leases.push(lease(&client).await?);
        }
        let mut rounds = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            let before = events().await?;
            let section = async |i: usize| Ok(mutexes[i].lock().await?.release().await?);
            let rate = per_second(n, ROUND, section).await?;
            rounds[0].push(rate);
            rounds[1].push((events().await? - before) / (rate * ROUND.as_secs_f64()));
            let section = async |i: usize| {
                let key = server_lock(client.clone(), "bench/server", leases[i]).await?;
                client.lock_client().unlock(key).await?;
                Ok(())
            };
            rounds[2].push(per_second(n, ROUND, section).await?);
        }
        let [ours, events, lock] = rounds;
        let rivals: &[(&str, &[f64])] = &[("lock()", &lock)];
        table.row(&format!("{n} sessions"), "/s", &ours, rivals, "> 1");
        table.row("watch events each", "", &events, &[], "");
    }
    Ok(())
}

/// What the server has told its watchers.
async fn events() -> Result<f64> {
    server::metric("etcd_debugging_mvcc_events_total").await
}
