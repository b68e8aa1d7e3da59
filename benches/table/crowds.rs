//! Ten thousand locks held by one session, and as many waiters in another.

use crate::bare::{lease, put};
use crate::measure::memory;
use crate::support::open_streams;
use crate::table::Table;
use crate::{Result, server};
use etcd_lock::etcd_client::{Client, GetOptions};
use etcd_lock::{LockGuard, Mutex, Session};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MANY: u32 = 10_000;
const ROUNDS: usize = 5;
/// So many are taken at once where memory is measured.
const SOME: usize = 500;
/// So many bare puts are under way at once. etcd refuses requests while 5,000 are committed and not applied yet, and
/// nobody tries these again.
const BARE: usize = 4_000;
const CROWD: &str = "bench/crowd/";

type Waits = JoinSet<etcd_lock::Result<LockGuard>>;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Ten thousand in one process (our connection)");
    let client = server::theirs().await?;
    let [holder, waiter] = [session().await?, session().await?];
    memories(table, &client, &holder, &waiter).await?;
    let [mut bare, mut taken, mut joined] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let lease = puts(&client).await?;
        bare.push(rate(begun));
        client.lease_client().revoke(lease).await?;
        let begun = Instant::now();
        let guards = take(&holder).await?;
        taken.push(rate(begun));
        let begun = Instant::now();
        let waits = wait(&waiter)?;
        stand(&client, 2 * MANY).await?;
        joined.push(rate(begun));
        end(&client, guards, waits).await?;
    }
    let bare: &[(&str, &[f64])] = &[("bare put", &bare)];
    table.row("locks taken", "/s", &taken, bare, ">= 1");
    table.row("waiters joined", "/s", &joined, bare, ">= 1");
    waiter.close().await?;
    holder.close().await?;
    Ok(())
}

/// What a lock and a waiter take, besides what taking thousands at the same moment does for that moment. First, as what
/// this process has used and given back would hide it.
async fn memories(
    table: &mut Table,
    client: &Client,
    holder: &Session,
    waiter: &Session,
) -> Result<()> {
    let mutexes: Vec<_> = mutexes(holder).collect::<Result<_, _>>()?;
    let before = memory()?;
    let some = stream::iter(&mutexes).map(Mutex::lock);
    let guards: Vec<_> = some.buffer_unordered(SOME).try_collect().await?;
    // Holds that last are watched.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = (memory()? - before) / f64::from(MANY);
    table.figure("memory of each lock held", "B", each, "<= 2048");
    let before = memory()?;
    let waits = wait(waiter)?;
    stand(client, 2 * MANY).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let each = (memory()? - before) / f64::from(MANY);
    table.figure("memory of each waiter", "B", each, "<= 4096");
    let page = server::page().await?;
    let streams = open_streams(&page, "Watch") + open_streams(&page, "LeaseKeepAlive");
    table.figure("streams of both sessions together", "", streams, "<= 6");
    end(client, guards, waits).await
}

async fn session() -> Result<Session> {
    let builder = Session::builder(server::ours().await?);
    Ok(builder.ttl(Duration::from_secs(60)).open().await?)
}

fn mutexes(session: &Session) -> impl Iterator<Item = etcd_lock::Result<Mutex>> {
    (0..MANY).map(|i| Mutex::new(session, &format!("{CROWD}{i}")))
}

async fn puts(client: &Client) -> Result<i64> {
    let lease = lease(client).await?;
    let puts = (0..MANY).map(|i| {
        let client = client.clone();
        async move { put(&mut client.kv_client(), &format!("bench/puts/{i}"), lease).await }
    });
    let puts = stream::iter(puts).buffer_unordered(BARE);
    puts.try_for_each(async |_revision| Ok(())).await?;
    Ok(lease)
}

async fn take(session: &Session) -> Result<Vec<LockGuard>> {
    let mutexes: Vec<_> = mutexes(session).collect::<Result<_, _>>()?;
    Ok(try_join_all(mutexes.iter().map(Mutex::lock)).await?)
}

fn wait(session: &Session) -> Result<Waits> {
    let mut waits = JoinSet::new();
    for mutex in mutexes(session) {
        waits.spawn(mutex?.lock());
    }
    Ok(waits)
}

/// Waits until so many keys stand. Seldom, as counting them costs etcd some milliseconds.
async fn stand(client: &Client, wanted: u32) -> Result<()> {
    let options = || Some(GetOptions::new().with_prefix().with_count_only());
    let mut kv = client.kv_client();
    while kv.get(CROWD, options()).await?.count() != i64::from(wanted) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn end(client: &Client, guards: Vec<LockGuard>, mut waits: Waits) -> Result<()> {
    waits.shutdown().await;
    stand(client, MANY).await?;
    join_all(guards.into_iter().map(LockGuard::release)).await;
    stand(client, 0).await
}

fn rate(begun: Instant) -> f64 {
    f64::from(MANY) / begun.elapsed().as_secs_f64()
}
