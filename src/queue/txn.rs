//! Transactions that are carried out only while holds stand.

use super::hold::Hold;
use super::lost_hold::known_to_be_lost;
use super::outcome::{Done, TxnOutcome};
use super::settle::UnderWay;
use crate::error::{Error, Lost, Result};
use crate::etcd::{Proof, Under};
use crate::session::backoff;
use etcd_client::{Compare, Txn, TxnOp};
use futures_util::future::select_all;
use std::fmt;
use tokio::time::sleep;

/// A transaction in the etcd of the lock that is carried out only while it is held; made by
/// [`Hold::txn`].
///
/// etcd judges whether the hold stands in the very transaction that writes, by the hold's key. So
/// it is safe however long this process was paused and however late the request arrives, and no
/// token has to be stored. It tells a lost hold from a condition that was not true.
///
/// Nothing is sent before [`commit`](Self::commit). The parts can be given in any order; each can
/// be given more than once, which adds to it.
///
/// Do not put keys of your own behind the name of a lock: every `name/…` without another `/` in it
/// stands in its line, and would hold when this does not any more.
///
/// # Examples
///
/// Moves an amount, if the balance is what was read:
///
/// ```no_run
/// use etcd_lock::etcd_client::{Compare, CompareOp, TxnOp};
/// use etcd_lock::TxnOutcome;
///
/// # async fn example(guard: etcd_lock::LockGuard) -> Result<(), Box<dyn std::error::Error>> {
/// let outcome = guard
///     .txn()
///     .when([Compare::value("balance/anna", CompareOp::Equal, "30")])
///     .and_then([TxnOp::put("balance/anna", "10", None), TxnOp::put("balance/ben", "20", None)])
///     .or_else([TxnOp::get("balance/anna", None)])
///     .commit()
///     .await?;
/// match outcome {
///     TxnOutcome::Committed(done) => println!("moved, at revision {}", done.revision),
///     TxnOutcome::Refused(done) => println!("the balance is another: {:?}", done.responses),
///     TxnOutcome::Lost(lost) => return Err(lost.into()),
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent before `commit`"]
pub struct GuardedTxn<'a> {
    /// At least one, through whose session it is sent.
    holds: Vec<&'a Hold>,
    when: Vec<Compare>,
    then: Vec<TxnOp>,
    otherwise: Vec<TxnOp>,
    /// Whether it only reads, as far as we know: then it may be carried out any number of times.
    pub(super) only_reads: bool,
}

impl Hold {
    /// Begins a transaction that is carried out only while this is held.
    pub fn txn(&self) -> GuardedTxn<'_> {
        GuardedTxn {
            holds: vec![self],
            when: Vec::new(),
            then: Vec::new(),
            otherwise: Vec::new(),
            only_reads: false,
        }
    }
}

impl<'a> GuardedTxn<'a> {
    /// Demands another hold, too: all have to stand.
    ///
    /// It may be of another session, if that is on the same etcd. The transaction is sent through
    /// the session of the first, whose etcd user has to be allowed to read the other's keys.
    pub fn holding(mut self, other: &'a Hold) -> Self {
        self.holds.push(other);
        self
    }

    /// Adds conditions: `and_then` is carried out if all are true, else `or_else`.
    pub fn when(mut self, conditions: impl Into<Vec<Compare>>) -> Self {
        self.when.append(&mut conditions.into());
        self
    }

    /// Adds operations for when all conditions are true, or there are none.
    pub fn and_then(mut self, operations: impl Into<Vec<TxnOp>>) -> Self {
        self.then.append(&mut operations.into());
        self
    }

    /// Adds operations for when a condition is not true.
    pub fn or_else(mut self, operations: impl Into<Vec<TxnOp>>) -> Self {
        self.otherwise.append(&mut operations.into());
        self
    }

