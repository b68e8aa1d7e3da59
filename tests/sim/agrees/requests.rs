//! Requests at random, over few keys and leases so that they meet.

use etcd_client::proto::{PbResponseOp, PbTxnOpResponse};
use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, Event, GetOptions, LeaseGrantOptions,
    LeaseTimeToLiveOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, WatchResponse,
};
use fastrand::Rng;

const KEYS: [&str; 7] = ["k/1", "k/2", "k/3", "k/2/1", "k", "l/1", ""];

#[derive(Debug)]
pub enum Request {
    Put(&'static str, String, Option<PutOptions>),
    Get(&'static str, GetOptions),
    Delete(&'static str, DeleteOptions),
    Txn(Txn),
    Compact(i64),
    Grant(i64, i64),
    Revoke(i64),
    Renew(i64),
    TimeToLive(i64),
    Leases,
}

pub struct Requests {
    rng: Rng,
}

impl Requests {
    pub fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        Self { rng }
    }

    pub fn next(&mut self, step: usize) -> Request {
        let revision = i64::try_from(step / 2).unwrap();
        match self.rng.u8(..100) {
            ..25 => Request::Put(self.key(), self.value(), Some(self.leased())),
            25..45 => Request::Get(self.key(), self.get(revision)),
            45..55 => {
                let (key, options) = (self.key(), DeleteOptions::new());
                let prefix = self.rng.u8(..4) == 0;
                let options = if prefix {
                    options.with_prefix()
                } else {
                    options
                };
                Request::Delete(key, options.with_prev_key())
            }
            55..85 => Request::Txn(self.txn(2)),
            85 if step > 200 => Request::Compact(self.rng.i64(revision / 2..revision)),
            // Of leases, none may end by itself while the two are compared.
            85..90 => Request::Grant(self.rng.i64(1..8), self.rng.i64(600..700)),
            90..93 => Request::Revoke(self.rng.i64(1..8)),
            93..96 => Request::Renew(self.rng.i64(1..8)),
            96..98 => Request::TimeToLive(self.rng.i64(1..8)),
            98 => Request::Grant(99, i64::MAX),
            _ => Request::Leases,
        }
    }

    fn key(&mut self) -> &'static str {
        // Seldom the empty one, which is refused.
        let nameless = self.rng.u8(..30) == 0;
        KEYS[if nameless { 6 } else { self.rng.usize(..6) }]
    }

    fn value(&mut self) -> String {
        self.rng.u8(..3).to_string()
    }

    fn leased(&mut self) -> PutOptions {
        let lease = if self.rng.bool() {
            self.rng.i64(0..8)
        } else {
            0
        };
        let options = PutOptions::new().with_lease(lease);
        if self.rng.bool() {
            options.with_prev_key()
        } else {
            options
        }
    }

    fn get(&mut self, revision: i64) -> GetOptions {
        let mut options = match self.rng.u8(..4) {
            0 => GetOptions::new(),
            1 => GetOptions::new().with_from_key(),
            _ => GetOptions::new().with_prefix(),
        };
        if self.rng.bool() {
            options = options.with_limit(self.rng.i64(0..4));
        }
        if self.rng.bool() {
            let targets = [
                SortTarget::Create,
                SortTarget::Mod,
                SortTarget::Key,
                SortTarget::Value,
                SortTarget::Version,
            ];
            let orders = [SortOrder::Ascend, SortOrder::Descend, SortOrder::None];
            options = options.with_sort(targets[self.rng.usize(..5)], orders[self.rng.usize(..3)]);
        }
        match self.rng.u8(..16) {
            0 => options = options.with_max_create_revision(self.rng.i64(0..=revision)),
            1 => options = options.with_min_create_revision(self.rng.i64(0..=revision)),
            2 => options = options.with_max_mod_revision(self.rng.i64(0..=revision)),
            3 => options = options.with_min_mod_revision(self.rng.i64(0..=revision)),
            4 => options = options.with_keys_only(),
            5 => options = options.with_count_only(),
            6 => options = options.with_revision(self.rng.i64(0..=revision + 9)),
            7 => options = options.with_revision(1_000_000),
            _ => {}
        }
        options
    }

    fn txn(&mut self, depth: u8) -> Txn {
        let compares: Vec<_> = (0..self.rng.u8(..3)).map(|_| self.compare()).collect();
        let (then, otherwise) = (self.ops(depth), self.ops(depth));
        Txn::new().when(compares).and_then(then).or_else(otherwise)
    }

    fn ops(&mut self, depth: u8) -> Vec<TxnOp> {
        let ops = 0..self.rng.u8(..4);
        ops.map(|_| match self.rng.u8(..8) {
            0..3 => TxnOp::put(self.key(), self.value(), Some(self.leased())),
            3..5 => TxnOp::get(self.key(), Some(self.get(0))),
            5 if depth > 0 => TxnOp::txn(self.txn(depth - 1)),
            _ => TxnOp::delete(self.key(), None),
        })
        .collect()
    }

    fn compare(&mut self) -> Compare {
        let signs = [
            CompareOp::Equal,
            CompareOp::Greater,
            CompareOp::Less,
            CompareOp::NotEqual,
        ];
        let (key, sign) = (self.key(), signs[self.rng.usize(..4)]);
        let small = self.rng.i64(0..3);
        let compare = match self.rng.u8(..5) {
            0 => Compare::create_revision(key, sign, small * 40),
            1 => Compare::mod_revision(key, sign, small * 40),
            2 => Compare::version(key, sign, small),
            3 => Compare::lease(key, sign, small),
            _ => Compare::value(key, sign, self.value()),
        };
        let prefix = self.rng.u8(..3) == 0;
        if prefix {
            compare.with_prefix()
        } else {
            compare
        }
    }
}

impl Request {
    /// The answer, without what must differ between two clusters.
    pub async fn send(&self, client: &mut Client) -> String {
        match self.try_send(client).await {
            Ok(answer) => answer,
            Err(Error::GRpcStatus(status)) => format!("{:?}: {}", status.code(), status.message()),
            Err(error) => error.to_string(),
        }
    }

