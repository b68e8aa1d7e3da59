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
use crate::metrics;
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
/// still while the machine is suspended, certainty does not. Each look is a beat of the pulse.
async fn watch_the_clock(core: &Core) -> Lost {
    loop {
        match core.certain() {
            Ok(until) => {
                let now = Moment::now();
                core.pulse.beat(now);
                let next = until.left(now).min(core.margin).min(core.pulse.step());
                sleep(next.max(Duration::from_millis(1))).await;
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
    let certain_for = core.ttl.saturating_sub(core.margin);
    let now = Moment::now();
    let left = core
        .validity
        .renewed_until(now)
        .map(|until| until.left(now));
    core.validity
        .extend(now, sent.plus(certain_for))
        .map_err(|lost| core.end(lost))?;
    let stood_still = core.pulse.answered(now);
    if let Ok(left) = left {
        let (after, spare) = (sent.past(now), spare(core.ttl, certain_for, left));
        let late = spare < LATE;
        metrics::renewed(after, spare, late);
        if late {
            tracing::warn!(
                lease = %format_args!("{:x}", core.lease),
                ?left,
                ?after,
                ?stood_still,
                "renewed late"
            );
        }
    }
    Ok(())
}

/// A renewal is late when less than this part of its time was left.
const LATE: f64 = 0.5;

/// What was left, as a part of the time that a renewal has: from TTL/3 after the last, when it is
/// due, to the end of certainty. So it says the same whatever TTL and margin are.
fn spare(ttl: Duration, certain_for: Duration, left: Duration) -> f64 {
    let has = certain_for.saturating_sub(ttl / 3);
    (left.as_secs_f64() / has.as_secs_f64()).min(1.0)
}

/// How long a renewal may be unanswered before others are sent: so that about seventeen fit into
/// what is left of a TTL of up to 15 s after a renewal was due. Each goes to a member by chance, on
/// connections of etcd-client: of ten with one of two members silent, all go to that one once in a
/// thousand renewals.
fn patience(ttl: Duration) -> Duration {
    (ttl / 30).clamp(Duration::from_millis(33), Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_spare_is_one_when_due_and_half_when_late_whatever_the_margin() {
        let ttl = 12 * SECOND;
        for certain_for in [11 * SECOND, 6 * SECOND] {
            let after = |time| spare(ttl, certain_for, certain_for.saturating_sub(time));
            assert!((after(ttl / 3) - 1.0).abs() < 1e-9);
            // The jitter of 10 %.
            assert!(after(ttl.mul_f64(0.37)) > LATE);
            let half = (ttl / 3 + certain_for) / 2;
            assert!((after(half) - LATE).abs() < 1e-9);
            assert!(after(certain_for).abs() < 1e-9);
            assert!((after(SECOND) - 1.0).abs() < 1e-9, "sooner is no better");
        }
    }
}
