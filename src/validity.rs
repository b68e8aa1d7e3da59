//! Until when a session is certain to live, and how it ended.
//!
//! Certainty is time, not a flag: every question compares the deadline with the
//! clock, so nobody has to be scheduled for an answer to be right. The end is
//! final: once any caller has seen it, a renewal that comes late cannot undo it.

use crate::clock::Moment;
use crate::error::Lost;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct Validity(Mutex<State>);

#[derive(Clone, Copy, Debug)]
enum State {
    Until(Moment),
    Over(Lost),
}

impl Validity {
    pub(crate) fn until(deadline: Moment) -> Self {
        Self(Mutex::new(State::Until(deadline)))
    }

    /// The deadline, or how it ended. Seeing a passed deadline makes it final.
    pub(crate) fn at(&self, now: Moment) -> Result<Moment, Lost> {
        self.with(|state| match *state {
            State::Until(deadline) if deadline.has_passed(now) => {
                *state = State::Over(Lost::Expired);
                Err(Lost::Expired)
            }
            State::Until(deadline) => Ok(deadline),
            State::Over(lost) => Err(lost),
        })
    }

    /// Moves the deadline, which only ever grows, unless it had passed before.
    pub(crate) fn extend(&self, now: Moment, to: Moment) -> Result<Moment, Lost> {
        let deadline = self.at(now)?;
        self.with(|state| match *state {
            State::Over(lost) => Err(lost),
            State::Until(_) if deadline.has_passed(to) => {
                *state = State::Until(to);
                Ok(to)
            }
            State::Until(current) => Ok(current),
        })
    }

    /// Ends it for `cause`, unless it has ended already; gives the cause that counts.
    pub(crate) fn end(&self, now: Moment, cause: Lost) -> Lost {
        let _ended_by_time = self.at(now);
        self.with(|state| match *state {
            State::Over(lost) => lost,
            State::Until(_) => {
                *state = State::Over(cause);
                cause
            }
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
}
