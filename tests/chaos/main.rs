//! Chaos: workers in processes of their own, three real members, and everything that can go wrong between them.
//!
//! `members` strikes at the members and the lines between them, `workers` at the workers and their lines, both at once.
//! `worker` is what a service does, now and then carelessly. `book` is the resource that they write to, and knows who
//! held what when; `stage` sets all this up, and says in one line how it went.
//!
//! `CHAOS_SECONDS=60 CHAOS_SEED=7 cargo nextest run --test chaos --no-capture` shows that line. The seed decides which
//! faults come in which order; what they meet is as real as the machine, so it does not tell the same story again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says how it went"
)]
#![allow(
    unreachable_pub,
    reason = "`pub` here is for the modules of this one binary"
)]

mod book;
mod members;
mod stage;
#[path = "../suite/support/mod.rs"]
mod support;
mod worker;
mod workers;

use std::time::Duration;

use crate::stage::Stage;
use crate::support::{env, role};

/// How long it lasts unless asked otherwise.
const USUALLY: u64 = 15;

#[tokio::test(flavor = "multi_thread")]
async fn no_promise_is_broken_and_everybody_goes_on() {
    if role().is_some() {
        return worker::work().await;
    }
    let seconds = Duration::from_secs(env("CHAOS_SECONDS").unwrap_or(USUALLY));
    let seed = env("CHAOS_SEED").unwrap_or(1);
    let mut stage = Stage::set(no_promise_is_broken_and_everybody_goes_on).await;
    Box::pin(stage.trouble(seed, seconds)).await;
    stage.calm().await;
    println!("chaos of {seconds:?} with seed {seed}: {}", stage.report());
    stage.check();
}
