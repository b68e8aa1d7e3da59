//! What is seen of waiting and holding: spans, events, and what is counted.
//!
//! Spans are of the level info, so that they give names to all that is said at that level or
//! above. With nobody to see them, nothing is put into words.

use super::fate::End;
use super::hold::Hold;
use super::place::Place;
use crate::error::{Error, Lost, Result};
use crate::etcd::Standing;
use crate::key::Name;
use crate::metrics::{Holding, Waiting};
use crate::session::Core;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Level, Span, debug, event, info_span};

/// Somebody wants a turn: from the call to its outcome. Dropped without one, it was cancelled.
pub(super) struct Waits {
    span: Span,
    counted: Waiting,
}

impl Waits {
    pub(super) fn begin(core: &Core, name: &Name) -> Self {
        let span = info_span!(
            "wait",
            name = name.as_str(),
            lease = %format_args!("{:x}", core.lease),
            key = Empty,
            token = Empty,
            ahead = Empty
        );
        let counted = core.meter.waits(name);
        Self { span, counted }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Its key stands.
    pub(super) fn joined(&self, place: &Place) {
        if !self.span.is_disabled() {
            self.span.record("key", &*place.key);
            self.span.record("token", place.revision);
        }
        debug!(parent: &self.span, "joined");
    }

    /// Ends with the turn, or with an error.
    pub(super) fn over(mut self, turn: Result<Place>) -> Result<Hold> {
        let hold = turn.and_then(|place| Hold::begin(place, &self.span));
        match &hold {
            Ok(_) => self.counted.acquired(),
            Err(error) => self.failed(error),
        }
        hold
    }

    pub(super) fn failed(mut self, error: &Error) {
        debug!(parent: &self.span, %error, "no turn");
        self.counted.not_acquired(match error {
            Error::Lost(_) => "lost",
            _ => "refused",
        });
    }

    pub(super) fn timed_out(mut self) {
        debug!(parent: &self.span, "no turn in time");
        self.counted.not_acquired("timed_out");
    }

    pub(super) fn busy(mut self, first: &Standing) {
        debug!(
            parent: &self.span,
            holder = %String::from_utf8_lossy(&first.key),
            "busy"
        );
        self.counted.not_acquired("busy");
    }
}

/// A hold, from its turn to its end.
pub(super) struct Holds {
    pub(super) key: Arc<str>,
    pub(super) revision: i64,
    pub(super) span: Span,
    name: Name,
    lease: i64,
    since: Instant,
    counted: Holding,
}

impl Holds {
    /// `waited` is the span of the wait before, which is no part of the hold.
    pub(super) fn begin(place: &Place, waited: &Span) -> Self {
        let core = place.session.core();
        let span = info_span!(
            "hold",
            name = place.name.as_str(),
            key = &*place.key,
            token = place.revision,
            lease = %format_args!("{:x}", core.lease)
        );
        span.follows_from(waited);
        debug!(parent: &span, "turn");
        Self {
            key: place.key.clone(),
            revision: place.revision,
            span,
            name: place.name.clone(),
            lease: core.lease,
            since: Instant::now(),
            counted: core.meter.holds(&place.name),
        }
    }

    /// Said once.
    pub(super) fn ended(&self, end: End) {
        let loss = match end {
            End::Released => None,
            End::Lost(loss) => Some(loss),
        };
        let held = self.since.elapsed();
        self.counted.ended(held, loss.map(|loss| loss.cause));
        let Some(loss) = loss else {
            debug!(parent: &self.span, ?held, "released");
            return;
        };
        // With all that the span says, as that may be too low a level for who sees this.
        macro_rules! lost {
            ($level:expr) => {
                event!(
                    parent: &self.span,
                    $level,
                    name = self.name.as_str(),
                    key = &*self.key,
                    token = self.revision,
                    lease = %format_args!("{:x}", self.lease),
                    cause = %loss.cause,
                    ?held,
                    answered_before = ?loss.answered,
                    stood_still = ?loss.stood_still,
                    "hold lost"
                )
            };
        }
        // A session that is closed by its own program takes along what it means to.
        if loss.cause == Lost::Closed {
            lost!(Level::DEBUG);
        } else {
            lost!(Level::WARN);
        }
    }
}
