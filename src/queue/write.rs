//! Single reads and writes under a hold.

use super::hold::Hold;
use super::lost_hold::LostHold;
use super::outcome::{Done, TxnOutcome};
use crate::error::{Error, Result};
use etcd_client::{Compare, CompareOp, TxnOp, TxnOpResponse};

impl Hold {
    /// Reads a key in the lock's etcd, only while this is held; `None` if it is not there.
    ///
    /// That it is held is judged by etcd at the moment of the reading. It is repeated as often as
    /// need be, and never [unknown](Error::Unknown).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it is lost, [`Error::Etcd`] if etcd refuses.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let mut txn = self.txn().and_then([TxnOp::get(key, None)]);
        txn.only_reads = true;
        Ok(found(&held(txn.commit().await?)?))
    }

    /// Puts a value on a key in the lock's etcd, only while this is held.
    ///
    /// As [`txn`](Self::txn) with one operation.
    ///
    /// # Cancel safety
    ///
    /// As [`GuardedTxn::commit`](crate::GuardedTxn::commit).
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it is lost: nothing was put. [`Error::Invalid`] if the key would stand in
    /// the lock's own line, as every `name/…` without another `/` does. Else as
    /// [`GuardedTxn::commit`](crate::GuardedTxn::commit).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: etcd_lock::LockGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// guard.put("reports/nightly", "half done").await?;
    /// # Ok(()) }
    /// ```
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        let put = TxnOp::put(self.not_in_line(key)?, value, None);
        held(self.txn().and_then([put]).commit().await?)?;
        Ok(())
    }

    /// Deletes a key in the lock's etcd, only while this is held; tells whether there was one.
    ///
    /// # Cancel safety
    ///
    /// As [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub async fn delete(&self, key: impl Into<Vec<u8>>) -> Result<bool> {
        let delete = TxnOp::delete(key, None);
        let done = held(self.txn().and_then([delete]).commit().await?)?;
        let deleted = |answer: &TxnOpResponse| matches!(answer, TxnOpResponse::Delete(answer) if answer.deleted() > 0);
        Ok(done.responses.iter().any(deleted))
    }

    /// Puts a value on a key in the lock's etcd, only while this is held and the value is the
    /// expected one; `None` expects no key. Otherwise gives what is there.
    ///
    /// # Cancel safety
    ///
    /// As [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). That the value is another is the inner error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: etcd_lock::LockGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// match guard.compare_and_set("shards/7", Some(b"n1"), "n2").await? {
    ///     Ok(()) => println!("moved"),
    ///     Err(Some(owner)) => println!("it is at {}", String::from_utf8_lossy(&owner)),
    ///     Err(None) => println!("it is gone"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn compare_and_set(
        &self,
        key: impl Into<Vec<u8>>,
        expected: Option<&[u8]>,
        value: impl Into<Vec<u8>>,
    ) -> Result<Result<(), Option<Vec<u8>>>> {
        let key = self.not_in_line(key)?;
        let condition = match expected {
            Some(value) => Compare::value(key.as_slice(), CompareOp::Equal, value),
            None => Compare::create_revision(key.as_slice(), CompareOp::Equal, 0),
        };
        let get = TxnOp::get(key.as_slice(), None);
        let txn = self
            .txn()
            .when([condition])
            .and_then([TxnOp::put(key, value, None)])
            .or_else([get]);
        match txn.commit().await? {
            TxnOutcome::Committed(_) => Ok(Ok(())),
            TxnOutcome::Refused(done) => Ok(Err(found(&done))),
            TxnOutcome::Lost(LostHold { cause, .. }) => Err(cause.into()),
        }
    }
}

impl Hold {
    /// The key, unless it would stand in this hold's line, and hold when this does not any more.
    fn not_in_line(&self, key: impl Into<Vec<u8>>) -> Result<Vec<u8>> {
        let key = key.into();
        if self.place.name.is_in_line(&key) {
            let shown = String::from_utf8_lossy(&key);
            let why = format!(
                "{shown:?} would stand in the line for {:?} and hold it up; put the value elsewhere",
                self.name()
            );
            return Err(Error::invalid("key", why));
        }
        Ok(key)
    }
}

/// What was done by a transaction without conditions.
fn held(outcome: TxnOutcome) -> Result<Done> {
    match outcome {
        TxnOutcome::Committed(done) | TxnOutcome::Refused(done) => Ok(done),
        TxnOutcome::Lost(LostHold { cause, .. }) => Err(cause.into()),
    }
}

/// The value that was read, if the key is there.
fn found(done: &Done) -> Option<Vec<u8>> {
    let got = done.responses.iter().find_map(|answer| match answer {
        TxnOpResponse::Get(found) => found.kvs().first(),
        _ => None,
    });
    got.map(|kv| kv.value().to_vec())
}
