//! The keeper: renews the lease and tells when it is over.
//!
//! A renewal moves the certain time to *its sending* + TTL - margin, never to its answer's
//! arrival: etcd may have counted from any moment in between. A renewal that fails changes
//! nothing. One that is not answered in time gets company on new streams, which etcd-client
//! opens on members of its choice, until one is answered or certainty ends.

use super::core::Core;
use super::retry::{Answer, Hedge, Refused, backoff, until_answered};
use crate::clock::Moment;
use crate::error::Lost;
use crate::etcd::{Renewals, Verdict};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(super) async fn run(core: std::sync::Arc<Core>) {
    let mut stream = None;
    while wait_for_turn(&core).await.is_ok() {
        tokio::select! {
            biased;
            renewed = renew(&core, &mut stream) => if renewed.is_err() { return },
            // The clock may say so while a renewal is stuck.
            _lost = watch_the_clock(&core) => return,
            _lost = core.over() => return,
        }
    }
}

/// Sleeps until the next renewal is due: TTL/3 after the last was sent, with a jitter of 10 %,
/// so that sessions which were opened together do not renew together.
async fn wait_for_turn(core: &Core) -> Result<(), Lost> {
    let interval = (core.ttl / 3).mul_f64(0.9 + 0.2 * fastrand::f64());
    let left = core
        .validity
        .renewed_until(Moment::now())?
        .left(Moment::now());
    let age = core.ttl.saturating_sub(core.margin + left);
    let due = Instant::now() + interval.saturating_sub(age);
    tokio::select! {
        biased;
        () = sleep_until(due) => core.certain().map(drop),
        lost = watch_the_clock(core) => Err(lost),
        lost = core.over() => Err(lost),
    }
}

/// Ends the session once its time has passed. Looks once per margin at least: a timer stands
/// still while the machine is suspended, certainty does not.
async fn watch_the_clock(core: &Core) -> Lost {
    loop {
        match core.certain() {
            Ok(until) => {
                let left = until.left(Moment::now());
                sleep(left.min(core.margin).max(Duration::from_millis(1))).await;
            }
            Err(lost) => return lost,
        }
    }
}

async fn renew(core: &Core, stream: &mut Option<Renewals>) -> Result<(), Lost> {
    if let Some(mut open) = stream.take() {
        let sent = Moment::now();
        match timeout(patience(core.ttl), open.renew()).await {
            Ok(Ok(())) => {
                extend(core, sent)?;
                *stream = Some(open);
                return Ok(());
            }
            Ok(Err(error)) => tracing::debug!(%error, "renewal failed; opening another stream"),
            Err(_elapsed) => tracing::debug!("renewal not answered; opening another stream"),
        }
    }
    let hedge = Hedge::Every(patience(core.ttl));
    let mut failures = 0;
    loop {
        let attempt = || async {
            let sent = Moment::now();
            core.etcd
                .renewals(core.lease)
                .await
                .map(|open| (sent, open))
        };
        match until_answered(&core.etcd, hedge, None, attempt).await {
            Ok(Answer { value, .. }) => {
                extend(core, value.0)?;
                *stream = Some(value.1);
                return Ok(());
            }
            Err(Refused {
                verdict: Verdict::LeaseGone,
                ..
            }) => core.confirm_lease().await?,
            // Permissions may come back before the time is over, and only time ends a session.
            Err(Refused { error, .. }) => tracing::warn!(%error, "etcd refuses to renew a lease"),
        }
        failures += 1;
        // Not as quick as after an error that passes: this one was an answer.
        sleep(backoff(failures + 4)).await;
    }
}

fn extend(core: &Core, sent: Moment) -> Result<(), Lost> {
    let to = sent.plus(core.ttl.saturating_sub(core.margin));
    core.validity
        .extend(Moment::now(), to)
        .map_err(|lost| core.end(lost))
}

/// How long a renewal may be unanswered before others are sent: so that about ten fit into
/// what is left of a TTL after a renewal was due.
fn patience(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(100), Duration::from_millis(500))
}
