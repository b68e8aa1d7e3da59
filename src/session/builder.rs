//! Opening a session: checks, the grant, the tasks.

use super::Session;
use super::core::Core;
use super::grant::{grant, whole_seconds};
use super::janitor::Debts;
use super::line::Lines;
use super::numbers::Numbers;
use super::pace::Pace;
use super::pulse::Pulse;
use super::quiet::Quiet;
use super::reads::Reads;
use super::retry::{Hedge, until_answered};
use super::told::Told;
use super::watch::Watches;
use super::writes::Writes;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::etcd::Etcd;
use crate::metrics::{self, Meter};
use crate::validity::Validity;
use etcd_client::Client;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// etcd counts a lease in whole seconds.
const LEAST_TTL: Duration = Duration::from_secs(1);

/// It stands in every key, and a queue is read in one answer, which may have 4 MiB.
const LONGEST_LABEL: usize = 1024;

/// How long opening goes on trying while no member answers.
const WITHIN: Duration = Duration::from_secs(10);

/// How many requests of a session are under way at once; the others wait here for their turn.
/// Enough to keep a server busy. Thousands in its queue would make all of them late: each would
/// be sent again, and renewals among them.
const MOST_AT_ONCE: usize = 128;

const DOING: &str = "open a session (grant a lease)";

/// Opens a [`Session`] with settings of your own.
///
/// # Examples
///
/// ```no_run
/// # use etcd_lock::{Session, etcd_client::Client};
/// # use std::time::Duration;
/// # async fn example(client: Client) -> Result<(), etcd_lock::Error> {
/// let session = Session::builder(client)
///     .ttl(Duration::from_secs(5))
///     .label("billing on host-7")
///     .open()
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until `open`"]
#[derive(Clone)]
pub struct SessionBuilder {
    client: Client,
    ttl: Duration,
    margin: Option<Duration>,
    label: Option<String>,
    meter: Meter,
}

impl SessionBuilder {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            ttl: DEFAULT_TTL,
            margin: None,
            label: None,
            meter: Meter::new(true),
        }
    }

    /// Sets the time to live of the lease: how long others wait after a *crash* of this process.
    ///
    /// It does not limit how long a lock can be held. Default 10 s, at least 1 s; parts of a
    /// second are rounded up. etcd may grant more: with its default timings at least 2 s; see
    /// [`Session::ttl`]. Choose it several times longer than the pauses that your process,
    /// network and etcd are used to.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how much earlier the session counts as lost than etcd can expire its lease.
    ///
    /// Default TTL/10. It has to cover by how much two clocks can drift apart in one TTL, and
    /// the time that your work needs to stop. More than 0 and at most half the TTL, so that a
    /// renewal and another try fit into the rest.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets what the queue view shows of this session's places in line.
    ///
    /// Default: the host's name and the process id. It becomes the value of the keys, for
    /// everybody to read who may read them. At most 1,024 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets whether metrics have the lock's name as a label; default true.
    ///
    /// Every name makes some thirty time series for as long as the process runs. Say false where
    /// names are made from ids or times; then all names are counted together. (The ticks of a
    /// [`Tick`](crate::scheduler::Tick) are counted as their job in any case.)
    #[cfg(feature = "metrics")]
    pub fn names_in_metrics(mut self, by_name: bool) -> Self {
        self.meter = Meter::new(by_name);
        self
    }

    /// Opens the session.
    ///
    /// # Cancel safety
    ///
    /// As [`Session::open`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a TTL, margin or label that cannot work, before anything is sent;
    /// [`Error::Etcd`] if etcd refuses, or if no member answers within 10 s.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled. The session lives on that one.
    pub async fn open(self) -> Result<Session> {
        let ttl = self.checked_ttl()?;
        self.check_label()?;
        // Boxed: requests with their retries and a session on its way are large.
        Box::pin(self.open_with(ttl)).await
    }

    async fn open_with(self, ttl: i64) -> Result<Session> {
        let etcd = Etcd::new(self.client);
        let deadline = Instant::now() + WITHIN;
        let pace = Pace::default();
        let knocked = until_answered(&etcd, Hedge::Late(&pace), Some(deadline), || etcd.knock());
        knocked.await.map_err(|refused| refused.into_error(DOING))?;
        let grant = grant(&etcd, ttl, Some(deadline), DOING).await?;
        let margin = self.margin.unwrap_or(grant.ttl / 10);
        let certain_until = grant.sent.plus(grant.ttl.saturating_sub(margin));
        let (debts, receive) = Debts::new();
        let (tell_revoked, revoked) = watch::channel(None);
        let core = Core {
            etcd,
            lease: grant.id,
            ttl: grant.ttl,
            label: self.label.map_or_else(default_label, Arc::from),
            margin,
            validity: Validity::until(certain_until),
            over: Told::default(),
            revoked,
            debts,
            room: Semaphore::new(MOST_AT_ONCE),
            numbers: Numbers::default(),
            pace,
            pulse: Pulse::begin(margin, Moment::now()),
            quiet: Quiet::new(),
            meter: self.meter,
            watches: Arc::<Watches>::default(),
            lines: Lines::default(),
            writes: Writes::new(),
            reads: Reads::new(),
        };
        metrics::session_opened();
        tracing::info!(
            lease = %format_args!("{:x}", core.lease), ttl = ?core.ttl, ?margin, "session opened"
        );
        Ok(Session::start(core, receive, tell_revoked))
    }

    fn check_label(&self) -> Result<()> {
        let length = self.label.as_ref().map_or(0, String::len);
        if length > LONGEST_LABEL {
            let why = format!("is {length} bytes long; give at most {LONGEST_LABEL}");
            return Err(Error::invalid("label", why));
        }
        Ok(())
    }

    /// The TTL in whole seconds, rounded up.
    fn checked_ttl(&self) -> Result<i64> {
        if self.ttl < LEAST_TTL {
            let why = format!(
                "of {:?} is too short; give 1 s or more (etcd counts whole seconds, and three \
                 renewals have to fit)",
                self.ttl
            );
            return Err(Error::invalid("ttl", why));
        }
        if let Some(margin) = self.margin
            && (margin.is_zero() || margin > self.ttl / 2)
        {
            let why = format!(
                "of {margin:?} does not suit a ttl of {:?}; give more than 0 and at most half \
                 the ttl, or leave it away",
                self.ttl
            );
            return Err(Error::invalid("margin", why));
        }
        whole_seconds("ttl", self.ttl)
    }
}

/// Says who we are as an operator would look for it.
fn default_label() -> Arc<str> {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map_or("unknown host", str::trim);
    format!("{host} pid {}", std::process::id()).into()
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("ttl", &self.ttl)
            .field("margin", &self.margin)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
