//! The suite: every promise of the crate on real etcd servers.
//!
//! Each test starts servers of its own (`support::etcd`) and its name is a claim. A file holds
//! what one promise needs; faults are made by signals to etcd and to ourselves, and by a byte
//! proxy between client and server (`support::proxy`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod api;
mod breaking;
mod cancellation;
#[cfg(feature = "cli")]
mod command;
mod contract;
mod election;
mod election_faults;
mod election_interop;
mod election_kills;
mod election_outages;
mod guarded;
mod guide;
mod harness;
mod identity;
mod input;
mod interop;
mod leading;
mod leading_faults;
mod leading_progress;
mod losing;
mod losing_process;
mod losing_restore;
mod members;
mod migrating;
mod misuse;
mod observer;
mod observer_faults;
mod operating;
mod overlap;
mod releasing;
mod renewing;
mod reports;
mod riding;
mod scale;
mod support;
mod tick;
mod tick_faults;
mod traces;
#[cfg(feature = "tls")]
mod transport;
mod waiting;
mod waiting_faults;
mod watching;
mod watching_files;
