//! For schedulers: one leader at a time, or one run per tick.
//!
//! # Leader or tick?
//!
//! - **[`Leading`]**: one process does the work as long as it lives, the others stand by: a
//!   controller, a queue's consumer, a scheduler that keeps its plan in memory. The next leads
//!   within the TTL + 1 s of a crash, and at once after a shutdown.
//! - **[`Tick`]**: every process wakes at 02:00, one of them runs the report, the others learn
//!   that it runs elsewhere, or has run, and by whom. There is no leader between ticks, nothing
//!   is held, and a process whose clock is late does not run a tick again. If the run's process
//!   dies, the tick stays undone until somebody asks again, or at once goes to one that
//!   [stands by](Tick::run_or_stand_by); or it is [never](Repeat::Never) to start twice.
//!
//! If running twice does no harm (the work is idempotent), either is a saving. If it does harm,
//! neither is enough by itself: write with the token, or in a transaction that the resource
//! guards (see below).
//!
//! # Which TTL?
//!
//! The TTL is how long nobody works after a *crash*: the next leads at most TTL + 1 s later. It is
//! not how long a job may take: renewals go on as long as the process runs.
//! [Choosing a TTL](crate::guide::ttl) has the rest.
//!
//! # What happens on…
//!
//! | | the one who works | the others |
//! |---|---|---|
//! | SIGTERM or Ctrl-C, with the signal as the shutdown future | work is told ([`Term::stopping`]), may end within the [grace](Leading::grace), then resigns | the next leads at once |
//! | crash, SIGKILL, power loss | is gone | the next leads when the lease expires: TTL + up to 0.5 s + a commit |
//! | the work ends, fails or panics | resigns, and [`Leading::run`] returns or panics on (built with `panic = "abort"`: as a crash) | the next leads at once |
//! | the process stands still longer than the TTL | on waking, work is dropped at its next await; what it writes before that has an old token; campaigns again | the next leads after the TTL |
//! | etcd is away for up to half a TTL (less the half second it takes to find it again) | goes on | wait |
//! | etcd is away for longer | work is dropped before the lease can expire; campaigns again | somebody leads within TTL + 3 s of etcd's return |
//! | an operator deletes the key or revokes the lease | work is dropped as soon as etcd says so; campaigns again | the next leads at once |
//! | stuck job, with [`Leading::progress_within`] | leads no more; the work is dropped where it awaits, and it campaigns again | the next leads once the budget is over |
//! | stuck job, without | leads for as long as it is stuck | wait |
//!
//! # What is the token for?
//!
//! Between "I lead" and the write there is always an instant in which this process can be
//! stopped, and the packet can be late after that. [`Hold::token`](crate::Hold::token) grows from
//! leader to leader: store it with what you write, and refuse what comes with a smaller one. In
//! etcd itself, [`Hold::txn`](crate::Hold::txn) and its like need no token.
//!
//! A tick has its token, too. Its [`Record`] needs none: etcd writes it only while the run's turn
//! is held, in one transaction.

mod leading;
mod record;
mod run;
mod term;
mod tick;

pub use leading::{Leading, Outcome};
pub use record::{Record, State};
pub use term::Term;
pub use tick::{Repeat, Tick, TickOutcome};