    /// Sends it and waits for what came of it.
    ///
    /// It is never carried out twice. What certainly was not carried out is tried again while the
    /// sessions last; a hold that is known to be lost sends nothing.
    ///
    /// An answer can be lost, or be so late that its server may stand still. Nobody can tell then
    /// what came of it, and nothing is guessed: that is [`Error::Unknown`]. Before it is given, etcd
    /// is made to refuse the request, should it still be on its way, by another put of the hold's
    /// own key as it is. So what is read then ([`Hold::get`]) is the last word on it.
    ///
    /// It ends when a session does, at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether it was, or will be, carried out. The hold's next
    /// transaction first makes sure that it is not carried out any more.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`] if the answer was lost.
    /// - [`Error::Etcd`] if etcd refuses: no permission (that etcd 3.4.23 does not ask for in nested
    ///   transactions, as this is; 3.5.30 does), a key that is put twice, too much. (By default it
    ///   takes 126 conditions, and as many operations in each branch; with every further hold two
    ///   less.) Nothing was carried out.
    /// - [`Error::Invalid`] if a hold is of another etcd than the first. Nothing was carried out.
    ///
    /// That a hold is lost is no error but an [outcome](TxnOutcome::Lost).
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// Work that must be done once, whatever answers are lost: with a key of its own, it can be
    /// repeated until it is known to be done.
    ///
    /// ```no_run
    /// use etcd_lock::etcd_client::{Compare, CompareOp, TxnOp};
    /// use etcd_lock::{Error, LockGuard, TxnOutcome};
    ///
    /// async fn pay(guard: &LockGuard, order: &str) -> Result<(), Box<dyn std::error::Error>> {
    ///     let paid = format!("paid/{order}");
    ///     loop {
    ///         let txn = guard
    ///             .txn()
    ///             .when([Compare::create_revision(paid.as_str(), CompareOp::Equal, 0)])
    ///             .and_then([TxnOp::put(paid.as_str(), "", None), TxnOp::put("payouts", order, None)]);
    ///         match txn.commit().await {
    ///             // Now, or by a transaction before.
    ///             Ok(TxnOutcome::Committed(_) | TxnOutcome::Refused(_)) => return Ok(()),
    ///             Ok(TxnOutcome::Lost(lost)) => return Err(lost.into()),
    ///             Err(Error::Unknown { .. }) => {}
    ///             Err(error) => return Err(error.into()),
    ///         }
    ///     }
    /// }
    /// ```
    pub async fn commit(self) -> Result<TxnOutcome> {
        let holds = &*self.holds;
        let txn = Txn::new()
            .when(self.when)
            .and_then(self.then)
            .or_else(self.otherwise);
        let mut failures = 0;
        loop {
            if let Some(lost) = known_to_be_lost(holds) {
                return Ok(TxnOutcome::Lost(lost));
            }
            let answer = if self.only_reads {
                read(holds, &txn).await
            } else {
                send(holds, &txn).await
            };
            let answer = match answer {
                Ok(answer) => answer,
                // By the first's session, or another's: nothing was sent, or nothing carried out.
                Err(Error::Lost(lost)) => {
                    let lost =
                        known_to_be_lost(holds).unwrap_or_else(|| holds[0].lost_by(lost, None));
                    return Ok(TxnOutcome::Lost(lost));
                }
                Err(error) => return Err(error),
            };
            let seen = match answer {
                Under::Judged(revision, inner) => {
                    let responses = inner.op_responses();
                    let done = Done {
                        revision,
                        responses,
                    };
                    return Ok(if inner.succeeded() {
                        TxnOutcome::Committed(done)
                    } else {
                        TxnOutcome::Refused(done)
                    });
                }
                Under::Unproved(seen) => seen,
            };
            for (hold, seen) in holds.iter().zip(seen) {
                if let Some(lost) = hold.lost_as_seen(holds[0], seen).await? {
                    return Ok(TxnOutcome::Lost(lost));
                }
            }
            // A key was put once more, by a proclamation for example.
            failures += 1;
            sleep(backoff(failures)).await;
        }
    }
}

const DOING: &str = "carry out a transaction";

/// Settles what is in doubt, then sends.
async fn send(holds: &[&Hold], txn: &Txn) -> Result<Under> {
    let under_way = UnderWay::begin(holds).await?;
    let (core, proofs) = (holds[0].core(), proofs(holds));
    let attempt = || core.etcd.under(&proofs, txn.clone());
    let settle = async || holds[0].settle(proofs[0].modified).await.is_ok();
    let over = || session_over(holds);
    let answer = core.ask_once(DOING, attempt, settle, over).await;
    // Settled is what any one of its holds has settled.
    if !matches!(answer, Err(Error::Unknown { settled: false, .. })) {
        under_way.ended();
    }
    answer
}

/// Sends what may be carried out any number of times.
async fn read(holds: &[&Hold], txn: &Txn) -> Result<Under> {
    let (core, proofs) = (holds[0].core(), proofs(holds));
    let attempt = || core.etcd.under(&proofs, txn.clone());
    Ok(core.ask(DOING, attempt).await?.value)
}

/// What proves the holds, as far as we know.
fn proofs<'a>(holds: &[&'a Hold]) -> Vec<Proof<'a>> {
    let proof = |hold: &&'a Hold| Proof {
        key: hold.key(),
        modified: hold.puts.last(),
        prefix: hold.place.name.prefix(),
    };
    holds.iter().map(proof).collect()
}

/// Waits until one of the sessions ends.
async fn session_over(holds: &[&Hold]) -> Lost {
    let sessions = holds.iter().map(|hold| Box::pin(hold.session().ended()));
    select_all(sessions).await.0
}

impl fmt::Debug for GuardedTxn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedTxn")
            .field("holds", &self.holds)
            .field("when", &self.when)
            .field("then", &self.then)
            .field("otherwise", &self.otherwise)
            .finish()
    }
}
