//! Frank advice: whether to lock at all, and what to expect if you do.
//!
//! 1. [`need`]: do I need a lock? What else there is, and what a lock is good for.
//! 2. [`ttl`]: choosing a TTL, and a margin.
//! 3. [`faults`]: what happens when… to the holder, to those who wait, and to the resource.
//! 4. [`fencing`]: the token in practice: in SQL, in Rust, in etcd, and where nobody can check it.
//! 5. [`operating`]: who holds, breaking a lock, permissions, upgrades, restores.
//! 6. [`watching`]: metrics, alerts, traces, and why a lock was lost.
//! 7. [`migrating`]: from Go's `concurrency` package, from etcd's own lock, from Redis.
//!
//! What it claims is tested, or says where it is from. A name like
//! `contract::line::a_busy_try_tells_who_holds` is that of a test in `tests/suite`, run on real
//! etcd servers of the series 3.4 and 3.5; `cargo nextest run -E 'test(=NAME)'` runs it. What a file
//! of `examples/patterns` shows is checked, too, on SQLite and PostgreSQL:
//! `ci/with-postgres ci/with-etcd cargo run --example patterns`.

#[doc = include_str!("faults.md")]
pub mod faults {}
#[doc = include_str!("fencing.md")]
pub mod fencing {}
#[doc = include_str!("migrating.md")]
pub mod migrating {}
#[doc = include_str!("need.md")]
pub mod need {}
#[doc = include_str!("operating.md")]
pub mod operating {}
#[doc = include_str!("ttl.md")]
pub mod ttl {}
#[doc = include_str!("watching.md")]
pub mod watching {}
