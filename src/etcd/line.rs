//! The line behind a name: who stands in it, in order, or first.

use super::Etcd;
use crate::key::Name;
use etcd_client::{
    Error, GetOptions, GetResponse, KeyValue, SortOrder, SortTarget, TxnOp, TxnOpResponse,
    TxnResponse,
};

/// A key in a line, or anywhere behind its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) key: Vec<u8>,
    pub(crate) revision: i64,
    /// The revision of its last put.
    pub(crate) modified: i64,
    pub(crate) lease: i64,
    /// Empty where only keys were asked for.
    pub(crate) value: Vec<u8>,
}

/// Some of the keys behind a prefix.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) keys: Vec<Standing>,
    /// Whether a limit hid others.
    pub(crate) more: bool,
    /// How many there are, whatever limit or revisions were asked for.
    pub(crate) count: usize,
}

impl Standing {
    pub(crate) fn of(kv: &KeyValue) -> Self {
        Self {
            key: kv.key().to_vec(),
            revision: kv.create_revision(),
            modified: kv.mod_revision(),
            lease: kv.lease(),
            value: kv.value().to_vec(),
        }
    }
}

impl Look {
    pub(crate) fn nobody() -> Self {
        let (keys, more, count) = (Vec::new(), false, 0);
        Self { keys, more, count }
    }

    /// Whether it found nothing at all behind the prefix.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Etcd {
    /// Who is first in the line, with its value; linearizable.
    pub(crate) async fn first(&self, name: &Name) -> Result<Option<Standing>, Error> {
        let answer = self.kv.clone().get(name.prefix(), Some(oldest())).await?;
        match first(&answer) {
            // Of another line, below this name: the first of this one may be behind it.
            Some(other) if !name.is_in_line(&other.key) => {
                Ok(self.list(name).await?.into_iter().next())
            }
            first => Ok(first),
        }
    }

    /// Everybody in the line with values, in order; linearizable.
    pub(crate) async fn list(&self, name: &Name) -> Result<Vec<Standing>, Error> {
        let options = GetOptions::new().with_prefix();
        let answer = self.kv.clone().get(name.prefix(), Some(options)).await?;
        let mut line: Vec<_> = in_line(&answer, name).collect();
        // Keys put in one transaction share a create revision; then the smaller key is first.
        line.sort_by(|a, b| (a.revision, &a.key).cmp(&(b.revision, &b.key)));
        Ok(line)
    }
}

/// A read of the youngest keys behind a prefix, of those created no later than `until`.
pub(super) fn youngest(prefix: &str, limit: i64, until: i64) -> TxnOp {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Descend)
        .with_limit(limit)
        .with_keys_only()
        .with_max_create_revision(until);
    TxnOp::get(prefix, Some(options))
}

pub(super) fn oldest() -> GetOptions {
    GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(1)
}

pub(super) fn look(found: &GetResponse) -> Look {
    Look {
        keys: found.kvs().iter().map(Standing::of).collect(),
        more: found.more(),
        count: usize::try_from(found.count()).unwrap_or(0),
    }
}

/// Of what stands behind a name's prefix, what stands in its line.
pub(super) fn in_line(found: &GetResponse, name: &Name) -> impl Iterator<Item = Standing> {
    let found = found.kvs().iter();
    found
        .filter(|kv| name.is_in_line(kv.key()))
        .map(Standing::of)
}

pub(super) fn revision(answer: &mut TxnResponse) -> Result<i64, Error> {
    let header = answer.take_header().ok_or_else(unexpected)?;
    Ok(header.revision())
}

pub(super) fn ranges(answer: &TxnResponse) -> impl Iterator<Item = GetResponse> {
    answer.op_responses().into_iter().filter_map(|op| match op {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    })
}

pub(super) fn first_range(answer: &TxnResponse) -> Result<GetResponse, Error> {
    ranges(answer).next().ok_or_else(unexpected)
}

pub(super) fn first(found: &GetResponse) -> Option<Standing> {
    found.kvs().first().map(Standing::of)
}

/// An answer that lacks what every etcd puts into it. Fatal: what answers is no etcd.
pub(super) fn unexpected() -> Error {
    Error::Internal("an answer lacks a part; is it an etcd that answers?".into())
}
