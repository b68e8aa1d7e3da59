//! Granting a lease.

use super::core::Core;
use super::pace::Pace;
use super::retry::{Hedge, Refused, until_answered};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::etcd::{Etcd, Verdict};
use std::time::Duration;
use tokio::time::Instant;

/// The longest TTL that etcd grants, in seconds.
const MOST_SECONDS: i64 = 9_000_000_000;

pub(super) struct Grant {
    pub(super) id: i64,
    pub(super) ttl: Duration,
    /// Before etcd can have begun to count.
    pub(super) sent: Moment,
}

/// Grants a lease of which most of the TTL is left, under an id of our own choosing, so that a
/// lost answer leaves no orphan.
pub(super) async fn grant(
    etcd: &Etcd,
    ttl: i64,
    deadline: Option<Instant>,
    doing: &'static str,
) -> Result<Grant> {
    let asking = Asking {
        etcd,
        pace: &Pace::default(),
        deadline,
    };
    loop {
        let fresh = match asking.grant(ttl).await {
            Ok(Some(grant)) => asking.freshen(grant).await,
            Ok(None) => Ok(None),
            Err(refused) => Err(refused),
        };
        if let Some(grant) = fresh.map_err(|refused| refused.into_error(doing))? {
            return Ok(grant);
        }
    }
}

struct Asking<'a> {
    etcd: &'a Etcd,
    pace: &'a Pace,
    deadline: Option<Instant>,
}

impl Asking<'_> {
    /// Nothing if the chosen id is taken.
    async fn grant(&self, ttl: i64) -> Result<Option<Grant>, Refused> {
        let id = fastrand::i64(1..);
        let first = Moment::now();
        let attempt = || async {
            let sent = Moment::now();
            self.etcd.grant(id, ttl).await.map(|ttl| (sent, ttl))
        };
        let refused = match self.ask(attempt).await {
            Ok((sent, ttl)) => return Ok(Some(Grant { id, ttl, sent })),
            Err(refused) => refused,
        };
        match refused.verdict {
            Verdict::LeaseExists if refused.doubtful => {
                // Granted by an attempt whose answer was lost.
                let found = self.ask(|| self.etcd.time_to_live(id)).await?;
                let sent = first;
                Ok(found.map(|lease| Grant {
                    id,
                    ttl: lease.granted,
                    sent,
                }))
            }
            // Somebody else's: one in 2^63.
            Verdict::LeaseExists => Ok(None),
            _ => Err(refused),
        }
    }

    /// Renews a lease whose grant took long to be answered: how much of it is left is not
    /// known. Nothing if none is.
    async fn freshen(&self, mut grant: Grant) -> Result<Option<Grant>, Refused> {
        while grant.sent.plus(grant.ttl / 3).has_passed(Moment::now()) {
            let attempt = || async {
                let sent = Moment::now();
                self.etcd.renewals(grant.id).await.map(|_stream| sent)
            };
            match self.ask(attempt).await {
                Ok(sent) => grant.sent = sent,
                Err(refused) if refused.verdict == Verdict::LeaseGone => return Ok(None),
                Err(refused) => return Err(refused),
            }
        }
        Ok(Some(grant))
    }

    async fn ask<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Refused>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let hedge = Hedge::Late(self.pace);
        let answer = until_answered(self.etcd, hedge, self.deadline, attempt).await;
        answer.map(|answer| answer.value)
    }
}

impl Core {
    /// Grants a lease that nobody keeps alive: what hangs on it goes after `ttl`. Tries as long
    /// as the session lives.
    pub(crate) async fn grant_apart(&self, ttl: i64) -> Result<i64> {
        tokio::select! {
            biased;
            granted = Box::pin(grant(&self.etcd, ttl, None, "grant a lease")) => Ok(granted?.id),
            lost = self.over() => Err(lost.into()),
        }
    }
}

/// A duration as etcd counts it, rounded up.
pub(crate) fn whole_seconds(what: &'static str, duration: Duration) -> Result<i64> {
    let part = u64::from(duration.subsec_nanos() > 0);
    let whole = i64::try_from(duration.as_secs().saturating_add(part));
    whole
        .ok()
        .filter(|seconds| *seconds <= MOST_SECONDS)
        .ok_or_else(|| Error::invalid(what, "is longer than etcd grants; give less"))
}
