//! From the call that releases a lock to the return of the next one's `lock()`; what it costs the server.

use crate::bare::Line;
use crate::measure::per_second;
use crate::table::{Table, part};
use crate::{Result, server};
use etcd_lock::etcd_client::Client;
use etcd_lock::{Mutex, Session};
use futures_util::future::join_all;
use std::sync::Mutex as StdMutex;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
const LINE: usize = 1000;

pub async fn measure(table: &mut Table) -> Result<()> {
    table.title("Hand-over, from release() to the next lock() (our connection)");
    let session = Session::open(server::ours().await?).await?;
    let ours = Mutex::new(&session, "bench/handover")?;
    let bare = Line::follow(server::theirs().await?).await?;
    for n in [2, 128] {
        for hold in [Duration::ZERO, Duration::from_millis(20)] {
            let mut rounds = [const { Vec::new() }; 4];
            for _ in 0..ROUNDS {
                let times = Times::default();
                let section = async |_| {
                    let guard = ours.lock().await?;
                    times.got();
                    tokio::time::sleep(hold).await;
                    times.releases();
                    Ok(guard.release().await?)
                };
                per_second(n, ROUND, section).await?;
                let [half, most] = times.parts();
                rounds[0].push(half);
                rounds[2].push(most);
                let times = Times::default();
                let section = async |i: usize| {
                    let turn = bare.lock(&i.to_string()).await?;
                    times.got();
                    tokio::time::sleep(hold).await;
                    times.releases();
                    bare.release(turn).await
                };
                per_second(n, ROUND, section).await?;
                let [half, most] = times.parts();
                rounds[1].push(half);
                rounds[3].push(most);
            }
            let [half, bare_half, most, bare_most] = rounds;
            let what = format!("{n} contenders, held {} ms", hold.as_millis());
            let (bare_half, bare_most) = ([("bare", &*bare_half)], [("bare", &*bare_most)]);
            table.row(
                &format!("{what}, median"),
                "us",
                &half,
                &bare_half,
                "<= 1.3",
            );
            table.row(&format!("{what}, p99"), "us", &most, &bare_most, "<= 1.5");
        }
    }
    messages(table, &ours).await?;
    events(table, server::ours().await?).await?;
    Ok(session.close().await?)
}

/// When the lock was given up last, and how long each hand-over took, in microseconds.
#[derive(Default)]
struct Times(StdMutex<(Option<Instant>, Vec<f64>)>);

impl Times {
    fn releases(&self) {
        if let Ok(mut times) = self.0.lock() {
            times.0 = Some(Instant::now());
        }
    }

    fn got(&self) {
        if let Ok(mut times) = self.0.lock()
            && let Some(released) = times.0.take()
        {
            times.1.push(released.elapsed().as_secs_f64() * 1e6);
        }
    }

    /// The median, and what one of a hundred takes longer than.
    fn parts(self) -> [f64; 2] {
        let times = self.0.into_inner().unwrap_or_default().1;
        [part(&times, 50), part(&times, 99)]
    }
}

/// What the server is sent for each hand-over: requests, and messages on streams.
async fn messages(table: &mut Table, mutex: &Mutex) -> Result<()> {
    let sent = async || server::metric("grpc_server_msg_received_total").await;
    let (before, done) = (sent().await?, StdMutex::new(0.0));
    let section = async |_| {
        mutex.lock().await?.release().await?;
        if let Ok(mut done) = done.lock() {
            *done += 1.0;
        }
        Ok(())
    };
    per_second(128, ROUND, section).await?;
    let done = done.into_inner().unwrap_or_default();
    let each = (sent().await? - before) / done;
    table.figure(
        "messages to the server each, 128 contenders",
        "",
        each,
        "<= 2 + 3",
    );
    Ok(())
}

/// What the server tells of each release, with many in line.
async fn events(table: &mut Table, client: Client) -> Result<()> {
    let session = Session::open(client).await?;
    let mutex = Mutex::new(&session, "bench/events")?;
    let guard = mutex.lock().await?;
    let waits = (0..LINE).map(|_| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.lock().await?.release().await })
    });
    let waits: Vec<_> = waits.collect();
    while mutex.queue().await?.len() <= LINE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = async || server::metric("etcd_debugging_mvcc_events_total").await;
    let before = told().await?;
    guard.release().await?;
    for wait in join_all(waits).await {
        wait??;
    }
    #[allow(clippy::cast_precision_loss, reason = "a thousand")]
    let each = (told().await? - before) / (LINE + 1) as f64;
    table.figure("watch events each, 1,000 in line", "", each, "<= 10");
    Ok(session.close().await?)
}
