//! The early warning: the least time that renewals had left, of late.
//!
//! The last value would say little, as there are many renewals between two scrapes; the least
//! ever would not recover. So it is the least of this span of time and of the one before.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const SPAN: Duration = Duration::from_secs(5 * 60);

/// That of the sessions of this process, the worst of them.
pub(super) static SPARE: Spare = Spare(Mutex::new(None));

pub(super) struct Spare(Mutex<Option<Window>>);

#[derive(Clone, Copy)]
struct Window {
    since: Instant,
    least: f64,
    before: f64,
}

impl Spare {
    /// Takes note of what a renewal had left; gives the least of late.
    pub(super) fn note(&self, now: Instant, left: f64) -> f64 {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match *window {
            None => Window {
                since: now,
                least: left,
                before: 1.0,
            },
            Some(last) => {
                let age = now.saturating_duration_since(last.since);
                if age < SPAN {
                    Window {
                        least: last.least.min(left),
                        ..last
                    }
                } else {
                    Window {
                        since: now,
                        least: left,
                        before: if age < 2 * SPAN { last.least } else { 1.0 },
                    }
                }
            }
        };
        *window = Some(next);
        next.least.min(next.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_remembered_for_a_span_and_forgotten_after_two() {
        let (spare, start) = (Spare(Mutex::new(None)), Instant::now());
        let at = |seconds: u64, left: f64| {
            let least = spare.note(start + Duration::from_secs(seconds), left);
            (least * 100.0).round()
        };
        assert!((at(0, 0.9) - 90.0).abs() < 0.1);
        assert!((at(1, 0.2) - 20.0).abs() < 0.1);
        assert!((at(299, 0.9) - 20.0).abs() < 0.1);
        assert!((at(300, 0.8) - 20.0).abs() < 0.1, "of the span before");
        assert!((at(600, 0.9) - 80.0).abs() < 0.1);
        assert!((at(9_000, 1.0) - 100.0).abs() < 0.1, "long ago");
    }
}
