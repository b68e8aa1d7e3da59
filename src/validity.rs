//! Until when a session is certain to live, and how it ended.
//!
//! Certainty is time, not a flag: every question compares the deadline with the
//! clock, so nobody has to be scheduled for an answer to be right. The end is
//! final: once any caller has seen it, a renewal that comes late cannot undo it.

use crate::clock::Moment;
use crate::error::Lost;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Validity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The deadline, or how it ended.
    until: Result<Moment, Lost>,
    /// Work that has to report, if there is any.
    progress: Option<Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    budget: Duration,
    until: Moment,
}

impl Validity {
    pub(crate) fn until(deadline: Moment) -> Self {
        Self(Mutex::new(State {
            until: Ok(deadline),
            progress: None,
        }))
    }

    /// The deadline, or how it ended. Seeing a passed deadline makes it final.
    pub(crate) fn at(&self, now: Moment) -> Result<Moment, Lost> {
        self.state().at(now)
    }

    /// The deadline that renewals have set, whatever the work does.
    pub(crate) fn renewed_until(&self, now: Moment) -> Result<Moment, Lost> {
        let mut state = self.state();
        state.at(now)?;
        state.until
    }

    /// Moves the deadline, which only ever grows, unless it had passed before.
    pub(crate) fn extend(&self, now: Moment, to: Moment) -> Result<(), Lost> {
        let mut state = self.state();
        state.at(now)?;
        if let Ok(until) = state.until
            && until.has_passed(to)
        {
            state.until = Ok(to);
        }
        Ok(())
    }

    /// Ends it for `cause`, unless it has ended already; gives the cause that counts.
    pub(crate) fn end(&self, now: Moment, cause: Lost) -> Lost {
        let mut state = self.state();
        match state.at(now) {
            Ok(_) => {
                state.until = Err(cause);
                cause
            }
            Err(lost) => lost,
        }
    }

    /// From now on, work has to report progress at least once per `budget`.
    pub(crate) fn expect_progress(&self, now: Moment, budget: Duration) {
        let until = now.plus(budget);
        self.state().progress = Some(Progress { budget, until });
    }

    /// Work has got on. Too late is too late.
    pub(crate) fn progress(&self, now: Moment) {
        let mut state = self.state();
        if state.at(now).is_ok()
            && let Some(progress) = &mut state.progress
        {
            progress.until = now.plus(progress.budget);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn at(&mut self, now: Moment) -> Result<Moment, Lost> {
        let until = self.until?;
        let stalled = self
            .progress
            .filter(|progress| progress.until.has_passed(now));
        if until.has_passed(now) {
            self.until = Err(Lost::Expired);
        } else if stalled.is_some() {
            self.until = Err(Lost::Stalled);
        }
        let until = self.until?;
        Ok(self
            .progress
            .map_or(until, |progress| until.earlier(progress.until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_renewal_moves_the_deadline() {
        let t0 = Moment::now();
        let validity = Validity::until(t0.plus(SECOND));
        assert!(validity.extend(t0, t0.plus(3 * SECOND)).is_ok());
        assert!(validity.at(t0.plus(2 * SECOND)).is_ok());
        assert_eq!(validity.at(t0.plus(3 * SECOND)).err(), Some(Lost::Expired));
    }

    #[test]
    fn a_renewal_sent_earlier_never_shortens() {
        let t0 = Moment::now();
        let validity = Validity::until(t0.plus(3 * SECOND));
        assert!(validity.extend(t0, t0.plus(SECOND)).is_ok());
        assert!(validity.at(t0.plus(2 * SECOND)).is_ok());
    }

    #[test]
    fn a_late_renewal_brings_nothing_back() {
        let t0 = Moment::now();
        let validity = Validity::until(t0.plus(SECOND));
        let late = t0.plus(SECOND);
        assert!(validity.extend(late, late.plus(SECOND)).is_err());
        // Even asked with an earlier clock: it was seen to be over.
        assert_eq!(validity.at(t0).err(), Some(Lost::Expired));
    }

    #[test]
    fn the_first_cause_counts() {
        let t0 = Moment::now();
        let validity = Validity::until(t0.plus(SECOND));
        assert_eq!(validity.end(t0, Lost::Closed), Lost::Closed);
        assert_eq!(validity.end(t0, Lost::LeaseGone), Lost::Closed);
        let validity = Validity::until(t0.plus(SECOND));
        assert_eq!(validity.end(t0.plus(SECOND), Lost::Closed), Lost::Expired);
    }

    #[test]
    fn work_that_reports_nothing_ends_it_though_renewals_go_on() {
        let t0 = Moment::now();
        let validity = Validity::until(t0.plus(60 * SECOND));
        validity.expect_progress(t0, 2 * SECOND);
        validity.progress(t0.plus(SECOND));
        assert!(validity.at(t0.plus(2 * SECOND)).is_ok());
        let left = validity
            .at(t0.plus(2 * SECOND))
            .unwrap()
            .left(t0.plus(2 * SECOND));
        assert_eq!(left, SECOND, "the deadline is the earlier of the two");
        assert_eq!(validity.at(t0.plus(3 * SECOND)).err(), Some(Lost::Stalled));
        validity.progress(t0.plus(3 * SECOND));
        assert_eq!(validity.at(t0.plus(3 * SECOND)).err(), Some(Lost::Stalled));
    }
}
