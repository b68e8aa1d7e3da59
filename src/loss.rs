//! Why something was lost, in one line.

use crate::error::Lost;
use crate::fencing::FencingToken;
use std::fmt;
use std::time::Duration;

/// What is known of a loss in the moment it is seen, without asking anybody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) cause: Lost,
    /// How long before the loss was seen a renewal was answered.
    pub(crate) answered: Duration,
    /// For how much of that the session's tasks could not run.
    pub(crate) stood_still: Duration,
}

/// Why a session or a hold was lost, for logs and for the people on call.
///
/// Its `Display` is one line, such as *lost: no renewal of the lease was answered in time, it may
/// have expired; the last was answered 9.2 s before; this process stood still for 8.7 s of that;
/// host-7 pid 123 holds now, with token 42*.
///
/// From [`Hold::loss_report`](crate::Hold::loss_report) and
/// [`Session::loss_report`](crate::Session::loss_report). How to read it:
/// [watching](crate::guide::watching).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LossReport {
    /// How it was lost.
    pub cause: Lost,
    /// How long the last answer to a renewal was past when the loss was seen.
    pub answered: Duration,
    /// For how much of that time this process stood still, at least: it was stopped or starved,
    /// its runtime was blocked, or the machine was suspended. Pauses shorter than a quarter of a
    /// second (with a short TTL, a fortieth of it) do not count, and of a longer one up to that
    /// much may be missing.
    pub stood_still: Duration,
    /// Who held when the report was asked for.
    pub now: HeldNow,
}

/// Who holds a name after a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldNow {
    /// etcd was not asked: a session has no one name.
    NotAsked,
    /// etcd did not answer in time, or refused.
    Unknown,
    /// Nobody stands in the line, or the lost hold's own key still does, until its lease ends.
    Nobody,
    /// Somebody else does.
    Held {
        /// The label of the holder's session; for other clients the value of their key.
        label: String,
        /// The holder's key.
        key: String,
        /// The token that it holds with.
        token: FencingToken,
    },
}

impl LossReport {
    pub(crate) fn new(loss: Loss, now: HeldNow) -> Self {
        let Loss {
            cause,
            answered,
            stood_still,
        } = loss;
        Self {
            cause,
            answered,
            stood_still,
            now,
        }
    }
}

impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, stood_still) = (self.answered.as_secs_f64(), self.stood_still.as_secs_f64());
        let what = match self.cause {
            Lost::Expired => "the last",
            _ => "the last renewal",
        };
        write!(
            f,
            "{}; {what} was answered {answered:.1} s before",
            self.cause
        )?;
        if !self.stood_still.is_zero() {
            write!(
                f,
                "; this process stood still for {stood_still:.1} s of that"
            )?;
        } else if self.cause == Lost::Expired {
            write!(f, "; this process ran all the while")?;
        }
        match &self.now {
            HeldNow::NotAsked => Ok(()),
            HeldNow::Unknown => write!(f, "; etcd does not say who holds now"),
            HeldNow::Nobody => write!(f, "; nobody else holds yet"),
            HeldNow::Held { label, token, .. } => {
                write!(f, "; {label} holds now, with token {token}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cause: Lost, stood_still: u64, now: HeldNow) -> String {
        let loss = Loss {
            cause,
            answered: Duration::from_millis(9_200),
            stood_still: Duration::from_millis(stood_still),
        };
        LossReport::new(loss, now).to_string()
    }

    #[test]
    fn a_report_is_one_line_that_says_whose_fault_it_was() {
        let held = HeldNow::Held {
            label: "host-7 pid 123".to_owned(),
            key: "a/1f-0".to_owned(),
            token: FencingToken::of(42),
        };
        let stopped = report(Lost::Expired, 8_700, held);
        assert_eq!(
            stopped,
            "lost: no renewal of the lease was answered in time, it may have expired; the last \
             was answered 9.2 s before; this process stood still for 8.7 s of that; \
             host-7 pid 123 holds now, with token 42"
        );
        let cut = report(Lost::Expired, 0, HeldNow::Unknown);
        assert!(
            cut.ends_with("this process ran all the while; etcd does not say who holds now"),
            "{cut}"
        );
        let deleted = report(Lost::KeyDeleted, 0, HeldNow::Nobody);
        assert!(
            deleted.ends_with("the last renewal was answered 9.2 s before; nobody else holds yet"),
            "{deleted}"
        );
    }
}
