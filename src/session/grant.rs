//! Granting a lease.

use super::core::Core;
use super::pace::Pace;
use super::retry::{Answer, Hedge, until_answered};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::etcd::{Etcd, Verdict};
use std::time::Duration;
use tokio::time::Instant;

/// How long granting goes on trying while no member answers.
const WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Grant {
    pub(super) id: i64,
    pub(super) ttl: Duration,
    /// Before etcd can have begun to count.
    pub(super) sent: Moment,
}

/// Grants a lease under an id of our own choosing, so that a lost answer leaves no orphan.
pub(super) async fn grant(etcd: &Etcd, ttl: i64, doing: &'static str) -> Result<Grant> {
    let deadline = Some(Instant::now() + WITHIN);
    let pace = Pace::default();
    loop {
        let id = fastrand::i64(1..);
        let sent = Moment::now();
        let granted =
            until_answered(etcd, Hedge::Late(&pace), deadline, || etcd.grant(id, ttl)).await;
        let refused = match granted {
            Ok(Answer { value: ttl, .. }) => return Ok(Grant { id, ttl, sent }),
            Err(refused) => refused,
        };
        match refused.verdict {
            Verdict::LeaseExists if refused.doubtful => {
                // Granted by an attempt whose answer was lost.
                let found =
                    until_answered(etcd, Hedge::Late(&pace), deadline, || etcd.granted_ttl(id));
                match found.await {
                    Ok(Answer {
                        value: Some(ttl), ..
                    }) => return Ok(Grant { id, ttl, sent }),
                    Ok(_) => {}
                    Err(refused) => return Err(refused.into_error(doing)),
                }
            }
            // Somebody else's: one in 2^63.
            Verdict::LeaseExists => {}
            _ => return Err(refused.into_error(doing)),
        }
    }
}

impl Core {
    /// Grants a lease that nobody keeps alive: what hangs on it goes after `ttl`.
    pub(crate) async fn grant_apart(&self, ttl: i64) -> Result<i64> {
        tokio::select! {
            granted = grant(&self.etcd, ttl, "grant a lease") => Ok(granted?.id),
            lost = self.over() => Err(lost.into()),
        }
    }
}

/// A duration as etcd counts it, rounded up.
pub(crate) fn whole_seconds(what: &'static str, duration: Duration) -> Result<i64> {
    let part = u64::from(duration.subsec_nanos() > 0);
    let whole = duration.as_secs().checked_add(part);
    whole
        .and_then(|whole| i64::try_from(whole).ok())
        .ok_or_else(|| Error::invalid(what, "is longer than etcd can count; give less"))
}
