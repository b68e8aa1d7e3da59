//! Transactions. All compares, the nested ones too, are evaluated before anything is applied.

use super::Model;
use super::range::{Range, no_key};
use etcd_client::proto::{
    PbCompare, PbEvent, PbKeyValue, PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse,
    PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};
use std::cmp::Ordering;
use tonic::Status;

/// Operations in one branch, and compares.
const MOST: usize = 128;

impl Model {
    pub fn txn(&mut self, ask: &PbTxnRequest) -> Result<PbTxnResponse, Status> {
        check(ask)?;
        Writes::check(&ask.success)?;
        Writes::check(&ask.failure)?;
        let mut path = Vec::new();
        self.choose(ask, &mut path);
        // Of several things that are wrong, etcd names a put first.
        self.check_branch(ask, &mut path.iter(), true)?;
        self.check_branch(ask, &mut path.iter(), false)?;
        let mut events = Vec::new();
        let mut answer = self.apply(ask, &mut path.iter(), &mut events);
        self.commit(events);
        answer.header = self.header();
        Ok(answer)
    }

    /// Which branch each transaction takes, the outer before the inner ones.
    fn choose(&self, ask: &PbTxnRequest, path: &mut Vec<bool>) {
        let taken = ask.compare.iter().all(|compare| self.is_true(compare));
        path.push(taken);
        for op in branch(ask, taken) {
            if let Some(PbTxnOpRequest::RequestTxn(inner)) = &op.request {
                self.choose(inner, path);
            }
        }
    }

    fn is_true(&self, compare: &PbCompare) -> bool {
        let range = Range::new(&compare.key, &compare.range_end);
        let found = self.keys.values().filter(|kv| range.contains(&kv.key));
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            // What is not there has a zero for everything but a value.
            return compare.target != 3 && holds(compare, &PbKeyValue::default());
        }
        found.into_iter().all(|kv| holds(compare, kv))
    }

    fn check_branch<'a>(
        &self,
        ask: &PbTxnRequest,
        path: &mut impl Iterator<Item = &'a bool>,
        puts: bool,
    ) -> Result<(), Status> {
        let taken = *path.next().expect("it was chosen");
        for op in branch(ask, taken) {
            match &op.request {
                Some(PbTxnOpRequest::RequestPut(put)) if puts => self.check_put(put)?,
                Some(PbTxnOpRequest::RequestRange(range)) if !puts => drop(self.range(range)?),
                Some(PbTxnOpRequest::RequestTxn(inner)) => self.check_branch(inner, path, puts)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn apply<'a>(
        &mut self,
        ask: &PbTxnRequest,
        path: &mut impl Iterator<Item = &'a bool>,
        events: &mut Vec<PbEvent>,
    ) -> PbTxnResponse {
        let succeeded = *path.next().expect("it was chosen");
        let ops = branch(ask, succeeded).iter();
        let responses = ops.filter_map(|op| {
            Some(match op.request.as_ref()? {
                PbTxnOpRequest::RequestRange(range) => {
                    PbTxnOpResponse::ResponseRange(self.range(range).expect("it was checked"))
                }
                PbTxnOpRequest::RequestPut(put) => {
                    PbTxnOpResponse::ResponsePut(self.write_put(put.clone(), events))
                }
                PbTxnOpRequest::RequestDeleteRange(delete) => {
                    PbTxnOpResponse::ResponseDeleteRange(self.write_delete(delete, events))
                }
                PbTxnOpRequest::RequestTxn(inner) => {
                    PbTxnOpResponse::ResponseTxn(self.apply(inner, path, events))
                }
            })
        });
        let responses = responses.map(|response| PbResponseOp {
            response: Some(response),
        });
        PbTxnResponse {
            header: None,
            succeeded,
            responses: responses.collect(),
        }
    }
}

fn branch(ask: &PbTxnRequest, taken: bool) -> &[PbTxnRequestOp] {
    if taken { &ask.success } else { &ask.failure }
}

fn holds(compare: &PbCompare, kv: &PbKeyValue) -> bool {
    let order = match &compare.target_union {
        Some(PbTargetUnion::Version(than)) => kv.version.cmp(than),
        Some(PbTargetUnion::CreateRevision(than)) => kv.create_revision.cmp(than),
        Some(PbTargetUnion::ModRevision(than)) => kv.mod_revision.cmp(than),
        Some(PbTargetUnion::Value(than)) => kv.value.cmp(than),
        Some(PbTargetUnion::Lease(than)) => kv.lease.cmp(than),
        None => Ordering::Equal,
    };
    match compare.result {
        0 => order.is_eq(),
        1 => order.is_gt(),
        2 => order.is_lt(),
        _ => order.is_ne(),
    }
}

/// What etcd refuses before it looks at a key.
fn check(ask: &PbTxnRequest) -> Result<(), Status> {
    let longest = ask.compare.len().max(ask.success.len());
    if longest.max(ask.failure.len()) > MOST {
        return Err(Status::invalid_argument(
            "etcdserver: too many operations in txn request",
        ));
    }
    let nameless = ask.compare.iter().any(|compare| compare.key.is_empty());
    let ops = ask.success.iter().chain(&ask.failure);
    for op in ops.filter_map(|op| op.request.as_ref()) {
        let key = match op {
            PbTxnOpRequest::RequestRange(range) => &range.key,
            PbTxnOpRequest::RequestPut(put) => &put.key,
            PbTxnOpRequest::RequestDeleteRange(delete) => &delete.key,
            PbTxnOpRequest::RequestTxn(inner) => {
                check(inner)?;
                continue;
            }
        };
        if key.is_empty() {
            return Err(no_key());
        }
    }
    if nameless { Err(no_key()) } else { Ok(()) }
}

/// What a branch may write, whichever ways its inner transactions go.
#[derive(Default)]
struct Writes {
    puts: Vec<Vec<u8>>,
    deletes: Vec<Range>,
}

impl Writes {
    /// A key may be put once, and not be deleted besides.
    fn check(ops: &[PbTxnRequestOp]) -> Result<Self, Status> {
        let mut all = Self::default();
        let requests = || ops.iter().filter_map(|op| op.request.as_ref());
        for request in requests() {
            if let PbTxnOpRequest::RequestDeleteRange(delete) = request {
                let range = Range::new(&delete.key, &delete.range_end);
                all.deletes.push(range);
            }
        }
        for request in requests() {
            if let PbTxnOpRequest::RequestTxn(inner) = request {
                // Of its two branches, only one is taken.
                let branches = [Self::check(&inner.success)?, Self::check(&inner.failure)?];
                if branches.iter().any(|one| all.meets(one)) {
                    return Err(duplicate());
                }
                for one in branches {
                    all.puts.extend(one.puts);
                    all.deletes.extend(one.deletes);
                }
            }
        }
        for request in requests() {
            if let PbTxnOpRequest::RequestPut(put) = request {
                if all.touches(&put.key) {
                    return Err(duplicate());
                }
                all.puts.push(put.key.clone());
            }
        }
        Ok(all)
    }

    /// Whether an inner transaction puts what is put or deleted. What it deletes comes later.
    fn meets(&self, other: &Self) -> bool {
        other.puts.iter().any(|put| self.touches(put))
    }

    fn touches(&self, key: &[u8]) -> bool {
        self.puts.iter().any(|put| put == key) || self.deleted(key)
    }

    fn deleted(&self, key: &[u8]) -> bool {
        self.deletes.iter().any(|range| range.contains(key))
    }
}

fn duplicate() -> Status {
    Status::invalid_argument("etcdserver: duplicate key given in txn request")
}
