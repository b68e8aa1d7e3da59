//! Writing: puts and deletes.

use super::range::{Range, no_key};
use super::{Model, lease};
use etcd_client::proto::{
    PbDeleteRequest, PbDeleteResponse, PbEvent, PbKeyValue, PbPutRequest, PbPutResponse,
};
use tonic::Status;

impl Model {
    pub fn put(&mut self, ask: PbPutRequest) -> Result<PbPutResponse, Status> {
        self.check_put(&ask)?;
        let mut events = Vec::new();
        let mut answer = self.write_put(ask, &mut events);
        self.commit(events);
        answer.header = self.header();
        Ok(answer)
    }

    pub fn delete(&mut self, ask: &PbDeleteRequest) -> Result<PbDeleteResponse, Status> {
        if ask.key.is_empty() {
            return Err(no_key());
        }
        let mut events = Vec::new();
        let mut answer = self.write_delete(ask, &mut events);
        self.commit(events);
        answer.header = self.header();
        Ok(answer)
    }

    pub(super) fn check_put(&self, ask: &PbPutRequest) -> Result<(), Status> {
        if ask.key.is_empty() {
            return Err(no_key());
        }
        if ask.lease != 0 && !self.leases.contains_key(&ask.lease) {
            return Err(lease::not_found());
        }
        Ok(())
    }

    /// Part of a change that is not committed yet, and that has been checked.
    pub(super) fn write_put(
        &mut self,
        ask: PbPutRequest,
        events: &mut Vec<PbEvent>,
    ) -> PbPutResponse {
        let at = self.revision() + 1;
        let before = self.keys.get(&ask.key).cloned();
        let kv = PbKeyValue {
            key: ask.key,
            create_revision: before.as_ref().map_or(at, |kv| kv.create_revision),
            mod_revision: at,
            version: before.as_ref().map_or(0, |kv| kv.version) + 1,
            value: ask.value,
            lease: ask.lease,
        };
        self.attach(before.as_ref(), Some(&kv));
        self.keys.insert(kv.key.clone(), kv.clone());
        events.push(event(0, kv));
        PbPutResponse {
            header: None,
            prev_kv: before.filter(|_| ask.prev_kv),
        }
    }

    pub(super) fn write_delete(
        &mut self,
        ask: &PbDeleteRequest,
        events: &mut Vec<PbEvent>,
    ) -> PbDeleteResponse {
        let range = Range::new(&ask.key, &ask.range_end);
        let found = self.keys.values().filter(|kv| range.contains(&kv.key));
        let gone: Vec<_> = found.cloned().collect();
        for kv in &gone {
            self.write_gone(kv, events);
        }
        PbDeleteResponse {
            header: None,
            deleted: i64::try_from(gone.len()).unwrap(),
            prev_kvs: if ask.prev_kv { gone } else { Vec::new() },
        }
    }

    pub(super) fn write_gone(&mut self, kv: &PbKeyValue, events: &mut Vec<PbEvent>) {
        self.attach(Some(kv), None);
        self.keys.remove(&kv.key);
        let tombstone = PbKeyValue {
            key: kv.key.clone(),
            mod_revision: self.revision() + 1,
            ..PbKeyValue::default()
        };
        events.push(event(1, tombstone));
    }
}

fn event(kind: i32, kv: PbKeyValue) -> PbEvent {
    PbEvent {
        r#type: kind,
        kv: Some(kv),
        prev_kv: None,
    }
}
