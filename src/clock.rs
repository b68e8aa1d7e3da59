//! Time for certainty: it counts while the machine sleeps, never jumps with the
//! wall clock, and follows tokio's paused time in tests.
//!
//! tokio's clock stands still while a machine is suspended, so the time for which it was is
//! counted besides. Nothing else than that comes from another clock: in paused time, what
//! happens does not depend on how fast it happens.

use std::time::Duration;
use tokio::time::Instant;

/// Suspends shorter than this do not count: two clocks cannot be read at one instant.
const NOISE: Duration = Duration::from_millis(10);

/// One instant, and for how long the machine had been suspended by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    tokio: Instant,
    suspended: Duration,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            tokio: Instant::now(),
            suspended: suspended(),
        }
    }

    /// Whether `now` is at or past this moment.
    pub(crate) fn has_passed(self, now: Self) -> bool {
        now.tokio + self.suspended_until(now) >= self.tokio
    }

    /// How long from `now` until this moment passes; zero when it has.
    pub(crate) fn left(self, now: Self) -> Duration {
        let left = self.tokio.saturating_duration_since(now.tokio);
        left.saturating_sub(self.suspended_until(now))
    }

    /// For how long this moment has been past; zero before it.
    pub(crate) fn past(self, now: Self) -> Duration {
        (now.tokio + self.suspended_until(now)).saturating_duration_since(self.tokio)
    }

    pub(crate) fn earlier(self, other: Self) -> Self {
        let on_both = |moment: Self| moment.tokio + moment.suspended;
        if on_both(self) <= on_both(other) {
            self
        } else {
            other
        }
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self {
            tokio: self.tokio + duration,
            ..self
        }
    }

    /// For how long the machine was suspended since this moment was set.
    fn suspended_until(self, now: Self) -> Duration {
        let suspended = now.suspended.saturating_sub(self.suspended);
        if suspended < NOISE {
            Duration::ZERO
        } else {
            suspended
        }
    }
}

/// For how long the machine has been suspended since it was started: by how much the clock that
/// counts that time is ahead of the one that does not.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::ClockId::{Boottime, Monotonic};
    loop {
        let (before, boot, after) = (read(Monotonic), read(Boottime), read(Monotonic));
        // Else this thread stood still in between.
        if after.saturating_sub(before) < NOISE / 4 {
            return boot.saturating_sub(before);
        }
    }
}

#[cfg(target_os = "linux")]
fn read(clock: rustix::time::ClockId) -> Duration {
    let now = rustix::time::clock_gettime(clock);
    // Neither part of these clocks is ever negative.
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Elsewhere it counts only where std's monotonic clock does: on Windows, but not on macOS.
#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
impl Moment {
    /// What this moment is after a suspend of `duration`: tokio's clock stood still.
    fn after_suspend(self, duration: Duration) -> Self {
        Self {
            suspended: self.suspended + duration,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_deadline_passes_at_its_instant_and_not_before() {
        let now = Moment::now();
        let deadline = now.plus(SECOND);
        assert!(!deadline.has_passed(now.plus(Duration::from_millis(999))));
        assert!(deadline.has_passed(now.plus(SECOND)));
        assert_eq!(deadline.left(now), SECOND);
        assert_eq!(deadline.left(now.plus(2 * SECOND)), Duration::ZERO);
    }

    #[test]
    fn suspended_time_counts() {
        let now = Moment::now();
        let deadline = now.plus(SECOND);
        assert!(deadline.has_passed(now.after_suspend(SECOND)));
        assert_eq!(deadline.left(now.after_suspend(SECOND / 4)), SECOND * 3 / 4);
        assert_eq!(deadline.past(now.after_suspend(3 * SECOND)), 2 * SECOND);
        assert_eq!(deadline.past(now.after_suspend(SECOND / 4)), Duration::ZERO);
    }

    #[test]
    fn of_two_deadlines_the_one_that_passes_first_is_the_earlier() {
        let now = Moment::now();
        let later = now.plus(5 * SECOND);
        // Set after a suspend of a minute, and so not reached by that minute.
        let set_later = now.after_suspend(60 * SECOND).plus(SECOND);
        assert_eq!(later.earlier(set_later).left(now), 5 * SECOND);
        assert_eq!(set_later.earlier(later).left(now), 5 * SECOND);
        assert_eq!(later.earlier(now).left(now), Duration::ZERO);
    }

    #[test]
    fn time_that_only_passes_is_no_suspend() {
        let before = Moment::now();
        std::thread::sleep(4 * NOISE);
        let after = Moment::now();
        assert_eq!(before.suspended_until(after), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_counts() {
        let deadline = Moment::now().plus(60 * SECOND);
        assert!(!deadline.has_passed(Moment::now()));
        tokio::time::sleep(60 * SECOND).await;
        assert!(deadline.has_passed(Moment::now()));
    }
}
