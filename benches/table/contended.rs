//! One lock, held for no time, that everybody in this process wants.

use crate::bare::{Line, lease, server_lock};
use crate::measure::per_second;
use crate::table::Table;
use crate::{Result, server};
use etcd_lock::{Mutex, Session};
use std::time::Duration;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);
const MOST: usize = 1000;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Critical sections on one lock that is held for no time");
    let client = server::theirs().await?;
    let sessions = [
        Session::open(client.clone()).await?,
        Session::open(server::ours().await?).await?,
    ];
    let same = Mutex::new(&sessions[0], "bench/same")?;
    let own = Mutex::new(&sessions[1], "bench/own")?;
    let bare = Line::follow(client.clone()).await?;
    // etcd's own lock tells its clients apart by their leases alone.
    let mut leases = Vec::new();
    for _ in 0..MOST {
        leases.push(lease(&client).await?);
    }
    for (n, target) in [
        (2, ">= 0.85, >= 40"),
        (16, ">= 0.85, >= 12"),
        (128, ">= 0.85"),
        (MOST, ">= 0.85"),
    ] {
        let mut rounds = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let section = async |_| Ok(same.lock().await?.release().await?);
            rounds[0].push(per_second(n, ROUND, section).await?);
            let section = async |_| Ok(own.lock().await?.release().await?);
            rounds[1].push(per_second(n, ROUND, section).await?);
            let section = async |i: usize| bare.release(bare.lock(&i.to_string()).await?).await;
            rounds[2].push(per_second(n, ROUND, section).await?);
            let section = async |i: usize| {
                let key = server_lock(client.clone(), "bench/server", leases[i]).await?;
                client.lock_client().unlock(key).await?;
                Ok(())
            };
            rounds[3].push(per_second(n, ROUND, section).await?);
        }
        let [same, own, bare, lock] = rounds;
        let rivals: &[(&str, &[f64])] = &[("bare", &bare), ("lock()", &lock)];
        let what = |connection| format!("{n} contenders, {connection} connection");
        table.row(&what("etcd-client's"), "/s", &same, rivals, target);
        table.row(&what("our"), "/s", &own, rivals, target);
    }
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}
