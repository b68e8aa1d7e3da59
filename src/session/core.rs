//! What the session's handles and its tasks share.

use super::janitor::Debts;
use super::line::Lines;
use super::numbers::Numbers;
use super::pace::Pace;
use super::pulse::Pulse;
use super::quiet::Quiet;
use super::reads::Reads;
use super::retry::{Answer, Hedge, backoff, until_answered};
use super::told::Told;
use super::watch::Watches;
use super::writes::Writes;
use crate::clock::Moment;
use crate::error::{Lost, Result};
use crate::etcd::{Etcd, Verdict};
use crate::key::Name;
use crate::loss::Loss;
use crate::metrics::{self, Meter};
use crate::validity::Validity;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

pub(crate) struct Core {
    pub(crate) etcd: Etcd,
    pub(crate) lease: i64,
    /// As etcd granted it.
    pub(crate) ttl: Duration,
    pub(crate) label: Arc<str>,
    pub(super) margin: Duration,
    pub(super) validity: Validity,
    /// Bad news for those who wait; the truth is `validity`.
    pub(super) over: Told<Loss>,
    /// How the revoke at the end came out, from the janitor; closed if it is no more.
    pub(super) revoked: watch::Receiver<Option<Result<(), String>>>,
    pub(crate) debts: Debts,
    /// For so many requests at once.
    pub(super) room: Semaphore,
    pub(super) numbers: Numbers,
    pub(super) pace: Pace,
    pub(super) pulse: Pulse,
    pub(crate) quiet: Quiet,
    pub(crate) meter: Meter,
    pub(crate) watches: Arc<Watches>,
    pub(crate) lines: Lines,
    pub(crate) writes: Writes,
    pub(super) reads: Reads,
}

impl Core {
    /// Until when the session is certain to live; an error once it is over.
    pub(crate) fn certain(&self) -> Result<Moment, Lost> {
        let certain = self.validity.at(Moment::now());
        if let Err(lost) = certain {
            self.tell(lost);
        }
        certain
    }

    /// Ends the session for good. The first cause counts and is given back.
    pub(crate) fn end(&self, cause: Lost) -> Lost {
        let cause = self.validity.end(Moment::now(), cause);
        self.tell(cause);
        cause
    }

    /// The pause of the slow look.
    pub(crate) fn about_a_ttl(&self) -> Duration {
        self.ttl.mul_f64(0.9 + 0.2 * fastrand::f64())
    }

    /// From now on the session lives only while work reports progress at least so often.
    pub(crate) fn expect_progress(&self, budget: Duration) {
        self.validity.expect_progress(Moment::now(), budget);
    }

    pub(crate) fn progress(&self) {
        self.validity.progress(Moment::now());
    }

    fn tell(&self, cause: Lost) {
        if self.over.get().is_some() {
            return;
        }
        let loss = self.pulse.loss(cause, Moment::now());
        if !self.over.tell(loss) {
            return;
        }
        metrics::session_ended(cause);
        let lease = format_args!("{:x}", self.lease);
        if cause == Lost::Closed {
            tracing::info!(lease = %lease, "session closed");
        } else {
            tracing::warn!(
                lease = %lease,
                %cause,
                answered_before = ?loss.answered,
                stood_still = ?loss.stood_still,
                "session lost"
            );
        }
    }

    /// Waits for the end, as told by the keeper or by whoever saw it first.
    pub(crate) async fn over(&self) -> Lost {
        self.over.told().await.cause
    }

    /// What was known of the session's end when it was seen.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.over.get()
    }

    /// What is known of a loss, of the session or of something in it, that is seen now.
    pub(crate) fn loss_by(&self, cause: Lost) -> Loss {
        let own = self.loss().filter(|loss| loss.cause == cause);
        own.unwrap_or_else(|| self.pulse.loss(cause, Moment::now()))
    }

    /// Makes a request even if the session is over; nothing if there is no answer within `limit`.
    pub(crate) async fn ask_anyway<T, F>(
        &self,
        limit: Duration,
        attempt: impl Fn() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Some(Instant::now() + limit);
        let asked = until_answered(&self.etcd, Hedge::Late(&self.pace), deadline, attempt);
        Some(asked.await.ok()?.value)
    }

    /// Makes a request until it is answered or the session ends.
    pub(crate) async fn ask<T, F>(
        &self,
        doing: &'static str,
        attempt: impl Fn() -> F,
    ) -> Result<Answer<T>>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut failures = 0;
        loop {
            self.certain()?;
            let asked = async {
                // Never closed, so this is a permit.
                let _place = self.room.acquire().await;
                until_answered(&self.etcd, Hedge::Late(&self.pace), None, &attempt).await
            };
            let refused = tokio::select! {
                biased;
                asked = asked => match asked {
                    Ok(answer) => return Ok(answer),
                    Err(refused) => refused,
                },
                lost = self.over() => return Err(lost.into()),
            };
            match refused.verdict {
                // Boxed, as it is rare and large.
                Verdict::LeaseGone => Box::pin(self.confirm_lease()).await?,
                _ => return Err(refused.into_error(doing)),
            }
            failures += 1;
            tokio::time::sleep(backoff(failures)).await;
        }
    }

    /// As [`ask`](Self::ask), about a lock or election, which an error then names.
    pub(crate) async fn ask_about<T, F>(
        &self,
        name: &Name,
        doing: &'static str,
        attempt: impl Fn() -> F,
    ) -> Result<Answer<T>>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let answer = self.ask(doing, attempt).await;
        answer.map_err(|error| error.on(name))
    }

    /// As [`ask`](Self::ask), but not for longer than `limit`; `None` if it took that long.
    pub(crate) async fn ask_within<T, F>(
        &self,
        limit: Duration,
        doing: &'static str,
        attempt: impl Fn() -> F,
    ) -> Option<Result<Answer<T>>>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        tokio::time::timeout(limit, self.ask(doing, attempt))
            .await
            .ok()
    }

    /// Ends the session if the lease is really gone: the errors of a request and the answers
    /// of a lagging member say so of a lease that was granted a moment ago, too.
    pub(crate) async fn confirm_lease(&self) -> Result<(), Lost> {
        let deadline = Some(Instant::now() + self.ttl);
        let ask = || self.etcd.time_to_live(self.lease);
        tokio::select! {
            biased;
            answer = until_answered(&self.etcd, Hedge::Late(&self.pace), deadline, ask) => match answer {
                Ok(Answer { value: None, .. }) => Err(self.end(Lost::LeaseGone)),
                // Alive, or unknown: only time or a clear answer ends a session.
                Ok(_) | Err(_) => Ok(()),
            },
            lost = self.over() => Err(lost),
        }
    }
}
