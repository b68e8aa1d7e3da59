//! Sessions: a lease kept alive, and what lives and dies with it.

mod book;
mod builder;
mod core;
mod grant;
mod janitor;
mod keeper;
mod line;
mod numbers;
mod once;
mod pace;
mod pulse;
mod quiet;
mod reads;
mod retry;
mod room;
mod told;
mod watch;
mod watcher;
mod writer;
mod writes;

pub use builder::SessionBuilder;
pub(crate) use core::Core;
pub(crate) use grant::whole_seconds;
use janitor::TellRevoked;
pub(crate) use janitor::{Debt, remove};
pub(crate) use line::{Ahead, Lines, NEAR, News};
pub(crate) use numbers::Number;
pub(crate) use pace::Pace;
pub(crate) use retry::{Answer, Hedge, backoff, until_answered};
pub(crate) use told::Told;
pub(crate) use watch::{Change, Event};

use crate::clock::Moment;
use crate::error::{Error, Lost, Result};
use crate::loss::{HeldNow, LossReport};
use etcd_client::Client;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A lease of etcd, kept alive: everything held or waited for through it lives and dies with it.
///
/// One session serves any number of locks; clones are the same session. It ends once and for
/// good: by [`close`](Self::close), when nothing is left that uses it (clones, mutexes, guards,
/// waiters), when etcd says that the lease is gone, or when no renewal was answered for so long
/// that the lease *may* have expired. It never comes back by itself. After a loss, open another.
///
/// # Promises
///
/// - The session is [certain](Self::is_certain) only while the lease cannot have expired, given
///   that the clocks of this machine and of etcd's leader run at the same rate to within the
///   margin: until the **sending** of the last answered renewal + TTL - margin. Time for which
///   the machine is suspended counts (on Linux), and so does time for which no task could run.
/// - It renews at TTL/3, and more often while nobody answers. A restart or change of etcd's
///   leader, a closed connection or a slow member is no loss, as long as some member answers in
///   time.
/// - Renewal is nobody's but the session's: a timeout around [`lock`](crate::Mutex::lock), or
///   dropping its future, never touches it.
///
/// # Not promised
///
/// - A process that stands still between asking "do I hold it?" and acting cannot be stopped by
///   any clock; the [`FencingToken`](crate::FencingToken) is for that.
/// - The session's tasks live on the runtime that it was opened on. If that one shuts down, or
///   is blocked for longer than the TTL, the session ends by time.
///
/// # Examples
///
/// ```no_run
/// use etcd_lock::Session;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = etcd_lock::connect(["127.0.0.1:2379"], None).await?;
/// let session = Session::open(client).await?;
/// // … locks …
/// session.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

/// Shared by the clones, guards and waiters of a session, not by its tasks: when it goes,
/// nobody is left to use the session.
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.end(Lost::Closed);
    }
}

impl Session {
    /// Opens a session with the defaults: a TTL of 10 s, a margin of TTL/10.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens no session; a lease that was granted nevertheless expires
    /// after its TTL.
    ///
    /// # Errors
    ///
    /// [`Error::Etcd`] if etcd refuses, or if no member answers within 10 s.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled. The session lives on that one.
    pub async fn open(client: Client) -> Result<Self> {
        Self::builder(client).open().await
    }

    /// Begins a session with settings of your own: TTL, margin, label.
    pub fn builder(client: Client) -> SessionBuilder {
        SessionBuilder::new(client)
    }

    /// Gives the id of the lease, as etcd knows it (`etcdctl lease` shows it in hexadecimal).
    pub fn lease_id(&self) -> i64 {
        self.core().lease
    }

    /// Gives the TTL that etcd granted, which may be longer than the one asked for.
    pub fn ttl(&self) -> Duration {
        self.core().ttl
    }

