//! Time for certainty: it counts while the machine sleeps, never jumps with the
//! wall clock, and follows tokio's paused time in tests.
//!
//! A moment is read from two clocks at once and a deadline has passed as soon as
//! *either* says so. tokio's clock stands still while a machine is suspended;
//! `CLOCK_BOOTTIME` does not, but knows nothing of paused time.

use std::time::Duration;
use tokio::time::Instant;

/// One instant on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    tokio: Instant,
    boot: Duration,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            tokio: Instant::now(),
            boot: since_boot(),
        }
    }

    /// Whether `now` is at or past this moment, by either clock.
    pub(crate) fn has_passed(self, now: Self) -> bool {
        now.tokio >= self.tokio || now.boot >= self.boot
    }

    /// How long from `now` until this moment passes; zero when it has.
    pub(crate) fn left(self, now: Self) -> Duration {
        let tokio = self.tokio.saturating_duration_since(now.tokio);
        tokio.min(self.boot.saturating_sub(now.boot))
    }

    pub(crate) fn earlier(self, other: Self) -> Self {
        Self {
            tokio: self.tokio.min(other.tokio),
            boot: self.boot.min(other.boot),
        }
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self {
            tokio: self.tokio + duration,
            boot: self.boot + duration,
        }
    }
}

/// Time since the machine was started, suspended time included.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    // Neither part of this clock is ever negative.
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Time since the first call: std's monotonic clock, which counts suspended time
/// on some systems (Windows) and not on others (macOS).
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    static FIRST: OnceLock<std::time::Instant> = OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(test)]
impl Moment {
    /// What this moment is after a suspend of `duration`: only one clock went on.
    fn after_suspend(self, duration: Duration) -> Self {
        Self {
            boot: self.boot + duration,
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
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_counts() {
        let deadline = Moment::now().plus(60 * SECOND);
        assert!(!deadline.has_passed(Moment::now()));
        tokio::time::sleep(60 * SECOND).await;
        assert!(deadline.has_passed(Moment::now()));
    }
}
