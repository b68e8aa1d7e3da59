//! Reading.

use super::{Model, compacted, future};
use etcd_client::proto::{PbKeyValue, PbRangeRequest, PbRangeResponse};
use std::collections::BTreeMap;
use tonic::Status;

/// The keys that a request is about, in etcd's own notation.
#[derive(Clone, Debug)]
pub struct Range {
    pub start: Vec<u8>,
    /// Empty: the one key; a zero: all from `start` on; else the first key that is not meant.
    pub end: Vec<u8>,
}

impl Range {
    pub fn new(start: &[u8], end: &[u8]) -> Self {
        let (start, end) = (start.to_vec(), end.to_vec());
        Self { start, end }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match self.end.as_slice() {
            [] => key == self.start,
            [0] => key >= self.start.as_slice(),
            end => key >= self.start.as_slice() && key < end,
        }
    }
}

impl Model {
    pub fn range(&self, ask: &PbRangeRequest) -> Result<PbRangeResponse, Status> {
        if ask.key.is_empty() {
            return Err(no_key());
        }
        if ask.revision > self.revision() {
            return Err(future());
        }
        if ask.revision > 0 && ask.revision < self.compacted {
            return Err(compacted());
        }
        let range = Range::new(&ask.key, &ask.range_end);
        let then;
        let keys = if ask.revision > 0 {
            then = self.at(ask.revision);
            &then
        } else {
            &self.keys
        };
        let found = keys.values().filter(|kv| range.contains(&kv.key));
        let mut kvs: Vec<_> = found.cloned().collect();
        let count = i64::try_from(kvs.len()).unwrap();
        if ask.count_only {
            kvs.clear();
        }
        let limit = usize::try_from(ask.limit).unwrap_or(0);
        if limit > 0 && ask.sort_order == 0 && !filters(ask) {
            // Before it is sorted by something else than keys: so does etcd.
            kvs.truncate(limit + 1);
        }
        kvs.retain(|kv| fits(ask, kv));
        sort(ask, &mut kvs);
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        if ask.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
            }
        }
        Ok(PbRangeResponse {
            header: self.header(),
            kvs,
            more,
            count,
        })
    }

    /// What the keys were at an earlier revision.
    fn at(&self, revision: i64) -> BTreeMap<Vec<u8>, PbKeyValue> {
        let mut keys = BTreeMap::new();
        let events = self.history.iter().take_while(|(at, _)| *at <= revision);
        for event in events.flat_map(|(_, events)| events) {
            let kv = event.kv.clone().unwrap();
            if event.r#type == 0 {
                keys.insert(kv.key.clone(), kv);
            } else {
                keys.remove(&kv.key);
            }
        }
        keys
    }
}

pub(super) fn no_key() -> Status {
    Status::invalid_argument("etcdserver: key is not provided")
}

fn filters(ask: &PbRangeRequest) -> bool {
    let created = ask.min_create_revision != 0 || ask.max_create_revision != 0;
    created || ask.min_mod_revision != 0 || ask.max_mod_revision != 0
}

/// Whether a key passes the filters by revision; 0 is no filter.
fn fits(ask: &PbRangeRequest, kv: &PbKeyValue) -> bool {
    let within = |at, min, max| (min == 0 || at >= min) && (max == 0 || at <= max);
    within(kv.mod_revision, ask.min_mod_revision, ask.max_mod_revision)
        && within(
            kv.create_revision,
            ask.min_create_revision,
            ask.max_create_revision,
        )
}

fn sort(ask: &PbRangeRequest, kvs: &mut [PbKeyValue]) {
    let by = |a: &PbKeyValue, b: &PbKeyValue| match ask.sort_target {
        1 => a.version.cmp(&b.version),
        2 => a.create_revision.cmp(&b.create_revision),
        3 => a.mod_revision.cmp(&b.mod_revision),
        4 => a.value.cmp(&b.value),
        _ => a.key.cmp(&b.key),
    };
    match ask.sort_order {
        2 => kvs.sort_by(|a, b| by(b, a)),
        1 => kvs.sort_by(by),
        // By key they come anyway.
        _ if ask.sort_target != 0 => kvs.sort_by(by),
        _ => {}
    }
}
