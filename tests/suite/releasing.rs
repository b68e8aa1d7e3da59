//! Giving up a lock.
//!
//! - `confirmed`: what a release promises and says: before, over broken lines, after a loss (scenarios 36-38, 40-42).
//! - `dropped`: guards dropped in odd places, and whole processes and runtimes that go (scenarios 39, 43; R9).

mod confirmed;
mod dropped;
