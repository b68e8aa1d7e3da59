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
//! The etcd is compacted while that goes on. Use one that nobody needs.
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
mod sessions;
mod table;
mod uncontended;

#[path = "../../tests/suite/support/mod.rs"]
mod support;

use table::Table;

/// In this order: `crowds` measures memory, which must not have been used by others before.
const ROOMS: [&str; 9] = [
    "crowds",
    "uncontended",
    "contended",
    "processes",
    "sessions",
    "handover",
    "many",
    "failover",
    "outage",
];

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
    if let Some(unknown) = wanted
        .iter()
        .find(|wanted| !ROOMS.contains(&wanted.as_str()))
    {
        return Err(format!(
            "no room is named {unknown:?}; there are {}",
            ROOMS.join(", ")
        )
        .into());
    }
    let mut table = Table::default();
    for room in ROOMS {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| *wanted == room) {
            continue;
        }
        match room {
            "crowds" => crowds::measure(&mut table).await?,
            "uncontended" => uncontended::measure(&mut table).await?,
            "contended" => contended::measure(&mut table).await?,
            "processes" => processes::measure(&mut table).await?,
            "sessions" => sessions::measure(&mut table).await?,
            "handover" => handover::measure(&mut table).await?,
            "many" => many::measure(&mut table).await?,
            "failover" => failover::measure(&mut table).await?,
            "outage" => outage::measure(&mut table).await?,
            other => unreachable!("{other}"),
        }
    }
    table.save()
}
