//! Leases, and their end.

use super::Model;
use etcd_client::proto::{
    PbKeyValue, PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseTimeToLiveRequest,
    PbLeaseTimeToLiveResponse,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tonic::Status;

/// The least TTL that etcd grants with its default timings, and the most.
const LEAST: i64 = 2;
const MOST: i64 = 9_000_000_000;

/// How often etcd's leader looks for leases that have expired.
const SCAN: Duration = Duration::from_millis(500);

pub(super) struct Lease {
    ttl: i64,
    expires: Duration,
    keys: BTreeSet<Vec<u8>>,
}

/// The answer to a renewal.
#[derive(Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It lives for so many seconds from now on.
    Renewed(i64),
    Missing,
    /// It has expired, and will be revoked at the next scan: etcd answers only then.
    Expired,
}

pub(super) fn not_found() -> Status {
    Status::not_found("etcdserver: requested lease not found")
}

impl Model {
    /// Lets time pass, with the scans for expired leases that are due.
    pub fn advance(&mut self, to: Duration) {
        let scans = |at: Duration| at.as_millis() / SCAN.as_millis();
        for scan in scans(self.now) + 1..=scans(to) {
            let at = SCAN * u32::try_from(scan).unwrap();
            let expired = self.leases.iter().filter(|(_, lease)| lease.expires <= at);
            for id in expired.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.revoke(id).expect("it was there a moment ago");
            }
        }
        self.now = to;
    }

    pub fn grant(&mut self, ask: PbLeaseGrantRequest) -> Result<PbLeaseGrantResponse, Status> {
        if ask.ttl > MOST {
            return Err(Status::out_of_range("etcdserver: too large lease TTL"));
        }
        if self.leases.contains_key(&ask.id) {
            return Err(Status::failed_precondition(
                "etcdserver: lease already exists",
            ));
        }
        let last = self.leases.last_key_value();
        let id = match ask.id {
            0 => last.map_or(0, |(id, _)| *id) + 1,
            id => id,
        };
        let ttl = ask.ttl.max(LEAST);
        let lease = Lease {
            ttl,
            expires: self.now + seconds(ttl),
            keys: BTreeSet::new(),
        };
        self.leases.insert(id, lease);
        Ok(PbLeaseGrantResponse {
            header: self.header(),
            id,
            ttl,
            error: String::new(),
        })
    }

    /// Deletes a lease and, at one revision, all its keys.
    pub fn revoke(&mut self, id: i64) -> Result<(), Status> {
        let lease = self.leases.remove(&id).ok_or_else(not_found)?;
        self.ended.insert(id);
        let mut events = Vec::new();
        for key in lease.keys {
            let kv = self.keys[&key].clone();
            self.write_gone(&kv, &mut events);
        }
        self.commit(events);
        Ok(())
    }

    pub fn renew(&mut self, id: i64) -> Renewal {
        match self.leases.get_mut(&id) {
            None => Renewal::Missing,
            Some(lease) if lease.expires <= self.now => Renewal::Expired,
            Some(lease) => {
                lease.expires = self.now + seconds(lease.ttl);
                Renewal::Renewed(lease.ttl)
            }
        }
    }

    pub fn time_to_live(&self, ask: PbLeaseTimeToLiveRequest) -> PbLeaseTimeToLiveResponse {
        let mut answer = PbLeaseTimeToLiveResponse {
            header: self.header(),
            id: ask.id,
            ttl: -1,
            granted_ttl: 0,
            keys: Vec::new(),
        };
        if let Some(lease) = self.leases.get(&ask.id) {
            let left = lease.expires.saturating_sub(self.now);
            // Parts of a second are cut off, as there.
            answer.ttl = i64::try_from(left.as_secs()).unwrap();
            answer.granted_ttl = lease.ttl;
            if ask.keys {
                answer.keys = lease.keys.iter().cloned().collect();
            }
        }
        answer
    }

    /// A new leader of the cluster gives every lease its full TTL once more.
    pub fn new_leader(&mut self) {
        for lease in self.leases.values_mut() {
            lease.expires = self.now + seconds(lease.ttl);
        }
    }

    /// A key hangs on the lease of its last put.
    pub(super) fn attach(&mut self, before: Option<&PbKeyValue>, after: Option<&PbKeyValue>) {
        if let Some(kv) = before
            && let Some(lease) = self.leases.get_mut(&kv.lease)
        {
            lease.keys.remove(&kv.key);
        }
        if let Some(kv) = after
            && let Some(lease) = self.leases.get_mut(&kv.lease)
        {
            lease.keys.insert(kv.key.clone());
        }
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap())
}
