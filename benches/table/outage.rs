//! A minute without etcd, under a thousand waiters.

use crate::Result;
use crate::measure::{cpu, memory};
use crate::support::{Etcd, keys};
use crate::table::Table;
use etcd_lock::{Mutex, Session};
use std::time::Duration;
use tokio::task::JoinSet;

const WAITERS: usize = 1000;
const OUTAGE: Duration = Duration::from_secs(60);

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("A minute without etcd, a thousand waiters (our connection)");
    let etcd = Etcd::start().await;
    let client = etcd_lock::connect([etcd.endpoint()], None).await?;
    // It outlives the outage, so they all go on waiting.
    let session = Session::builder(client).ttl(3 * OUTAGE).open().await?;
    let mutex = Mutex::new(&session, "outage")?;
    let guard = mutex.lock().await?;
    let mut waits = JoinSet::new();
    for _ in 0..WAITERS {
        waits.spawn(mutex.lock());
    }
    while keys(&etcd.client().await, "outage").await.len() <= WAITERS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    etcd.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (used, memory_then) = (cpu()?, memory()?);
    tokio::time::sleep(OUTAGE).await;
    let used = (cpu()? - used) / OUTAGE.as_secs_f64() * 100.0;
    table.figure("CPU", "%", used, "< 5");
    table.figure(
        "memory more than before",
        "KB",
        (memory()? - memory_then) / 1024.0,
        "none",
    );
    assert!(guard.is_held() && waits.try_join_next().is_none());
    Ok(())
}
