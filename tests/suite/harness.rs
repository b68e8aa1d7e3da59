//! The harness keeps its own promises.
//!
//! - `servers`: members and clusters.
//! - `lines`: what is between clients and members, and between members.
//! - `children`: other processes, and waiting for them.

mod children;
mod lines;
mod servers;
