//! Counting, by the facade of the crate `metrics`.

use super::spare::SPARE;
use crate::error::Lost;
use crate::key::Name;
use metrics::{
    Label, SharedString, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use std::time::Duration;
use tokio::time::Instant;

/// Counts by name, or for all names together.
#[derive(Clone, Copy)]
pub(crate) struct Meter {
    by_name: bool,
}

impl Meter {
    pub(crate) fn new(by_name: bool) -> Self {
        Self { by_name }
    }

    pub(crate) fn waits(self, name: &Name) -> Waiting {
        let labels = self.labels(name);
        gauge!("etcd_lock_waiting", labels.clone()).increment(1);
        Waiting {
            labels,
            since: Instant::now(),
            outcome: false,
        }
    }

    pub(crate) fn holds(self, name: &Name) -> Holding {
        let labels = self.labels(name);
        gauge!("etcd_lock_held", labels.clone()).increment(1);
        for cause in LOSSES {
            let none_yet = with_cause(&labels, word(cause));
            counter!("etcd_lock_lost_total", none_yet).increment(0);
        }
        Holding { labels }
    }

    fn labels(self, name: &Name) -> Vec<Label> {
        let name = || SharedString::from(beginning(name.family()).to_owned());
        self.by_name
            .then(|| Label::new("name", name()))
            .into_iter()
            .collect()
    }
}

/// Of a name that is too long for a label.
fn beginning(name: &str) -> &str {
    const LONGEST: usize = 256;
    let mut ends = (0..=LONGEST.min(name.len())).rev();
    &name[..ends.find(|n| name.is_char_boundary(*n)).unwrap_or(0)]
}

/// Somebody waits, until dropped.
pub(crate) struct Waiting {
    labels: Vec<Label>,
    since: Instant,
    outcome: bool,
}

impl Waiting {
    pub(crate) fn acquired(&mut self) {
        self.outcome = true;
        let labels = &self.labels;
        counter!("etcd_lock_acquired_total", labels.clone()).increment(1);
        histogram!("etcd_lock_wait_seconds", labels.clone()).record(self.since.elapsed());
    }

    pub(crate) fn not_acquired(&mut self, cause: &'static str) {
        self.outcome = true;
        let labels = with_cause(&self.labels, cause);
        counter!("etcd_lock_not_acquired_total", labels).increment(1);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.outcome {
            self.not_acquired("cancelled");
        }
        gauge!("etcd_lock_waiting", self.labels.clone()).decrement(1);
    }
}

/// Something is held.
pub(crate) struct Holding {
    labels: Vec<Label>,
}

impl Holding {
    /// Said once.
    pub(crate) fn ended(&self, held: Duration, lost: Option<Lost>) {
        let labels = &self.labels;
        gauge!("etcd_lock_held", labels.clone()).decrement(1);
        histogram!("etcd_lock_hold_seconds", labels.clone()).record(held);
        if let Some(lost) = lost {
            let labels = with_cause(labels, word(lost));
            counter!("etcd_lock_lost_total", labels).increment(1);
        }
    }
}

fn with_cause(labels: &[Label], cause: &'static str) -> Vec<Label> {
    let cause = Label::from_static_parts("cause", cause);
    labels.iter().cloned().chain([cause]).collect()
}

/// What is counted from 0 on: Prometheus sees no increase in what was not there before.
const LOSSES: [Lost; 5] = [
    Lost::Expired,
    Lost::LeaseGone,
    Lost::Broken,
    Lost::KeyDeleted,
    Lost::Stalled,
];

fn word(lost: Lost) -> &'static str {
    match lost {
        Lost::Expired => "expired",
        Lost::LeaseGone => "lease_gone",
        Lost::Broken => "broken",
        Lost::KeyDeleted => "key_deleted",
        Lost::Stalled => "stalled",
        Lost::Closed => "closed",
    }
}

pub(crate) fn session_opened() {
    describe();
    gauge!("etcd_lock_sessions").increment(1);
    for cause in LOSSES {
        counter!("etcd_lock_sessions_ended_total", "cause" => word(cause)).increment(0);
    }
    counter!("etcd_lock_renewals_late_total").increment(0);
    counter!("etcd_lock_swept_keys_total").increment(0);
}

pub(crate) fn session_ended(cause: Lost) {
    gauge!("etcd_lock_sessions").decrement(1);
    counter!("etcd_lock_sessions_ended_total", "cause" => word(cause)).increment(1);
    if cause == Lost::Expired {
        spare(0.0);
    }
}

pub(crate) fn renewed(after: Duration, left: f64, late: bool) {
    histogram!("etcd_lock_renewal_seconds").record(after);
    spare(left);
    if late {
        counter!("etcd_lock_renewals_late_total").increment(1);
    }
}

fn spare(left: f64) {
    gauge!("etcd_lock_renewal_spare_min_ratio").set(SPARE.note(Instant::now(), left));
}

pub(crate) fn stood_still(late: Duration) {
    histogram!("etcd_lock_stood_still_seconds").record(late);
}

pub(crate) fn swept() {
    counter!("etcd_lock_swept_keys_total").increment(1);
}

/// Again for every session, as the recorder may have been installed since the last.
fn describe() {
    describe_gauge!("etcd_lock_held", "Locks and elections held now");
    describe_gauge!("etcd_lock_waiting", "Calls that wait for a turn now");
    describe_gauge!("etcd_lock_sessions", "Sessions that live now");
    describe_gauge!(
        "etcd_lock_renewal_spare_min_ratio",
        "The least that was left, in some minutes, of the time a renewal has: 1 all, 0 lost"
    );
    describe_counter!("etcd_lock_acquired_total", "Turns that came");
    describe_counter!(
        "etcd_lock_not_acquired_total",
        "Calls that ended without a turn, by cause"
    );
    describe_counter!("etcd_lock_lost_total", "Holds that were lost, by cause");
    describe_counter!(
        "etcd_lock_sessions_ended_total",
        "Sessions that ended, by cause"
    );
    describe_counter!(
        "etcd_lock_renewals_late_total",
        "Renewals that were answered when more than half of the time they have was gone"
    );
    describe_counter!(
        "etcd_lock_swept_keys_total",
        "Keys of late requests that were removed"
    );
    describe_histogram!("etcd_lock_wait_seconds", "From the call to the turn");
    describe_histogram!(
        "etcd_lock_hold_seconds",
        "From the turn to the release or loss"
    );
    describe_histogram!(
        "etcd_lock_renewal_seconds",
        "From sending a renewal to its answer"
    );
    describe_histogram!(
        "etcd_lock_stood_still_seconds",
        "For how long this process stood still"
    );
}
