//! Distributed locks on etcd v3: first come first served, fenced, and told of their loss before
//! anybody else holds.
//!
//! # Do you need a lock at all?
//!
//! Often not. In a database, a unique key, a conditional update or a version column does better: no
//! TTL to choose, nothing to renew, and a process that is paused at the worst moment does no harm.
//!
//! A lock is for what is left: a job that should run in one place at a time, somebody else's
//! API, a file, a device. Then ask what happens if, once in a long while, two hold it at once:
//!
//! - **Efficiency**: work is done twice, a mail is sent twice. A lock is enough.
//! - **Correctness**: money or data is lost. Then no lock that can expire is enough, whoever made
//!   it ([Kleppmann 2016]). Let the lock keep the crowd away, and let the resource check the
//!   [fencing token](#the-fencing-token), a constraint or a version.
//!
//! The [guide] says more: [whether to lock](guide::need), [which TTL](guide::ttl), [what happens
//! when…](guide::faults), [fencing](guide::fencing), [operating](guide::operating),
//! [watching](guide::watching), [migrating](guide::migrating).
//!
//! # Quick start
//!
//! ```no_run
//! use etcd_lock::{Mutex, Session};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = etcd_lock::connect(["http://127.0.0.1:2379"], None).await?;
//! let session = Session::open(client).await?; // one for the whole process
//!
//! let mutex = Mutex::new(&session, "jobs/nightly")?;
//! let guard = mutex.lock().await?; // waits in line; see also `try_lock` and `lock_within`
//! let token = guard.token();
//! let worked = guard
//!     .run_until_lost(async {
//!         // The work. It is stopped if the lock is lost, and hands the token to what it writes.
//!         println!("working, fenced with {token}");
//!     })
//!     .await;
//! if let Err(lost) = worked {
//!     eprintln!("stopped in the middle: {lost}");
//! }
//! guard.release().await?;
//! session.close().await?;
//! # Ok(()) }
//! ```
//!
//! Elections ([`Election`], [`Observer`]) stand in the same kind of line, and [`scheduler`] has
//! the loops that services need around them: one leader at a time, or one run per tick.
//!
//! # How it works
//!
//! 1. A [`Session`] is a lease in etcd that is renewed every TTL/3.
//! 2. Who wants the lock `name` puts a key `name/<lease>-<n>` on that lease; the same transaction
//!    tells who stands there already. With nobody there, the lock is held: one round trip. What a
//!    session has to change in several lines at once rides in one transaction.
//! 3. The keys are a line in the order of their create revisions; the first one holds.
//! 4. Who waits follows the line by a watch, so that nothing has to be read when the turn comes;
//!    far back in a long line it watches one key only, and moves up. A release wakes a few of
//!    those who wait, never all.
//! 5. A release deletes the key, if it still is that very key. If the process dies, the lease
//!    expires, and etcd deletes all its keys.
//! 6. The session is *certain* until the **sending** of the last answered renewal + TTL - margin.
//!    etcd began to count later than that, so it gives nothing away before.
//! 7. [`is_held`](Hold::is_held) compares that instant with the clock on every call: it needs no
//!    network and no task that happens to run.
//! 8. The create revision is the [`FencingToken`]: larger for every next holder.
//! 9. What is dropped in mid-request (a future, a guard) is brought to its end and cleaned up by a
//!    task of the session, or else by the lease.
//! 10. Every request can be sent twice without harm, and is: a dead or frozen member among three
//!     costs time, not an error. Only [transactions of yours](Hold::txn) are never sent again when
//!     they may have been carried out; that nobody can tell is [an error](Error::Unknown).
//!
//! # Promises
//!
//! - **One holder.** While etcd keeps its word and clocks run at about the same rate, at most one
//!   guard of a name is [held](Hold::is_held) at any moment. A guard is not held any more *before*
//!   etcd can give the lock to the next.
//! - **First come, first served**, by arrival at etcd: across tasks, sessions, processes and
//!   [other clients](#other-clients).
//! - **Loss is told**, with its [cause](Lost), with or without a network; what is lost stays lost.
//! - **Nothing is left behind**: a future or guard that is dropped takes its key along, and what a
//!   crash leaves goes with the lease.
//!
//! # Not promised
//!
//! - **That nothing happens after a pause.** Between "is it held?" and the write, a process can be
//!   stopped for longer than the TTL: by the scheduler, by swapping, by a debugger. When it wakes
//!   it writes, and only then asks again. Only the token helps.
//! - **That a suspended virtual machine knows.** Time for which the machine sleeps counts on Linux
//!   (`CLOCK_BOOTTIME`), but a hypervisor that pauses or migrates a guest may stop all of its
//!   clocks. Then the guard counts as held until etcd says otherwise, at the next renewal or
//!   sooner. Only the token helps.
//! - **That packets arrive in time.** What was sent while the lock was held can arrive when
//!   somebody else holds it. Only the token helps.
//! - **Anything about what is removed by hand.** A delete of the key (`etcdctl del`,
//!   [`break_if`](Mutex::break_if)) or a revoke of the lease gives the lock to the next one at once;
//!   the guard is told as soon as etcd says so ([`Lost::KeyDeleted`], [`Lost::Broken`],
//!   [`Lost::LeaseGone`]), which may be later than the next holder is.
//! - **Clocks of different rates**, beyond the margin: the default of TTL/10 covers a difference
//!   of a tenth. What clocks *say* does not matter; they may jump.
//! - **Tokens across a restore.** An etcd restored from a snapshot may count its revisions from an
//!   earlier one, and has the keys and leases of then. [Operating](guide::operating) says how to
//!   restore so that tokens grow on.
//! - **A takeover at the very end of the TTL.** etcd looks for expired leases every half second,
//!   and a change of *its* leader gives every lease its full TTL once more. Takeover can be late.
//! - **Anything against an etcd leader that stood still.** One that was frozen for longer than the
//!   TTL and goes on may revoke a lease that was renewed with its successor (seen with etcd 3.4
//!   and 3.5). The guard is told as soon as etcd says so ([`Lost::LeaseGone`]).
//! - **That a holder gets on.** Renewal goes on for as long as the process runs: work that hangs
//!   holds the lock. ([`Leading::progress_within`](scheduler::Leading::progress_within) gives up
//!   for such work.)
//! - **Re-entrancy.** A task that locks the same name again waits for itself.
//!
//! # The fencing token
//!
//! [`guard.token()`](Hold::token) is a number that grows from holder to holder of a name. Take it
//! to the resource with every write, and show it before the first read; the resource keeps the
//! largest it has seen and refuses smaller ones. In SQL, with a column for it, the check is a
//! condition of the write:
//!
//! ```sql
//! UPDATE report SET token = $1, value = $2 WHERE id = $3 AND token <= $1;
//! -- No row changed: somebody newer was here, so stop.
//! ```
//!
//! What goes wrong with that, and how to do it for more than one row: [fencing](guide::fencing).
//!
//! A resource made in Rust has a [`FencingGate`] for it. The token's [text and number
//! forms](FencingToken#stored-and-sent) come back from wherever they were stored; a [`NamedToken`]
//! goes with the lock's name, for resources that could be shown another's.
//!
//! If the resource is in the same etcd, no number is needed: [`guard.txn()`](Hold::txn) is a
//! transaction that is carried out only while the hold's key stands, judged by etcd in the very
//! moment of writing, and [`guard.put`](Hold::put) and its like are short for it. Under
//! [several holds](GuardedTxn::holding), all have to stand. In transactions of your own,
//! [`guard.fence()`](Hold::fence) is the condition.
//!
//! Something that can check nothing (a mail server, most APIs) cannot be fenced: make what you
//! send harmless to receive twice, by an id for example.
//!
//! # TTL and margin
//!
//! The [TTL](SessionBuilder::ttl) is how long the others wait after a *crash*. It does not limit how
//! long a lock can be held, since it is renewed for as long as the process runs. The default of 10 s
//! suits most; [choosing a TTL](guide::ttl) is for the others. The [margin](SessionBuilder::margin),
//! by default TTL/10, is how much earlier than etcd the session gives itself up.
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any point, by a timeout or in `select!`. Dropping a
//! future does not take back a request that is on its way, so the session brings it to its end in
//! the background and then undoes it. What that means in each case, such as the loss of the place
//! in line, is said under *Cancel safety* at each function. The futures have to be polled in a
//! tokio runtime with time enabled, and the session's tasks live on the one that opened it.
//!
//! # Other clients
//!
//! Go's `concurrency.Mutex` and `concurrency.Election`, `etcdctl lock` and `etcdctl elect`, and
//! what else follows their recipe (jetcd), stand in one line with this crate, given the same name
//! (a prefix without its last `/`).
//!
//! `a` and `a/b` are different locks here. In Go they collide: a Go client that waits for `a` also
//! waits for whoever holds `a/b`. Do not nest names where Go takes part.
//!
//! # Connecting
//!
//! [`connect`] makes an ordinary client, on a connection that sends every request to one healthy
//! member, the raft leader if it can, and moves on at the first sign of trouble. Give it all members
//! of the cluster, and `with_user(…)` where etcd has authentication on; the user needs to read and
//! write `name/`.
//!
//! A client that you have already does as well. It sends each request to a member chosen at random
//! and has no failover, so with one of three members away this crate has to ask more often; no
//! error comes of it. Give [`Client::connect`](etcd_client::Client::connect) all members, and these
//! [options](etcd_client::ConnectOptions):
//!
//! - `with_require_leader(true)`: a member that has lost its cluster then says so to those who
//!   watch, instead of being silent. Without it the crate finds out by looking, about once a TTL.
//! - `with_connect_timeout(…)` of a second or two, so that a dead host is given up soon.
//! - `with_keep_alive(…)`, if you like, at most every 5 s: etcd closes the connection of who pings
//!   more often.
//!
//! A request timeout is not needed: every request of this crate has a limit of its own.
//!
//! # Types of others
//!
//! The types of [`etcd_client`] (which is re-exported) are part of this crate's API, as are tokio's
//! [`Instant`](tokio::time::Instant) and, for [`Observer`], the `Stream` trait of `futures-core`.
//! An etcd-client release with breaking changes makes for one of ours.
//!
//! # Feature flags
//!
//! None is on by default.
//!
//! - `metrics`: counts, times and an early warning, through the facade `metrics`; see
//!   [watching](guide::watching).
//! - `cli`: the command `etcd-lock`, for `cargo install`; [operating](guide::operating) shows it.
//! - `serde`: [`FencingToken`] as a number, [`NamedToken`] as text.
//! - `tls`, `tls-ring`, `tls-aws-lc`, `tls-roots`, `tls-native-roots`, `tls-webpki-roots`,
//!   `tls-openssl`, `tls-openssl-vendored`: each forwards the TLS choice of etcd-client that has
//!   its name.
//!
//! # Sources
//!
//! - Martin Kleppmann, [How to do distributed locking][Kleppmann 2016], 2016: efficiency or
//!   correctness, and why a token.
//! - etcd, [Notes on the usage of lock and lease](https://etcd.io/docs/v3.5/learning/why/#notes-on-the-usage-of-lock-and-lease):
//!   the same for this very server; and [API guarantees](https://etcd.io/docs/v3.5/learning/api_guarantees/).
//! - Cary Gray and David Cheriton, [Leases](https://doi.org/10.1145/74850.74870), 1989: why the one
//!   who holds has to count from the sending, and what clocks have to do for it.
//!
//! [Kleppmann 2016]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod connection;
mod election;
mod error;
mod etcd;
mod fencing;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
pub mod guide;
mod key;
mod loss;
mod metrics;
mod mutex;
mod observer;
mod queue;
pub mod scheduler;
mod session;
mod validity;

pub use connection::connect;
pub use election::{Election, Leader, Leadership};
pub use error::{Error, Lost, Result};
pub use etcd_client;
pub use fencing::{FencingGate, FencingToken, NamedToken, Stale};
pub use guard::LockGuard;
pub use loss::{HeldNow, LossReport};
pub use mutex::{Busy, Mutex};
pub use observer::Observer;
pub use queue::{Done, GuardedTxn, Hold, LostHold, TxnOutcome, Waiter};
pub use session::{Session, SessionBuilder};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