    /// Asks etcd how long a lease would live if it were renewed no more, whoever's it is: for the
    /// leases in a [queue](crate::Mutex::queue). `None` if there is no such lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if this session ends, [`Error::Etcd`] if etcd refuses.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    pub async fn ttl_left(&self, lease: i64) -> Result<Option<Duration>> {
        let core = self.core();
        let ask = || core.etcd.time_to_live(lease);
        let found = core.ask("ask for a lease", ask).await?.value;
        Ok(found.map(|lease| lease.left))
    }

    /// Tells whether the session is certain to live at this moment.
    ///
    /// Compares the clock on every call: it is right even if no task of the runtime has run
    /// for a while. Once false it stays false.
    pub fn is_certain(&self) -> bool {
        self.core().certain().is_ok()
    }

    /// Gives the instant until which the session is certain to live, if it still is.
    ///
    /// Each answered renewal moves it on. tokio's clock does not count time for which the
    /// machine is suspended, so after a suspend it is too late an instant; ask
    /// [`is_certain`](Self::is_certain), which does count it (on Linux).
    pub fn certain_until(&self) -> Option<Instant> {
        let until = self.core().certain().ok()?;
        Some(Instant::now() + until.left(Moment::now()))
    }

    /// Waits until the session ends and gives the cause.
    ///
    /// That is [`Lost::Closed`] after [`close`](Self::close), whichever clone it was called on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; it can be called again.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    pub async fn ended(&self) -> Lost {
        loop {
            let Some(until) = self.certain_until() else {
                return self.core().end(Lost::Expired);
            };
            tokio::select! {
                biased;
                lost = self.core().over() => return lost,
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Tells why the session was lost, for logs and for the people on call; nothing while it lives.
    ///
    /// Who holds its locks now is another question: [`Hold::loss_report`](crate::Hold::loss_report)
    /// asks it of one hold.
    pub fn loss_report(&self) -> Option<LossReport> {
        self.core().certain().err()?;
        let loss = self.core().loss()?;
        Some(LossReport::new(loss, HeldNow::NotAsked))
    }

    /// Ends the session and revokes its lease: what it holds is free for others at once.
    ///
    /// For all guards and waiters of the session, and for its clones, it has ended
    /// ([`Lost::Closed`]) *before* the request goes out. A session that was lost before revokes
    /// its lease, too; closing it, or closing twice, tells how that went.
    ///
    /// # Cancel safety
    ///
    /// The session ends with the first poll; dropping the future leaves the revoke to the
    /// background. A program that ends right then leaves the lease to expire.
    ///
    /// # Errors
    ///
    /// [`Error::Unconfirmed`] if etcd has not confirmed the revoke within a TTL or refuses it, or
    /// if the runtime of the session is gone. The lease then expires by itself.
    pub async fn close(&self) -> Result<()> {
        let core = self.core();
        core.end(Lost::Closed);
        let mut revoked = core.revoked.clone();
        let outcome = revoked.wait_for(Option::is_some).await;
        let why = match outcome.as_deref() {
            Ok(Some(Ok(()))) => return Ok(()),
            Ok(Some(Err(why))) => why.clone(),
            Ok(None) | Err(_) => "the runtime of the session has shut down".to_owned(),
        };
        Err(Error::Unconfirmed {
            what: format!("lease {:x}", core.lease),
            why,
            within: core.ttl,
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    fn start(core: Core, debts: mpsc::UnboundedReceiver<Debt>, tell_revoked: TellRevoked) -> Self {
        let core = Arc::new(core);
        tokio::spawn(keeper::run(core.clone()));
        tokio::spawn(janitor::run(core.clone(), debts, tell_revoked));
        tokio::spawn(watcher::run(core.clone()));
        for _ in 0..reads::READERS {
            tokio::spawn(reads::run(core.clone()));
        }
        for _ in 0..writer::WRITERS {
            tokio::spawn(writer::run(core.clone()));
        }
        let handle = Arc::new(Handle { core });
        Self { handle }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("lease", &format_args!("{:x}", self.lease_id()))
            .field("ttl", &self.ttl())
            .field("certain_until", &self.certain_until())
            .finish_non_exhaustive()
    }
}
