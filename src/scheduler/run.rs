//! A tick's run, from the turn to the record.

use super::record::{Record, State, one_line};
use super::tick::{Repeat, Tick, TickOutcome};
use crate::error::Result;
use crate::etcd::Guarded;
use crate::queue::{self, Hold};
use crate::session::{backoff, whole_seconds};
use futures_util::FutureExt;
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use tokio::time::sleep;

impl Tick {
    /// With the turn: looks for a record, runs, leaves a record.
    pub(super) async fn run_held<E: fmt::Display>(
        &self,
        hold: Hold,
        work: impl AsyncFnOnce(&Hold) -> Result<String, E>,
    ) -> Result<TickOutcome<E>> {
        let started = match self.start(&hold).await? {
            Ok(started) => started,
            Err(record) => {
                give_back(hold).await;
                return Ok(TickOutcome::Over(record));
            }
        };
        let working = hold.run_until_lost(Box::pin(work(&hold)));
        // A panic may take the runtime with it, and then nobody is left to give the turn back.
        let worked = match AssertUnwindSafe(working).catch_unwind().await {
            Ok(worked) => worked?,
            Err(panic) => {
                give_back(hold).await;
                resume_unwind(panic)
            }
        };
        match worked {
            Ok(result) => {
                let record = self.record(&hold, State::Done, result);
                self.finish(hold, &record, started).await?;
                Ok(TickOutcome::Ran(record))
            }
            Err(error) => {
                if self.repeat == Repeat::Never {
                    let record = self.record(&hold, State::Failed, error.to_string());
                    if let Err(unrecorded) = self.finish(hold, &record, started).await {
                        tracing::warn!(mark = &*self.mark, %unrecorded, "a failure is not recorded");
                    }
                } else {
                    give_back(hold).await;
                }
                Ok(TickOutcome::Failed(error))
            }
        }
    }

    /// Proves that the turn is held and that nothing is recorded, and records the start if there
    /// must not be another. Gives the lease of that record; or what is recorded.
    async fn start(&self, hold: &Hold) -> Result<Result<Option<i64>, Record>> {
        if self.repeat == Repeat::Never
            && let Some(record) = self.recorded().await?
        {
            return Ok(Err(record));
        }
        let (core, key) = (self.core(), (hold.key(), hold.revision()));
        let record = self.record(hold, State::Started, String::new()).to_text();
        let mut failures = 0;
        loop {
            let lease = match self.repeat {
                Repeat::Never => Some(self.grant().await?),
                Repeat::UntilDone => None,
            };
            let put = lease.map(|lease| (record.as_bytes(), lease));
            let mark = || core.etcd.mark_start(key, &self.mark, put);
            match core.ask("record a tick's start", mark).await?.value {
                Guarded::Written(_) => return Ok(Ok(lease)),
                Guarded::NoLease => failures += 1,
                Guarded::Refused(found) => {
                    let stands = found.as_ref().map(|found| found.lease);
                    self.let_go(lease.filter(|lease| Some(*lease) != stands))
                        .await;
                    return match found.as_ref().map(Record::of) {
                        // An earlier attempt's.
                        Some(record) if record.token == hold.token() => Ok(Ok(stands)),
                        Some(record) => Ok(Err(record)),
                        None => Err(hold.key_is_gone().await.into()),
                    };
                }
            }
            sleep(backoff(failures)).await;
        }
    }

    /// Records the end and gives the turn up, in one transaction. `started` is the lease that the
    /// record of the start hangs on.
    async fn finish(&self, hold: Hold, record: &Record, started: Option<i64>) -> Result<()> {
        let (core, text) = (self.core(), record.to_text());
        let (key, revision) = (hold.key().to_owned(), hold.revision());
        // Given up first: that its key goes is no loss then.
        let place = hold.end();
        let mut failures = 0;
        loop {
            let lease = self.grant().await?;
            let mark = || {
                let key = (key.as_str(), revision);
                core.etcd.mark_end(key, &self.mark, text.as_bytes(), lease)
            };
            match core.ask("record a tick's end", mark).await?.value {
                Guarded::Written(_) => {
                    place.settle();
                    self.let_go(started).await;
                    return Ok(());
                }
                // An earlier attempt's.
                Guarded::Refused(Some(found)) if Record::of(&found) == *record => {
                    place.settle();
                    self.let_go(started).await;
                    self.let_go((found.lease != lease).then_some(lease)).await;
                    return Ok(());
                }
                // Not let go: an attempt that is still on its way may find it.
                Guarded::NoLease => failures += 1,
                Guarded::Refused(_) => {
                    self.let_go(Some(lease)).await;
                    return Err(queue::why_gone(core, &key).await.into());
                }
            }
            sleep(backoff(failures)).await;
        }
    }

    /// A lease that ends when the retention is over.
    async fn grant(&self) -> Result<i64> {
        self.core().grant_apart(self.seconds()?).await
    }

    /// The retention as etcd counts it.
    pub(super) fn seconds(&self) -> Result<i64> {
        Ok(whole_seconds("retention", self.retention)?.max(1))
    }

    fn record(&self, hold: &Hold, state: State, result: String) -> Record {
        Record {
            state,
            by: one_line(&self.core().label),
            token: hold.token(),
            result,
        }
    }

    /// Revokes a lease that nothing hangs on any more.
    async fn let_go(&self, lease: Option<i64>) {
        let Some(lease) = lease else { return };
        let core = self.core();
        let revoke = || core.etcd.revoke(lease);
        match core.ask_within(core.ttl, "revoke a lease", revoke).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::debug!(%error, "a lease without keys is left to expire"),
            None => tracing::debug!("a lease without keys is left to expire"),
        }
    }
}

/// Gives a turn up. What became of the work counts, not this: the lease ends it at the latest.
async fn give_back(hold: Hold) {
    if let Err(error) = hold.release().await {
        tracing::warn!(%error, "not confirmed that a tick's turn is given up");
    }
}
