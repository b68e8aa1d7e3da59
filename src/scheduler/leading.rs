//! Leading as a way of life: the loop around an election that nobody should write twice.

use super::term::Term;
use crate::election::campaign;
use crate::error::{Error, Lost, Result};
use crate::etcd::{Verdict, classify};
use crate::key::Name;
use crate::session::{Session, SessionBuilder};
use futures_util::FutureExt;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

/// The pause before a new session after the first loss; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long the work may take to end after it was told to stop.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// Runs a service's work whenever this process leads, and only then.
///
/// It opens a session, campaigns, runs the work, drops it on loss *before* anybody else may
/// lead, and campaigns again with a new session after a jittered pause; until the work ends by
/// itself, or a shutdown future does. Then the work is told first, may come to its end, and the
/// leadership is resigned at once, so that the next need not wait for the TTL.
///
/// # Not promised
///
/// That work which blocks its thread can be stopped: it is dropped where it awaits. It is told
/// apart only by its token, which it should carry to whatever it writes.
///
/// # Examples
///
/// ```no_run
/// use etcd_lock::{Session, etcd_client::Client, scheduler::Leading};
/// use std::time::Duration;
///
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let outcome = Leading::new(Session::builder(client), "services/billing")?
///     .value("10.0.0.7:8080")
///     .run(
///         async { tokio::signal::ctrl_c().await.unwrap_or(()) },
///         |term| async move {
///             loop {
///                 println!("tick, fenced with {}", term.token());
///                 tokio::time::sleep(Duration::from_secs(1)).await;
///                 # if false { return Ok::<(), std::io::Error>(()) }
///             }
///         },
///     )
///     .await;
/// # Ok(()) }
/// ```
#[must_use = "it does nothing until `run`"]
#[derive(Clone)]
pub struct Leading {
    sessions: SessionBuilder,
    name: Name,
    value: Vec<u8>,
    progress: Option<Duration>,
    grace: Duration,
}

/// How a [`Leading::run`] ended.
#[derive(Debug)]
#[must_use = "it tells why nothing leads any more"]
pub enum Outcome<T, E> {
    /// The work ended by itself with this; the leadership is resigned.
    Finished(T),
    /// The work failed with this; the leadership is resigned.
    Failed(E),
    /// The shutdown future ended. What the work gave when it was told to stop; `None` if there
    /// was none, or if it had to be dropped, for it did not end in time or the term was lost.
    ShutDown(Option<Result<T, E>>),
    /// etcd refuses for good (permissions, for example): no use in trying on.
    Refused(Error),
}

/// How a term ended.
enum Ended<T, E> {
    Lost(Lost),
    Worked(Result<T, E>),
    ShutDown(Option<Result<T, E>>),
    Panicked(Panic),
}

type Panic = Box<dyn Any + Send>;

impl Leading {
    /// Leads `name`, with sessions as `sessions` opens them.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is empty or ends in `/`.
    pub fn new(sessions: SessionBuilder, name: &str) -> Result<Self> {
        Ok(Self {
            sessions,
            name: Name::new(name)?,
            value: Vec::new(),
            progress: None,
            grace: DEFAULT_GRACE,
        })
    }

