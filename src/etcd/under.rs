//! A user's transaction under holds, nested into the one that proves them: so a hold that is lost
//! is told from a condition of the user's that failed.

use super::line::{first, oldest, ranges, revision, unexpected};
use super::{Etcd, Standing};
use etcd_client::{Compare, CompareOp, Error, GetOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

/// What proves a hold: its key, as it was last put. That is more than its create revision proves,
/// and lets a transaction that was sent be made void, by another put of the key.
#[derive(Debug)]
pub(crate) struct Proof<'a> {
    pub(crate) key: &'a str,
    pub(crate) modified: i64,
    pub(crate) prefix: &'a str,
}

/// The answer to a transaction under holds.
#[derive(Debug)]
pub(crate) enum Under {
    /// All were proved: what came of the user's transaction, and the revision it is of.
    Judged(i64, TxnResponse),
    /// Not all of them: nothing was carried out. What was seen of each, in their order.
    Unproved(Vec<Seen>),
}

/// What was seen of a hold that may be lost, keys only.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) own: Option<Standing>,
    /// The oldest key behind the prefix, of this line or one below it.
    pub(crate) oldest: Option<Standing>,
}

impl Etcd {
    /// Carries out `txn`, if all holds are proved.
    pub(crate) async fn under(&self, holds: &[Proof<'_>], txn: Txn) -> Result<Under, Error> {
        let proved: Vec<_> = holds.iter().map(proved).collect();
        let txn = Txn::new()
            .when(proved)
            .and_then([TxnOp::txn(txn)])
            .or_else(holds.iter().flat_map(seen).collect::<Vec<_>>());
        let mut answer = self.kv.clone().txn(txn).await?;
        if answer.succeeded() {
            let revision = revision(&mut answer)?;
            return match answer.op_responses().pop() {
                Some(TxnOpResponse::Txn(inner)) => Ok(Under::Judged(revision, inner)),
                _ => Err(unexpected()),
            };
        }
        let mut found = ranges(&answer);
        let seen = holds.iter().map(|_| {
            let (own, oldest) = (found.next()?, found.next()?);
            let (own, oldest) = (first(&own), first(&oldest));
            Some(Seen { own, oldest })
        });
        let seen: Option<Vec<_>> = seen.collect();
        seen.map(Under::Unproved).ok_or_else(unexpected)
    }
}

fn proved(hold: &Proof<'_>) -> Compare {
    Compare::mod_revision(hold.key, CompareOp::Equal, hold.modified)
}

/// The reads of what is to be seen of a hold.
fn seen(hold: &Proof<'_>) -> [TxnOp; 2] {
    let own = GetOptions::new().with_keys_only();
    [
        TxnOp::get(hold.key, Some(own)),
        TxnOp::get(hold.prefix, Some(oldest().with_keys_only())),
    ]
}
