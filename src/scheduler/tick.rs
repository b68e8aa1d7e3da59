//! One run per tick: of all instances that want to run a job for a tick, one does.
//!
//! Two names stand behind a job: the line `JOB/run/TICK`, in which a run holds its turn, and the
//! key `JOB/tick/TICK`, the record that a run leaves. The record is put in the transaction that
//! proves that the turn is still held, and that gives it up; it hangs on a lease of its own, which
//! ends it when its retention is over. Whoever gets a turn looks for the record first, in the
//! transaction that proves its own turn. No clock is read: a tick is whatever the caller says.

use super::record::{Record, State};
use crate::error::{Error, Result};
use crate::etcd::Read;
use crate::key::Name;
use crate::queue::{self, Hold, Waiter};
use crate::session::{Core, Session};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// One run of a job for one tick, across all instances.
///
/// # Promises
///
/// - At most one instance at a time is in the work of a tick, as far as a lock can promise
///   (see [`Hold`]); the token tells a late one from its successor.
/// - Once a run is recorded as done, no other starts until the record's retention is over.
/// - The record is written only while the run's turn is still held, judged by etcd in the same
///   transaction. A run that lost its turn records nothing.
///
/// # Examples
///
/// ```no_run
/// use etcd_lock::{Session, scheduler::{Tick, TickOutcome}};
///
/// # async fn example(session: Session) -> Result<(), etcd_lock::Error> {
/// let tick = Tick::new(&session, "jobs/report", "2026-11-29T02:00Z")?;
/// let work = async |_hold: &etcd_lock::Hold| Ok::<_, std::io::Error>("42 rows".to_owned());
/// match tick.run(work).await? {
///     TickOutcome::Ran(record) => println!("ran: {}", record.result),
///     TickOutcome::Elsewhere(holder) => println!("runs on {}", holder.label),
///     TickOutcome::Over(record) => println!("{:?} by {}", record.state, record.by),
///     TickOutcome::Failed(error) => println!("failed: {error}"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "it does nothing until `run`"]
#[derive(Clone)]
pub struct Tick {
    session: Session,
    pub(super) line: Name,
    pub(super) mark: Arc<str>,
    pub(super) repeat: Repeat,
    pub(super) retention: Duration,
}

/// What happens to a tick whose run did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repeat {
    /// Another run may start when one failed or its process died, until one has succeeded.
    UntilDone,
    /// Once a run has started, no other ever does, whatever becomes of it.
    Never,
}

/// What became of asking for a tick's run.
#[derive(Debug)]
#[must_use = "it tells whether the work was done, and by whom"]
pub enum TickOutcome<E> {
    /// It ran here and is recorded.
    Ran(Record),
    /// It runs elsewhere just now.
    Elsewhere(Waiter),
    /// It ran before, here or elsewhere: what is recorded. With [`State::Started`] its process
    /// died, or lost its turn, and by [`Repeat::Never`] nobody else may run it.
    Over(Record),
    /// It ran here and failed.
    Failed(E),
}

impl Tick {
    /// Names a tick of a job. A tick is any text that all instances agree on, such as the
    /// planned time; it needs no clock.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the job or the tick is empty or ends in `/`.
    pub fn new(session: &Session, job: &str, tick: &str) -> Result<Self> {
        Name::new(job)?;
        if tick.is_empty() {
            return Err(Error::invalid("tick", "is empty; give the tick a label"));
        }
        Ok(Self {
            session: session.clone(),
            line: Name::in_family(&format!("{job}/run"), tick)?,
            mark: format!("{job}/tick/{tick}").into(),
            repeat: Repeat::UntilDone,
            retention: DEFAULT_RETENTION,
        })
    }

    /// Sets what happens after a run that did not succeed; default [`Repeat::UntilDone`].
    /// All instances have to say the same.
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// Sets how long the record is kept, in whole seconds, at least 2 s; default 24 h. Longer
    /// than any instance may be late to ask for the same tick and, with [`Repeat::Never`], than
    /// a run may take.
    pub fn keep_for(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Runs `work`, unless the tick runs elsewhere or has run; tells at once which.
    ///
    /// The work gives what is recorded as its result. It is dropped if the turn is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and gives the turn up in the background; with
    /// [`Repeat::Never`] the tick counts as started.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the turn was lost: the work was dropped, or its result came too late to
    /// be recorded. (If the session ended while the record was on its way,
    /// [`recorded`](Self::recorded) tells, through another session.) [`Error::Etcd`] if etcd
    /// refuses; [`Error::Invalid`] if the retention is longer than etcd can count.
    ///
    /// # Panics
    ///
    /// If the work does, with the same payload, after the turn was given back.
    pub async fn run<E: fmt::Display>(
        &self,
        work: impl AsyncFnOnce(&Hold) -> Result<String, E>,
    ) -> Result<TickOutcome<E>> {
        // Not only after the work is done.
        self.seconds()?;
        if let Some(record) = self.over().await? {
            return Ok(TickOutcome::Over(record));
        }
        let (session, line, label) = self.parts();
        match queue::try_once(session, line, label).await? {
            Ok(hold) => self.run_held(hold, work).await,
            Err(first) => Ok(TickOutcome::Elsewhere(Waiter::new(0, &first))),
        }
    }

    /// Runs `work` unless the tick has run; if it runs elsewhere, stands by to take over.
    ///
    /// For jobs that must not stay undone when the process that runs them dies: returns when the
    /// tick is recorded, wherever it ran, or when it ran here. Otherwise as [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub async fn run_or_stand_by<E: fmt::Display>(
        &self,
        work: impl AsyncFnOnce(&Hold) -> Result<String, E>,
    ) -> Result<TickOutcome<E>> {
        self.seconds()?;
        if let Some(record) = self.over().await? {
            return Ok(TickOutcome::Over(record));
        }
        let (session, line, label) = self.parts();
        let hold = queue::wait(session, line, label).await?;
        self.run_held(hold, work).await
    }

    /// Tells what is recorded of the tick, if anything is.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the session ends, [`Error::Etcd`] if etcd refuses.
    pub async fn recorded(&self) -> Result<Option<Record>> {
        let core = self.core();
        let read = Read::Key(self.mark.clone());
        let found = core.read("read a tick's record", read, |found| found.key());
        Ok(found.await?.as_ref().map(Record::of))
    }

    /// What is recorded, if it is the last word: a run that has started and holds its turn may
    /// yet end otherwise.
    async fn over(&self) -> Result<Option<Record>> {
        match self.recorded().await? {
            Some(record) if record.state == State::Started => {
                let runs = !queue::list(self.core(), &self.line).await?.is_empty();
                // If its turn is gone, what is recorded *now* is the last word.
                if runs {
                    Ok(None)
                } else {
                    self.recorded().await
                }
            }
            record => Ok(record),
        }
    }

    fn parts(&self) -> (Session, Name, Vec<u8>) {
        let label = queue::inscription(self.core());
        (self.session.clone(), self.line.clone(), label)
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tick")
            .field("mark", &self.mark)
            .field("repeat", &self.repeat)
            .finish_non_exhaustive()
    }
}
