//! Reading keys and lines. What is asked together rides in one transaction, of one revision; one that
//! only reads, etcd answers without a proposal.

use super::Etcd;
use super::line::{Look, Standing, first, in_line, look, ranges, revision, unexpected, youngest};
use crate::key::Name;
use etcd_client::{Error, GetOptions, GetResponse, Txn, TxnOp};
use std::sync::Arc;

/// What is asked; linearizable.
#[derive(Debug)]
pub(crate) enum Read {
    /// A key, with its value.
    Key(Arc<str>),
    /// Two keys.
    Two([Arc<[u8]>; 2]),
    /// Everybody in a line, keys only.
    Line(Name),
    /// The youngest keys in a line that are older than `revision`, and whether `key` is alive with
    /// that create revision. A `limit` of 0 is none.
    Look {
        name: Name,
        key: Arc<str>,
        revision: i64,
        limit: i64,
    },
}

/// The answer to it, whatever it was.
#[derive(Debug)]
pub(crate) struct Found {
    revision: i64,
    ranges: Vec<GetResponse>,
}

impl Read {
    /// How many operations it takes: they stand side by side, as a transaction with others in it
    /// counts as a change.
    pub(crate) fn operations(&self) -> usize {
        match self {
            Self::Key(_) | Self::Line(_) => 1,
            Self::Two(_) | Self::Look { .. } => 2,
        }
    }

    fn push_to(&self, operations: &mut Vec<TxnOp>) {
        let keys_only = GetOptions::new().with_keys_only();
        match self {
            Self::Key(key) => operations.push(TxnOp::get(&**key, None)),
            Self::Two(keys) => {
                let get = |key: &Arc<[u8]>| TxnOp::get(&**key, Some(keys_only.clone()));
                operations.extend(keys.iter().map(get));
            }
            Self::Line(name) => {
                operations.push(TxnOp::get(name.prefix(), Some(keys_only.with_prefix())));
            }
            Self::Look {
                name,
                key,
                revision,
                limit,
            } => operations.extend([
                youngest(name.prefix(), *limit, *revision),
                TxnOp::get(&**key, Some(keys_only)),
            ]),
        }
    }
}

impl Etcd {
    /// Asks all of it; an answer to each, in order.
    pub(crate) async fn read<'a>(
        &self,
        reads: impl Iterator<Item = &'a Read> + Clone,
    ) -> Result<Vec<Found>, Error> {
        let mut operations = Vec::new();
        reads.clone().for_each(|read| read.push_to(&mut operations));
        let txn = Txn::new().and_then(operations);
        let mut answer = self.kv.clone().txn(txn).await?;
        let revision = revision(&mut answer)?;
        let mut found = ranges(&answer);
        let each = reads.map(|read| Found {
            revision,
            ranges: found.by_ref().take(read.operations()).collect(),
        });
        Ok(each.collect())
    }
}

impl Found {
    /// Of a [`Read::Key`].
    pub(crate) fn key(&self) -> Result<Option<Standing>, Error> {
        self.ranges.first().map(first).ok_or_else(unexpected)
    }

    /// Of [`Read::Two`].
    pub(crate) fn two(&self) -> Result<[Option<Standing>; 2], Error> {
        let [one, other] = &self.ranges[..] else {
            return Err(unexpected());
        };
        Ok([first(one), first(other)])
    }

    /// Of a [`Read::Line`]: everybody in it, in no order, and the revision it is of.
    pub(crate) fn line(&self, name: &Name) -> Result<(i64, Vec<Standing>), Error> {
        let found = self.ranges.first().ok_or_else(unexpected)?;
        Ok((self.revision, in_line(found, name).collect()))
    }

    /// Of a [`Read::Look`] at `revision`.
    pub(crate) fn look(&self, revision: i64) -> Result<(Look, bool), Error> {
        let [before, own] = &self.ranges[..] else {
            return Err(unexpected());
        };
        let alive = own.kvs().iter().any(|kv| kv.create_revision() == revision);
        Ok((look(before), alive))
    }
}
