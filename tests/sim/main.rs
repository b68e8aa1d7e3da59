//! The library in a simulated world: clients, clocks and an etcd in one thread, without sockets.
//!
//! `model` is an etcd in memory, `wire` lets the real etcd-client talk to it. `agrees` compares
//! the model with real servers. In `world`, everything that happens follows from one seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and then tells its story"
)]
#![allow(
    unreachable_pub,
    reason = "`pub` here is for the modules of this one binary"
)]

mod agrees;
mod model;
mod scripted;
mod server;
#[path = "../suite/support/mod.rs"]
mod support;
mod tell;
mod wire;
mod world;
