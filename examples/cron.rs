//! One run per tick: every instance wakes at every tick, one of them runs the job, the others skip it and say why.
//!
//! ```text
//! ci/with-etcd cargo run --example cron
//! ```
//!
//! shows it with three processes and five ticks, two seconds apart. In the third tick, the one that runs is killed
//! (SIGKILL), and another takes the tick over. It fails unless every tick has run exactly once to its end.
#![allow(clippy::print_stdout, reason = "the output is the point")]

mod children;
#[path = "cron/demo.rs"]
mod demo;

use children::{Result, told_to_end};
use etcd_lock::scheduler::{Tick, TickOutcome};
use etcd_lock::{Hold, Session};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

const EVERY: Duration = Duration::from_secs(2);
const TICKS: u64 = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let run = async {
        match &args[..] {
            [name, first] => instance(name, first.parse()?).await,
            _ => demo::show().await,
        }
    };
    tokio::select! { done = run => done, () = told_to_end() => Err("told to end".into()) }
}

/// One instance: asks for the run at every tick. `first` is in seconds since 1970.
async fn instance(name: &str, first: u64) -> Result<()> {
    let endpoints = std::env::var("ETCD_ENDPOINTS").map_err(|_| "please set ETCD_ENDPOINTS")?;
    let client = etcd_lock::connect(endpoints.split(',').collect::<Vec<_>>(), None).await?;
    let session = Session::builder(client)
        .ttl(EVERY)
        .label(name)
        .open()
        .await?;
    for n in 0..TICKS {
        let planned = first + n * EVERY.as_secs();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(planned);
        sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let label = label(planned);
        let tick = Tick::new(&session, "examples/cron", &label)?.keep_for(Duration::from_secs(60));
        let mut outcome = tick.run(job).await?;
        if let TickOutcome::Elsewhere(holder) = &outcome {
            println!("{label} {name} skips, it runs on {}", holder.label);
            // Could be all. But if that one dies, somebody else is to take over.
            outcome = tick.run_or_stand_by(job).await?;
        }
        match outcome {
            TickOutcome::Ran(record) => println!("{label} {name} has done it: {}", record.result),
            TickOutcome::Over(record) => println!("{label} {name} sees it done by {}", record.by),
            other => println!("{label} {name} gives up: {other:?}"),
        }
    }
    session.close().await?;
    Ok(())
}

/// What all call this tick, whenever they come to ask for it: the time for which it was planned.
fn label(planned: u64) -> String {
    let (hours, minutes, seconds) = (planned / 3600 % 24, planned / 60 % 60, planned % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// The job. What it writes, it writes with the token.
async fn job(turn: &Hold) -> Result<String> {
    let label = turn.name().rsplit('/').next().unwrap_or_default();
    println!("{label} process {} begins", std::process::id());
    sleep(Duration::from_millis(700)).await;
    Ok(format!("fenced with token {}", turn.token()))
}
