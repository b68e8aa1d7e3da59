//! What comes of a transaction under holds.

use super::lost_hold::LostHold;
use etcd_client::TxnOpResponse;

/// What came of a [`GuardedTxn`](crate::GuardedTxn).
#[derive(Debug)]
#[must_use = "a transaction may be refused, or the hold lost"]
pub enum TxnOutcome {
    /// All holds stood and all conditions were true: `and_then` was carried out.
    Committed(Done),
    /// All holds stood and a condition was not true: `or_else` was carried out.
    Refused(Done),
    /// A hold was lost: nothing was carried out. The first of them, in the order they were given.
    Lost(LostHold),
}

/// What was done.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done {
    /// The revision of etcd after it, which is the `mod_revision` of what was put.
    pub revision: i64,
    /// etcd's answers to the operations, in their order.
    pub responses: Vec<TxnOpResponse>,
}
