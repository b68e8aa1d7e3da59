//! Nobody counts.

#![allow(
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    reason = "the same calls as with the feature"
)]

use crate::error::Lost;
use crate::key::Name;
use std::time::Duration;

#[derive(Clone, Copy)]
pub(crate) struct Meter;

impl Meter {
    pub(crate) fn new(_by_name: bool) -> Self {
        Self
    }

    pub(crate) fn waits(self, _name: &Name) -> Waiting {
        Waiting
    }

    pub(crate) fn holds(self, _name: &Name) -> Holding {
        Holding
    }
}

pub(crate) struct Waiting;

impl Waiting {
    pub(crate) fn acquired(&mut self) {}

    pub(crate) fn not_acquired(&mut self, _cause: &'static str) {}
}

pub(crate) struct Holding;

impl Holding {
    pub(crate) fn ended(&self, _held: Duration, _lost: Option<Lost>) {}
}

pub(crate) fn session_opened() {}

pub(crate) fn session_ended(_cause: Lost) {}

pub(crate) fn renewed(_after: Duration, _spare: f64, _late: bool) {}

pub(crate) fn stood_still(_late: Duration) {}

pub(crate) fn swept() {}
