//! What the tests stand on: real etcd processes, a line between that can fail, children that can be killed.
//!
//! Every test starts its own etcd; nothing outlives the test process, however it ends.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_debug_implementations,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a toolbox of tests: no test needs all of it, and what goes wrong in it must fail the test"
)]

mod auth;
mod client;
mod cluster;
mod env;
mod etcd;
mod etcdctl;
mod line;
mod links;
mod listener;
mod locks;
mod log;
mod metrics;
mod pki;
mod ports;
mod process;
mod proxy;
mod puppet;
mod rules;
mod scrape;
mod setup;
mod store;
mod wait;
mod waiting;

pub use self::{
    auth::Guarded,
    client::{connect, connect_with, scattering},
    cluster::Cluster,
    env::env,
    etcd::{Etcd, Member},
    etcdctl::{etcdctl, etcdctl_elect, etcdctl_lock, etcdctl_observe},
    links::Links,
    locks::{Turn, lost, mutex, session, wait_in_line},
    log::Log,
    metrics::{open_streams, page, sum},
    pki::{Pki, Signed},
    ports::{Port, listen},
    process::{Leashed, is_alive},
    proxy::Proxy,
    puppet::{Puppet, role, say},
    scrape::Exporter,
    setup::Setup,
    store::{keys, leases, unique},
    wait::{BOUND, ensure, soon, within},
    waiting::{Waiting, soon_keys, soon_nothing, waiter},
};