    /// Sets what others see of this candidate; default empty. An address, for example.
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value = value.into();
        self
    }

    /// Gives the leadership up when the work has not called [`Term::progress`] for so long:
    /// renewal stops, and somebody whose work gets on may lead. Default: no such limit.
    ///
    /// It is judged outside the work's task: work that hangs is dropped where it awaits; work
    /// that blocks its thread keeps running, but leads no more. The next leads at once, or, where
    /// that thread has to say so (it is the runtime's only one, or the work has just woken
    /// another task), when the lease expires.
    pub fn progress_within(mut self, budget: Duration) -> Self {
        self.progress = Some(budget);
        self
    }

    /// Sets how long the work may take to end after it was told to stop; default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs `work` whenever this process leads, until it ends or `shutdown` does.
    ///
    /// `work` is called once per term. A term that is lost drops its work and is followed by
    /// another; one whose work ends, with a value or an error, is the last. The leadership is
    /// resigned before this returns: after the end of `shutdown` it takes the grace and a TTL at
    /// the most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and resigns in the background.
    ///
    /// # Panics
    ///
    /// If the work does, with the same payload, after the leadership was resigned.
    pub async fn run<T, E, W>(
        self,
        shutdown: impl Future<Output = ()>,
        mut work: impl FnMut(Term) -> W,
    ) -> Outcome<T, E>
    where
        W: Future<Output = Result<T, E>>,
    {
        let mut shutdown = pin!(shutdown);
        let mut failures = 0_u32;
        loop {
            let begun = Instant::now();
            let session = tokio::select! {
                biased;
                () = shutdown.as_mut() => return Outcome::ShutDown(None),
                // Boxed, as the campaign is: large, and only one at a time.
                opened = Box::pin(self.sessions.clone().open()) => opened,
            };
            let ended = match session {
                Ok(session) => {
                    let session = Ending(session);
                    let ended = self.serve(&session.0, shutdown.as_mut(), &mut work).await;
                    resign(&session.0).await;
                    ended
                }
                Err(error) => Err(error),
            };
            match ended {
                Ok(Ended::Worked(Ok(value))) => return Outcome::Finished(value),
                Ok(Ended::Worked(Err(error))) => return Outcome::Failed(error),
                Ok(Ended::ShutDown(worked)) => return Outcome::ShutDown(worked),
                Ok(Ended::Panicked(panic)) => resume_unwind(panic),
                Ok(Ended::Lost(cause)) => {
                    tracing::warn!(name = self.name.as_str(), %cause, "a term was lost; campaigning again");
                }
                Err(error) if is_final(&error) => return Outcome::Refused(error),
                Err(error) => {
                    tracing::warn!(name = self.name.as_str(), %error, "cannot lead; trying again");
                }
            }
            if begun.elapsed() > LONGEST_PAUSE {
                failures = 0;
            }
            tokio::select! {
                () = sleep(pause(failures)) => {}
                () = shutdown.as_mut() => return Outcome::ShutDown(None),
            }
            failures += 1;
        }
    }

    /// One session: the campaign and, if it is won, the term.
    async fn serve<T, E, W>(
        &self,
        session: &Session,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
        work: &mut impl FnMut(Term) -> W,
    ) -> Result<Ended<T, E>>
    where
        W: Future<Output = Result<T, E>>,
    {
        let campaign = Box::pin(campaign(
            session.clone(),
            self.name.clone(),
            self.value.clone(),
        ));
        let leadership = tokio::select! {
            biased;
            // Nothing was led yet, so nothing is lost.
            () = shutdown.as_mut() => return Ok(Ended::ShutDown(None)),
            won = campaign => won?,
        };
        if let Some(budget) = self.progress {
            session.core().expect_progress(budget);
        }
        // What the campaign has woken, runs first: a worker thread of tokio keeps the task that was
        // woken last to itself, and if the work blocks the thread, the janitor would be blocked.
        yield_now().await;
        let (stop, stopping) = watch::channel(false);
        let term = Term::new(leadership, stopping);
        let working = term.run_until_lost(Box::pin(async { work(term.clone()).await }));
        // A panic may take the runtime with it, and then nobody is left to resign.
        let mut working = pin!(AssertUnwindSafe(working).catch_unwind());
        tokio::select! {
            biased;
            worked = working.as_mut() => return Ok(Ended::from(worked)),
            () = shutdown => {}
        }
        stop.send_replace(true);
        Ok(match timeout(self.grace, working).await {
            Ok(worked) => match Ended::from(worked) {
                Ended::Worked(worked) => Ended::ShutDown(Some(worked)),
                Ended::Lost(_) | Ended::ShutDown(_) => Ended::ShutDown(None),
                Ended::Panicked(panic) => Ended::Panicked(panic),
            },
            Err(_elapsed) => {
                tracing::warn!(
                    name = self.name.as_str(),
                    "the work did not end in time; dropped"
                );
                Ended::ShutDown(None)
            }
        })
    }
}

/// A session that ends here, whoever keeps a [`Term`] of it.
struct Ending(Session);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.core().end(Lost::Closed);
    }
}

impl<T, E> From<Result<Result<Result<T, E>, Lost>, Panic>> for Ended<T, E> {
    fn from(worked: Result<Result<Result<T, E>, Lost>, Panic>) -> Self {
        match worked {
            Ok(Ok(worked)) => Self::Worked(worked),
            Ok(Err(lost)) => Self::Lost(lost),
            Err(panic) => Self::Panicked(panic),
        }
    }
}

/// Gives up whatever the session holds: one request for key and lease together. It never takes
/// longer than a TTL, and what is not confirmed then goes by itself.
async fn resign(session: &Session) {
    if let Err(error) = session.close().await {
        tracing::warn!(%error, "not confirmed that the leadership is given up");
    }
}

/// Whether another try with a new session would fail the same way.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Invalid { .. } => true,
        Error::Etcd { source, .. } => classify(source) == Verdict::Fatal,
        _ => false,
    }
}

/// With jitter, so that candidates who lost together do not come back together.
fn pause(failures: u32) -> Duration {
    let full = FIRST_PAUSE * (1 << failures.min(6));
    full.min(LONGEST_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leading")
            .field("name", &self.name.as_str())
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}
