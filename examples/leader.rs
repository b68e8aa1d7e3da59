//! A service of which one instance leads and the others stand by.
//!
//! ```text
//! ci/with-etcd cargo run --example leader
//! ```
//!
//! shows it with three processes: the leader is told to end (SIGTERM) and the next leads at once; that one is
//! killed (SIGKILL) and the last leads within the TTL + 1 s; it ends by Ctrl-C (SIGINT). It fails if that is not so.
//!
//! By hand: `ci/with-etcd bash`, and in that shell several times `cargo run --example leader serve &`. `ps` shows
//! the processes; end the leading one as you like, with `kill`, `kill -KILL` or `fg` and Ctrl-C, and watch the others.
#![allow(clippy::print_stdout, reason = "the output is the point")]

mod children;

use children::{Children, Result, told_to_end};
use etcd_lock::Session;
use etcd_lock::scheduler::{Leading, Outcome, Term};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => serve().await,
        _ => {
            tokio::select! { shown = demo() => shown, () = told_to_end() => Err("told to end".into()) }
        }
    }
}

/// All it takes to have one leader.
async fn serve() -> Result<()> {
    let endpoints = std::env::var("ETCD_ENDPOINTS").map_err(|_| "please set ETCD_ENDPOINTS")?;
    let client = etcd_lock::connect(endpoints.split(',').collect::<Vec<_>>(), None).await?;
    let leading = Leading::new(Session::builder(client).ttl(TTL), "examples/leader")?
        .value(std::process::id().to_string());
    match leading.run(told_to_end(), lead).await {
        Outcome::Finished(()) | Outcome::ShutDown(_) => Ok(()),
        Outcome::Failed(error) => Err(error),
        Outcome::Refused(error) => Err(error.into()),
    }
}

/// The work. It is dropped if the leadership is lost, and told if the service is to end.
async fn lead(term: Term) -> Result<()> {
    println!("{} leads with token {}", std::process::id(), term.token());
    loop {
        tokio::select! {
            () = sleep(SECOND) => { /* one more step; what it writes carries the token */ }
            () = term.stopping() => return Ok(()),
        }
    }
}

/// Three of them, and what befalls each leader.
async fn demo() -> Result<()> {
    let mut services = Children::default();
    for _ in 0..3 {
        services.start(&["serve"])?;
    }
    let (mut leader, line) = services.next_line().await?;
    println!("{line}, two of {:?} stand by", services.pids());
    for (signal, name, bound) in [
        (Signal::TERM, "SIGTERM", SECOND),
        (Signal::KILL, "SIGKILL", TTL + SECOND),
    ] {
        sleep(SECOND).await;
        services.signal(leader, signal)?;
        let begun = Instant::now();
        let (next, line) = services.next_line().await?;
        let took = begun.elapsed();
        println!("{name} to {leader}; {} ms later {line}", took.as_millis());
        if took > bound {
            return Err(format!("that should have taken {bound:?} at the most").into());
        }
        leader = next;
    }
    services.signal(leader, Signal::INT)?;
    if !services.ended_well(leader).await? {
        return Err("the last should have ended well".into());
    }
    println!("SIGINT to {leader}; it has ended well");
    Ok(())
}
