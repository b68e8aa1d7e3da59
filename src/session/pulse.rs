//! The session's pulse: when a renewal was answered last, and how long we stood still since.
//!
//! The keeper beats many times per TTL. A beat that comes late tells of time in which it could not
//! run: the process was stopped or starved, its runtime blocked, the machine suspended. So a pause
//! of our own is told apart from an etcd that does not answer; and whoever sees a loss before the
//! keeper runs again sees the beat that is missing.

use crate::clock::Moment;
use crate::error::Lost;
use crate::loss::Loss;
use crate::metrics;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Pulse {
    step: Duration,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    /// When a renewal was answered last; at first, the grant.
    answered: Moment,
    /// When the next beat is to come.
    due: Moment,
    /// How late beats were since, all together.
    stood_still: Duration,
}

impl Pulse {
    pub(super) fn begin(margin: Duration, now: Moment) -> Self {
        let step = (margin / 4).clamp(Duration::from_millis(50), Duration::from_millis(250));
        let state = State {
            answered: now,
            due: now.plus(step),
            stood_still: Duration::ZERO,
        };
        let state = Mutex::new(state);
        Self { step, state }
    }

    /// When the next beat has to come, after each.
    pub(super) fn step(&self) -> Duration {
        self.step
    }

    /// The keeper runs.
    pub(super) fn beat(&self, now: Moment) {
        let mut state = self.state();
        let late = self.late(*state, now);
        state.stood_still += late;
        state.due = now.plus(self.step);
        drop(state);
        if !late.is_zero() {
            metrics::stood_still(late);
        }
    }

    /// A renewal is answered; gives how long we stood still since the one before.
    pub(super) fn answered(&self, now: Moment) -> Duration {
        self.beat(now);
        let mut state = self.state();
        state.answered = now;
        std::mem::take(&mut state.stood_still)
    }

    /// Something is seen to be lost.
    pub(super) fn loss(&self, cause: Lost, now: Moment) -> Loss {
        let state = *self.state();
        let answered = state.answered.past(now);
        let stood_still = state.stood_still + self.late(state, now);
        Loss {
            cause,
            answered,
            stood_still: stood_still.min(answered),
        }
    }

    /// By how much the next beat is late, if that is worth counting: timers are not exact.
    fn late(&self, state: State, now: Moment) -> Duration {
        let late = state.due.past(now);
        if late < self.step {
            Duration::ZERO
        } else {
            late
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn beats_in_time_are_no_stand_still_and_late_ones_are() {
        let start = Moment::now();
        let pulse = Pulse::begin(SECOND, start);
        let step = pulse.step();
        pulse.beat(start.plus(step + step / 2));
        let running = pulse.loss(Lost::Expired, start.plus(2 * step));
        assert_eq!(running.stood_still, Duration::ZERO);
        assert_eq!(running.answered, 2 * step);
        pulse.beat(start.plus(5 * SECOND));
        let stopped = pulse.loss(Lost::Expired, start.plus(5 * SECOND));
        assert!(stopped.stood_still > 4 * SECOND, "{stopped:?}");
        assert!(stopped.stood_still < stopped.answered, "{stopped:?}");
    }

    #[test]
    fn who_sees_a_loss_first_sees_the_beat_that_is_missing() {
        let start = Moment::now();
        let pulse = Pulse::begin(SECOND, start);
        let loss = pulse.loss(Lost::Expired, start.plus(9 * SECOND));
        assert_eq!(loss.stood_still + pulse.step(), 9 * SECOND);
    }

    #[test]
    fn an_answer_begins_a_new_count() {
        let start = Moment::now();
        let pulse = Pulse::begin(SECOND, start);
        let stood_still = pulse.answered(start.plus(3 * SECOND));
        assert_eq!(stood_still + pulse.step(), 3 * SECOND);
        let loss = pulse.loss(Lost::LeaseGone, start.plus(3 * SECOND));
        assert_eq!((loss.answered, loss.stood_still), Default::default());
    }
}
