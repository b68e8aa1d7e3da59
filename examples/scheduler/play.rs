//! The play: what befalls the schedulers, and the checks that what should follow did.

use super::cast::Cast;
use super::stage::{Holder, Stage, check};
use super::store::Server;
use super::{Result, TTL, connect};
use etcd_lock::etcd_client::{Client, GetOptions};
use rustix::process::Signal;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// A lost lock is taken over within this: etcd looks for expired leases every half second.
const TAKEOVER: Duration = TTL.saturating_add(Duration::from_secs(1));

/// Everything together takes a quarter of a minute or so.
const LIMIT: Duration = Duration::from_secs(40);

/// Shows all acts and clears up, whatever happened.
pub(crate) async fn show() -> Result<()> {
    let client = connect().await?;
    // A lock of this run only: others may show the same on the same etcd.
    let lock = format!("etcd-lock-example/{}", std::process::id());
    let store = Server::start()?;
    let mut stage = Stage::new(Cast::start(&lock, &store.address)?);
    let played = tokio::select! {
        played = play(&mut stage, &store) => played,
        interrupted = interrupted() => interrupted,
        () = sleep(LIMIT) => Err("what was to come next did not come".into()),
    };
    let seconds = stage.seconds(Instant::now());
    stage.cast.end().await;
    let cleared = nothing_is_left(client, &lock).await;
    played.and(cleared)?;
    println!("\nAll of it was seen in {seconds:.0} s, and nothing is left behind.");
    Ok(())
}

async fn play(stage: &mut Stage, store: &Server) -> Result<()> {
    println!("Three schedulers, one lock with a TTL of {TTL:?}; seconds since the start.");
    println!("\nThe crash");
    let second = crash(stage).await?;
    println!("\nThe pause");
    let third = pause(stage, store, &second).await?;
    println!("\nThe release");
    release(stage, &third).await?;
    println!("\nThe store");
    every_tick_once(store)
}

/// The holder dies. Gives who took over.
async fn crash(stage: &mut Stage) -> Result<Holder> {
    let first = stage.next_holder().await?;
    stage.until(&first.name, "wrote").await?;
    stage.until(&first.name, "wrote").await?;
    stage.until(&first.name, "works").await?;
    let killed = stage.signal(
        &first.name,
        Signal::KILL,
        "is killed while it works (SIGKILL)",
    )?;
    let second = stage.next_holder().await?;
    taken_over("the kill", killed, &first, &second)?;
    stage.until(&second.name, "wrote").await?;
    Ok(second)
}

/// The holder stands still for longer than the TTL and then writes. Gives who had taken over.
async fn pause(stage: &mut Stage, store: &Server, second: &Holder) -> Result<Holder> {
    let (tick, stopped) = stop_before_write(stage, store, &second.name).await?;
    let third = stage.next_holder().await?;
    taken_over("the stop", stopped, second, &third)?;
    stage.until(&third.name, "wrote").await?;
    stage.hear_until(stopped + TAKEOVER).await?;

    stage.signal(
        &second.name,
        Signal::CONT,
        "goes on as if nothing had happened (SIGCONT)",
    )?;
    stage.until(&second.name, "lost").await?;
    let refused = store.book().refused == [(tick, second.token)];
    check(
        refused,
        "the late write came, and the store knew by its token that it was late",
    )?;
    stage.until(&second.name, "waits").await?;
    Ok(third)
}

/// The holder leaves in good order.
async fn release(stage: &mut Stage, third: &Holder) -> Result<()> {
    stage.until(&third.name, "wrote").await?;
    stage.cast.tell_to_leave(&third.name);
    let left = stage.until(&third.name, "leaves").await?;
    let next = stage.next_holder().await?;
    let took = next.since.saturating_duration_since(left.at);
    let claim = format!(
        "handed over in {} ms, without waiting for a lease",
        took.as_millis()
    );
    check(took < TTL / 2, &claim)?;
    stage.until(&next.name, "wrote").await?;
    Ok(())
}

/// What it was all for.
fn every_tick_once(store: &Server) -> Result<()> {
    let book = store.book();
    let (ticks, tokens): (Vec<_>, Vec<_>) = book.written.iter().copied().unzip();
    let once = ticks.iter().zip(101..).all(|(tick, n)| *tick == n);
    check(
        once,
        &format!("each tick was written once and in order: {ticks:?}"),
    )?;
    check(
        tokens.is_sorted(),
        &format!("with tokens that only grow: {tokens:?}"),
    )
}

/// Stops a scheduler that has just asked whether it holds the lock, and is about to write.
async fn stop_before_write(stage: &mut Stage, store: &Server, who: &str) -> Result<(u64, Instant)> {
    loop {
        let tick = stage.until(who, "works").await?.what.parse()?;
        let line = format!("asked: it holds; is about to write tick {tick}; is stopped (SIGSTOP)");
        let stopped = stage.signal(who, Signal::STOP, &line)?;
        sleep(Duration::from_millis(100)).await; // a write that was under way has come by then
        if store
            .book()
            .written
            .last()
            .is_none_or(|(last, _)| *last < tick)
        {
            return Ok((tick, stopped));
        }
        stage.signal(who, Signal::CONT, "had just written and goes on; once more")?;
    }
}

fn taken_over(what: &str, at: Instant, old: &Holder, new: &Holder) -> Result<()> {
    let took = new.since.saturating_duration_since(at);
    let seconds = took.as_secs_f64();
    check(
        took <= TAKEOVER,
        &format!("taken over {seconds:.2} s after {what}, within TTL + 1 s"),
    )?;
    let claim = format!("token {} is larger than {}", new.token, old.token);
    check(new.token > old.token, &claim)
}

/// Waits for Ctrl-C or SIGTERM.
async fn interrupted() -> Result<()> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
    Err("interrupted".into())
}

/// Waits until no key of the lock is left: that of a killed scheduler goes with its lease.
async fn nothing_is_left(client: Client, lock: &str) -> Result<()> {
    let deadline = Instant::now() + TAKEOVER;
    loop {
        let count = GetOptions::new().with_prefix().with_count_only();
        let answer = client
            .kv_client()
            .get(format!("{lock}/"), Some(count))
            .await?;
        if answer.count() == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("keys are left behind {lock}/").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
}
