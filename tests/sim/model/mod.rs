//! An etcd in memory: revisions, transactions, leases, watches.
//!
//! Nothing in here waits or knows of a network: requests are applied one after the other, at a
//! time that the caller tells. `agrees` compares it with real servers.

mod lease;
mod range;
mod store;
mod txn;
mod watch;

pub use lease::Renewal;

use etcd_client::proto::{PbEvent, PbKeyValue, PbResponseHeader, PbWatchResponse};
use lease::Lease;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tonic::Status;
use watch::Watcher;

#[derive(Default)]
pub struct Model {
    now: Duration,
    /// The revision of the last change, counted from 0: etcd's own begins with 1.
    changes: i64,
    compacted: i64,
    keys: BTreeMap<Vec<u8>, PbKeyValue>,
    /// What the change to each revision was.
    history: Vec<(i64, Vec<PbEvent>)>,
    leases: BTreeMap<i64, Lease>,
    /// The ids of those that have ended: a late grant gives one of them a second life.
    ended: BTreeSet<i64>,
    watchers: BTreeMap<(u64, i64), Watcher>,
    /// What is to be sent on which watch stream.
    outbox: Vec<(u64, PbWatchResponse)>,
}

impl Model {
    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn revision(&self) -> i64 {
        self.changes + 1
    }

    /// The header of an answer, as answers have it.
    #[allow(
        clippy::unnecessary_wraps,
        reason = "its place in an answer may be empty"
    )]
    pub fn header(&self) -> Option<PbResponseHeader> {
        Some(PbResponseHeader {
            cluster_id: 1,
            member_id: 1,
            revision: self.revision(),
            raft_term: 1,
        })
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &PbKeyValue> {
        self.keys.values()
    }

    /// Whether a lease of that id has come to its end, once at least.
    pub fn has_ended(&self, lease: i64) -> bool {
        self.ended.contains(&lease)
    }

    /// The ids of all leases, in order.
    pub fn lease_ids(&self) -> impl Iterator<Item = i64> {
        self.leases.keys().copied()
    }

    /// How many watches there are, on all streams.
    pub fn watches(&self) -> usize {
        self.watchers.len()
    }

    /// Takes what is to be sent on watch streams.
    pub fn take_outbox(&mut self) -> Vec<(u64, PbWatchResponse)> {
        std::mem::take(&mut self.outbox)
    }

    /// Forgets the past up to a revision.
    pub fn compact(&mut self, revision: i64) -> Result<(), Status> {
        if revision <= self.compacted {
            return Err(compacted());
        }
        if revision > self.revision() {
            return Err(future());
        }
        self.compacted = revision;
        Ok(())
    }

    /// One more revision, if there were changes: everybody who watches is told.
    fn commit(&mut self, events: Vec<PbEvent>) {
        if events.is_empty() {
            return;
        }
        self.changes += 1;
        self.tell(&events);
        self.history.push((self.revision(), events));
    }
}

fn compacted() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision has been compacted")
}

fn future() -> Status {
    Status::out_of_range("etcdserver: mvcc: required revision is a future revision")
}
