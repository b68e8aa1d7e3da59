//! Ten thousand locks held by one session, and as many waiters in another.

use crate::bare::{lease, put};
use crate::measure::memory;
use crate::support::open_streams;
use crate::table::Table;
use crate::{Result, server};
use etcd_lock::{Mutex, Session};
use futures_util::future::try_join_all;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MANY: u32 = 10_000;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Ten thousand in one process (our connection)");
    let client = server::theirs().await?;
    let lease = lease(&client).await?;
    let begun = Instant::now();
    let puts = (0..MANY).map(|i| {
        let client = client.clone();
        async move { put(&mut client.kv_client(), &format!("bench/puts/{i}"), lease).await }
    });
    try_join_all(puts).await?;
    let rate = |begun: Instant| f64::from(MANY) / begun.elapsed().as_secs_f64();
    let bare = rate(begun);
    client.lease_client().revoke(lease).await?;

    let holder = Session::builder(server::ours().await?)
        .ttl(Duration::from_secs(60))
        .open()
        .await?;
    let waiter = Session::builder(server::ours().await?)
        .ttl(Duration::from_secs(60))
        .open()
        .await?;
    let mutexes = |session: &Session| -> Result<Vec<Mutex>> {
        let all = (0..MANY).map(|i| Mutex::new(session, &format!("bench/crowd/{i}")));
        Ok(all.collect::<Result<_, _>>()?)
    };
    let before = memory()?;
    let begun = Instant::now();
    let guards = try_join_all(mutexes(&holder)?.into_iter().map(|mutex| mutex.lock())).await?;
    let held = rate(begun);
    // Holds that last are watched.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = (memory()? - before) / f64::from(MANY);
    table.row(
        "locks taken",
        "/s",
        &[held],
        &[("bare put", &[bare])],
        ">= 1",
    );
    table.figure("memory of each lock held", "B", each, "<= 2048");

    let before = memory()?;
    let begun = Instant::now();
    let mut waits = JoinSet::new();
    for mutex in mutexes(&waiter)? {
        waits.spawn(mutex.lock());
    }
    let all = f64::from(2 * MANY);
    while server::metric("etcd_debugging_mvcc_keys_total").await? < all {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    table.row(
        "waiters joined",
        "/s",
        &[rate(begun)],
        &[("bare put", &[bare])],
        ">= 1",
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    let each = (memory()? - before) / f64::from(MANY);
    table.figure("memory of each waiter", "B", each, "<= 4096");
    let page = server::page().await?;
    let streams = open_streams(&page, "Watch") + open_streams(&page, "LeaseKeepAlive");
    table.figure("streams of both sessions together", "", streams, "<= 6");
    drop(guards);
    waits.abort_all();
    waiter.close().await?;
    holder.close().await?;
    Ok(())
}
