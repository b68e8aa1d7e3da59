//! The clock that the command and its guard share: it counts the time for which the machine sleeps.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Time since the machine was started, the same for all of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Uptime(pub(crate) u64);

impl Uptime {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(CLOCK);
        let (seconds, rest) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }

    pub(crate) fn plus(self, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// How long it is until then.
    pub(crate) fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }

    pub(crate) fn has_passed(self) -> bool {
        self <= Self::now()
    }

    /// Waits until then; after a sleep of the machine without delay, on Linux.
    pub(crate) async fn passed(self) {
        while !self.has_passed() {
            // tokio's timers do not count such a sleep, so they may not be trusted for long.
            let pause = self.left().min(Duration::from_millis(250));
            if !woken_by_timer(self).await {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Waits with a timer of the kernel's; false where there is none.
#[cfg(target_os = "linux")]
#[allow(
    deprecated,
    reason = "what follows `AsyncFd::new` is younger than the tokio that we ask for"
)]
async fn woken_by_timer(at: Uptime) -> bool {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    let timer = || {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let time = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at.0 % 1_000_000_000).unwrap_or(0),
            },
        };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &time)?;
        tokio::io::unix::AsyncFd::new(timer)
    };
    match timer() {
        Ok(timer) => timer.readable().await.is_ok(),
        Err(_) => false,
    }
}

#[cfg(not(target_os = "linux"))]
async fn woken_by_timer(_at: Uptime) -> bool {
    false
}
