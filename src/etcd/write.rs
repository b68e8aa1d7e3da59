//! Changing the line behind a name: join, try, leave. Each is a transaction, guarded so that sending
//! it twice does no more than sending it once, and several can ride in one.

use super::Etcd;
use super::line::{Look, Standing, first, look, oldest, ranges, revision, unexpected};
use crate::key::Name;
use etcd_client::{
    Compare, CompareOp, Error, GetOptions, GetResponse, PutOptions, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use std::sync::Arc;

/// What it takes to stand in a line.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub(crate) name: Name,
    pub(crate) key: Arc<str>,
    pub(crate) value: Vec<u8>,
    pub(crate) lease: i64,
}

/// A change of one line.
#[derive(Debug)]
pub(crate) enum Write {
    /// Puts the key, unless it is there, and tells who stood before it: any `limit` of the keys.
    /// A transaction is applied by etcd one at a time, so it must not read a long line: unsorted,
    /// it reads no more than the limit. `None` reads nothing.
    Join { join: Join, limit: Option<i64> },
    /// Puts the key if nothing at all stands behind the prefix; else tells what does, if it is to.
    Try { join: Join, tells: bool },
    /// Deletes the key if it still is the one created at `revision`.
    Leave { key: Arc<str>, revision: i64 },
}

/// The answer to a change, whatever it was.
#[derive(Debug)]
pub(crate) struct Written {
    succeeded: bool,
    revision: i64,
    found: Option<GetResponse>,
}

/// The answer to a join.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The key was put; some keys that stood behind the prefix before it, if it was asked for.
    Now { revision: i64, before: Option<Look> },
    /// An earlier attempt had put the key.
    Earlier(Standing),
}

/// The answer to a try.
#[derive(Debug)]
pub(crate) enum Tried {
    /// Nothing stood behind the prefix; the key was put.
    Alone { revision: i64 },
    /// Something did: the oldest key, maybe of an earlier attempt. `None` if it was not asked for, or if
    /// what stood there left in the same transaction, in which it rode: a key of another line, below
    /// this name.
    Busy(Option<Standing>),
}

impl Write {
    /// The prefix of the line that it changes. Two changes of one line must not ride in one
    /// transaction: etcd evaluates all compares before it applies anything, so two tries would
    /// both succeed, and keys put in one transaction share a create revision, so two joins would
    /// tie.
    pub(crate) fn line(&self) -> &str {
        match self {
            Self::Join { join, .. } | Self::Try { join, .. } => join.name.prefix(),
            Self::Leave { key, .. } => key.rfind('/').map_or("", |end| &key[..=end]),
        }
    }

    /// The key that it puts, if it puts one.
    pub(crate) fn joins(&self) -> Option<&Arc<str>> {
        match self {
            Self::Join { join, .. } | Self::Try { join, .. } => Some(&join.key),
            Self::Leave { .. } => None,
        }
    }

    fn txn(&self) -> Txn {
        match self {
            Self::Join { join, limit } => {
                let some = limit.map(|limit| {
                    let options = GetOptions::new().with_prefix().with_keys_only();
                    TxnOp::get(join.name.prefix(), Some(options.with_limit(limit)))
                });
                let then: Vec<TxnOp> = some.into_iter().chain([put(join)]).collect();
                Txn::new()
                    .when([is(&*join.key, 0)])
                    .and_then(then)
                    .or_else([TxnOp::get(&*join.key, None)])
            }
            Self::Try { join, tells } => {
                let nothing = Compare::create_revision(join.name.prefix(), CompareOp::Equal, 0);
                let oldest = tells.then(|| TxnOp::get(join.name.prefix(), Some(oldest())));
                let otherwise: Vec<TxnOp> = oldest.into_iter().collect();
                Txn::new()
                    .when([nothing.with_prefix()])
                    .and_then([put(join)])
                    .or_else(otherwise)
            }
            Self::Leave { key, revision } => Txn::new()
                .when([is(&**key, *revision)])
                .and_then([TxnOp::delete(&**key, None)]),
        }
    }
}

impl Etcd {
    /// Makes changes of different lines in one transaction; an answer to each, in order. All
    /// that are carried out have one revision.
    pub(crate) async fn write(
        &self,
        writes: impl ExactSizeIterator<Item = &Write>,
    ) -> Result<Vec<Written>, Error> {
        let n = writes.len();
        let mut txns = writes.map(Write::txn);
        if n == 1 {
            let txn = txns.next().unwrap_or_default();
            let mut answer = self.kv.clone().txn(txn).await?;
            let revision = revision(&mut answer)?;
            return Ok(vec![Written::new(&answer, revision)]);
        }
        let nested: Vec<TxnOp> = txns.map(TxnOp::txn).collect();
        let mut answer = self.kv.clone().txn(Txn::new().and_then(nested)).await?;
        let revision = revision(&mut answer)?;
        let written: Vec<Written> = answer
            .op_responses()
            .into_iter()
            .filter_map(|op| match op {
                TxnOpResponse::Txn(answer) => Some(Written::new(&answer, revision)),
                _ => None,
            })
            .collect();
        if written.len() == n {
            Ok(written)
        } else {
            Err(unexpected())
        }
    }
}

impl Written {
    fn new(answer: &TxnResponse, revision: i64) -> Self {
        Self {
            succeeded: answer.succeeded(),
            revision,
            found: ranges(answer).next(),
        }
    }

    /// Of a [`Write::Join`].
    pub(crate) fn joined(self) -> Result<Joined, Error> {
        if self.succeeded {
            let before = self.found.as_ref().map(look);
            let revision = self.revision;
            return Ok(Joined::Now { revision, before });
        }
        self.first().map(Joined::Earlier)
    }

    /// Of a [`Write::Try`].
    pub(crate) fn tried(self) -> Tried {
        let revision = self.revision;
        if self.succeeded {
            Tried::Alone { revision }
        } else {
            Tried::Busy(self.found.as_ref().and_then(first))
        }
    }

    /// Of a [`Write::Leave`]: whether the key was deleted by it.
    pub(crate) fn left(&self) -> bool {
        self.succeeded
    }

    fn first(&self) -> Result<Standing, Error> {
        self.found.as_ref().and_then(first).ok_or_else(unexpected)
    }
}

/// True while `key` is the one created at `revision`: the guard of every write of a hold. Zero
/// is that of a key that does not exist.
pub(crate) fn is(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, revision)
}

fn put(join: &Join) -> TxnOp {
    leased_put(&join.key, &join.value, join.lease)
}

pub(super) fn leased_put(key: &str, value: &[u8], lease: i64) -> TxnOp {
    TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)))
}
