//! etcd's leader is killed under waiters who pass a lock on.

use crate::Result;
use crate::bare::{lease, server_lock};
use crate::support::Cluster;
use crate::table::Table;
use etcd_lock::{Mutex, Session};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const ROUNDS: usize = 5;
const WAITERS: usize = 8;

/// When the lock was got.
type Got = Arc<StdMutex<Vec<Instant>>>;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("etcd's leader killed: from the election of the next to the next lock()");
    let cluster = Cluster::start(3).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // A lock of its own each time: what the last round has left there would be in the way.
        let name = format!("failover/{round}");
        ours.push(kill_under(&cluster, our_waiters(&cluster, &name).await?).await?);
        theirs.push(kill_under(&cluster, their_waiters(&cluster, &name).await?).await?);
    }
    table.row(
        "8 waiters, held for no time",
        "s",
        &ours,
        &[("lock()", &theirs)],
        "<= 0.7 s",
    );
    Ok(())
}

/// Seconds until somebody got the lock after the next leader was elected.
async fn kill_under(cluster: &Cluster, (waiters, got): (JoinSet<()>, Got)) -> Result<f64> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let leader = cluster.leader_index().await;
    cluster.members[leader].kill();
    cluster.leader_index().await;
    let elected = Instant::now();
    let next = loop {
        let next = got.lock().ok().and_then(|got| got.last().copied());
        if let Some(next) = next.filter(|next| *next > elected) {
            break next - elected;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    drop(waiters);
    cluster.members[leader].restart().await;
    Ok(next.as_secs_f64())
}

async fn our_waiters(cluster: &Cluster, name: &str) -> Result<(JoinSet<()>, Got)> {
    let (mut waiters, got) = (JoinSet::new(), Got::default());
    for _ in 0..WAITERS {
        let session = Session::open(etcd_lock::connect(cluster.endpoints(), None).await?).await?;
        let mutex = Mutex::new(&session, &format!("ours/{name}"))?;
        let got = got.clone();
        waiters.spawn(async move {
            let _session = session;
            while let Ok(guard) = mutex.lock().await {
                note(&got);
                guard.release().await.ok();
            }
        });
    }
    Ok((waiters, got))
}

async fn their_waiters(cluster: &Cluster, name: &str) -> Result<(JoinSet<()>, Got)> {
    let (mut waiters, got) = (JoinSet::new(), Got::default());
    for _ in 0..WAITERS {
        let client = cluster.client().await;
        let lease = lease(&client).await?;
        let (got, name) = (got.clone(), format!("theirs/{name}"));
        waiters.spawn(async move {
            loop {
                if let Ok(key) = server_lock(client.clone(), &name, lease).await {
                    note(&got);
                    client.lock_client().unlock(key).await.ok();
                }
            }
        });
    }
    Ok((waiters, got))
}

fn note(got: &Got) {
    if let Ok(mut got) = got.lock() {
        got.push(Instant::now());
    }
}
