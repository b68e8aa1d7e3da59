//! What this crate costs and what it makes, beside what else there is, in one table.
//!
//! `ci/with-etcd cargo bench` measures everything, in some eight minutes on two cores; `ci/with-etcd cargo bench --
//! contended many` some of it. Every figure stands beside its rivals of the same run: who is measured takes turns
//! with them, five times at least; shown are the medians, and the ratios with their range over the rounds, which is
//! how much this machine trembles. What the chart is drawn from is left in `target/bench.json`.
//!
//! - **bare**: the fewest transactions conceivable for it, over etcd-client's own connection, and nothing that makes a
//!   lock safe: no renewal, no clean-up, no second try.
//! - **`lock()`**: etcd's own lock, as etcd-client offers it.
//!
//! "Our connection" is that of `etcd_lock::connect`; everything else goes over etcd-client's own.

#![allow(clippy::print_stdout, reason = "the output is the point")]
#![allow(unreachable_pub, reason = "nothing reaches out of a bench")]
#![allow(clippy::large_futures, reason = "there is one of each")]

mod bare;
mod contended;
mod crowds;
mod failover;
mod handover;
mod many;
mod measure;
mod outage;
mod processes;
mod server;
mod table;
mod uncontended;

#[path = "../../tests/suite/support/mod.rs"]
mod support;

use table::Table;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [role, rest @ ..] = &args[..]
        && role == processes::ROLE
    {
        return processes::contend(rest).await;
    }
    let wanted: Vec<_> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wants = |room: &str| wanted.is_empty() || wanted.iter().any(|wanted| *wanted == room);
    let mut table = Table::default();
    if wants("uncontended") {
        uncontended::measure(&mut table).await?;
    }
    if wants("contended") {
        contended::measure(&mut table).await?;
    }
    if wants("processes") {
        processes::measure(&mut table).await?;
    }
    if wants("handover") {
        handover::measure(&mut table).await?;
    }
    if wants("many") {
        many::measure(&mut table).await?;
    }
    if wants("crowds") {
        crowds::measure(&mut table).await?;
    }
    if wants("failover") {
        failover::measure(&mut table).await?;
    }
    if wants("outage") {
        outage::measure(&mut table).await?;
    }
    table.save()
}