    async fn try_send(&self, client: &mut Client) -> Result<String, Error> {
        Ok(match self {
            Self::Put(key, value, options) => {
                let put = client.put(*key, value.as_str(), options.clone()).await?;
                format!("{} {:?}", revision(put.header()), put.prev_key())
            }
            Self::Get(key, options) => {
                let mut got = client.get(*key, Some(options.clone())).await?.0;
                let revision = got.header.take().unwrap().revision;
                format!("{revision} {got:?}")
            }
            Self::Delete(key, options) => {
                let mut gone = client.delete(*key, Some(options.clone())).await?.0;
                let revision = gone.header.take().unwrap().revision;
                format!("{revision} {gone:?}")
            }
            Self::Txn(txn) => {
                let mut done = client.txn(txn.clone()).await?.0;
                let revision = done.header.take().unwrap().revision;
                plain(&mut done.responses);
                format!("{revision} {done:?}")
            }
            Self::Compact(at) => revision(client.compact(*at, None).await?.header()).to_string(),
            Self::Grant(id, ttl) => {
                let options = LeaseGrantOptions::new().with_id(*id);
                let lease = client.lease_grant(*ttl, Some(options)).await?;
                format!("{} {} {}", lease.id(), lease.ttl(), lease.error())
            }
            Self::Revoke(id) => revision(client.lease_revoke(*id).await?.header()).to_string(),
            Self::Renew(id) => {
                let (mut keeper, mut answers) = client.lease_keep_alive(*id).await?;
                keeper.keep_alive().await?;
                let answer = answers.message().await?.unwrap();
                format!("{} {}", answer.id(), answer.ttl())
            }
            Self::TimeToLive(id) => {
                let options = LeaseTimeToLiveOptions::new().with_keys();
                let answer = client.lease_time_to_live(*id, Some(options)).await?;
                let mut keys = answer.keys().to_vec();
                keys.sort_unstable();
                let alive = answer.ttl().min(1);
                format!("{alive} {} {keys:?}", answer.granted_ttl())
            }
            Self::Leases => {
                let answer = client.leases().await?;
                let mut ids: Vec<_> = answer
                    .leases()
                    .iter()
                    .map(etcd_client::LeaseStatus::id)
                    .collect();
                ids.sort_unstable();
                format!("{ids:?}")
            }
        })
    }
}

fn revision(header: Option<&etcd_client::ResponseHeader>) -> i64 {
    header.unwrap().revision()
}

/// Headers within a transaction mean nothing.
fn plain(responses: &mut [PbResponseOp]) {
    for response in responses {
        match response.response.as_mut().unwrap() {
            PbTxnOpResponse::ResponseRange(one) => one.header = None,
            PbTxnOpResponse::ResponsePut(one) => one.header = None,
            PbTxnOpResponse::ResponseDeleteRange(one) => one.header = None,
            PbTxnOpResponse::ResponseTxn(one) => {
                one.header = None;
                plain(&mut one.responses);
            }
        }
    }
}

/// A message of a watch stream, without what must differ between two clusters.
pub fn watched(message: &WatchResponse) -> String {
    let events: Vec<_> = message.events().iter().map(event).collect();
    format!(
        "{} created {} cancelled {} {:?} compacted {}: {}",
        message.watch_id(),
        message.created(),
        message.canceled(),
        message.cancel_reason(),
        message.compact_revision(),
        events.join(", ")
    )
}

fn event(event: &Event) -> String {
    let kv = event.kv().unwrap();
    format!(
        "{:?} {} created {} modified {} version {} lease {} {:?}",
        event.event_type(),
        kv.key_str().unwrap(),
        kv.create_revision(),
        kv.mod_revision(),
        kv.version(),
        kv.lease(),
        kv.value_str().unwrap()
    )
}
