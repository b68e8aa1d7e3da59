//! How long an answer usually takes, and so when it is late.
//!
//! As TCP's retransmission timer (Jacobson and Karels; RFC 6298): the smoothed time and its
//! smoothed deviation, late after time + 4 deviations. Answers that are quicker than usual are no
//! deviation, as in Linux since the Eifel algorithm: else one slow answer among the first, as of a
//! cluster that elects a leader, would make others late only after seconds for long. A second attempt helps against a member
//! that is frozen; against one that is overloaded it makes things worse, and there all answers
//! become slow (seen: 1,000 waiters that asked again after a fixed 250 ms kept a server busy until
//! their own session was lost).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nothing is late before this: two round trips across an ocean, and a busy machine.
const SOONEST: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Option<Estimate>>);

#[derive(Clone, Copy, Debug)]
struct Estimate {
    time: Duration,
    deviation: Duration,
}

impl Pace {
    /// Takes note of an answer, counted from the sending of the attempt that was answered.
    pub(crate) fn answered(&self, after: Duration) {
        let mut estimate = self.estimate();
        *estimate = Some(match *estimate {
            None => Estimate {
                time: after,
                deviation: after / 2,
            },
            Some(Estimate { time, deviation }) => Estimate {
                time: (time * 7 + after) / 8,
                deviation: (deviation * 3 + after.saturating_sub(time)) / 4,
            },
        });
    }

    /// When an attempt that is not answered is late.
    pub(crate) fn late_after(&self) -> Duration {
        let late = self.estimate().map(|now| now.time + now.deviation * 4);
        late.unwrap_or(SOONEST).max(SOONEST)
    }

    fn estimate(&self) -> MutexGuard<'_, Option<Estimate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_answers_make_nothing_late_sooner_than_the_least() {
        let pace = Pace::default();
        assert_eq!(pace.late_after(), SOONEST);
        (0..100).for_each(|_| pace.answered(Duration::from_millis(1)));
        assert_eq!(pace.late_after(), SOONEST);
    }

    #[test]
    fn one_slow_answer_is_soon_forgotten() {
        let pace = Pace::default();
        pace.answered(Duration::from_secs(1));
        (0..10).for_each(|_| pace.answered(Duration::from_millis(1)));
        assert!(pace.late_after() < 2 * SOONEST, "{:?}", pace.late_after());
    }

    #[test]
    fn when_all_answers_are_slow_none_is_late_and_it_recovers() {
        let pace = Pace::default();
        (0..30).for_each(|_| pace.answered(Duration::from_secs(2)));
        assert!(pace.late_after() > Duration::from_secs(2));
        (0..50).for_each(|_| pace.answered(Duration::from_millis(1)));
        assert_eq!(pace.late_after(), SOONEST);
    }
}
