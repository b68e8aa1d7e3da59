//! Writes of a holder, each in the transaction that proves the hold.

use super::line::{first, first_range, revision};
use super::write::leased_put;
use super::{Etcd, Verdict, classify, is};
use etcd_client::{Compare, CompareOp, Error, PutOptions, Txn, TxnOp};

/// The answer to a guarded write.
#[derive(Debug)]
pub(crate) enum Guarded {
    /// It was carried out, at this revision.
    Written(i64),
    /// A condition failed: what is behind the key that was asked about.
    Refused(Option<super::Standing>),
    /// The lease that a mark was to hang on does not exist.
    NoLease,
}

impl Etcd {
    /// Puts a value on the hold's own key, if that was last put at `modified`. Refused, tells
    /// what the key is.
    pub(crate) async fn proclaim(
        &self,
        (key, revision): (&str, i64),
        modified: i64,
        value: &[u8],
        lease: i64,
    ) -> Result<Guarded, Error> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, modified);
        let put = leased_put(key, value, lease);
        self.guarded(vec![is(key, revision), unchanged], vec![put], key)
            .await
    }

    /// Puts the key once more as it is, if it was last put at `modified`: whatever was to be done
    /// on that condition is done by then or never. Refused, tells what the key is.
    pub(crate) async fn settle(&self, key: &str, modified: i64) -> Result<Guarded, Error> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, modified);
        let same = PutOptions::new().with_ignore_value().with_ignore_lease();
        let put = TxnOp::put(key, "", Some(same));
        self.guarded(vec![unchanged], vec![put], key).await
    }

    /// Puts `mark`, if the hold stands and nothing is there. Refused, tells what is there.
    pub(crate) async fn mark_start(
        &self,
        (key, revision): (&str, i64),
        mark: &str,
        put: Option<(&[u8], i64)>,
    ) -> Result<Guarded, Error> {
        let absent = Compare::create_revision(mark, CompareOp::Equal, 0);
        let put = put.map(|(value, lease)| leased_put(mark, value, lease));
        let then = put.into_iter().collect();
        let when = vec![is(key, revision), absent];
        on_lease_of_its_own(self.guarded(when, then, mark).await)
    }

    /// Puts `mark` and deletes the hold's key in one, if the hold stands.
    pub(crate) async fn mark_end(
        &self,
        (key, revision): (&str, i64),
        mark: &str,
        value: &[u8],
        lease: i64,
    ) -> Result<Guarded, Error> {
        let then = vec![leased_put(mark, value, lease), TxnOp::delete(key, None)];
        let when = vec![is(key, revision)];
        on_lease_of_its_own(self.guarded(when, then, mark).await)
    }

    async fn guarded(
        &self,
        when: Vec<Compare>,
        then: Vec<TxnOp>,
        otherwise: &str,
    ) -> Result<Guarded, Error> {
        let txn = Txn::new()
            .when(when)
            .and_then(then)
            .or_else([TxnOp::get(otherwise, None)]);
        let mut answer = self.kv.clone().txn(txn).await?;
        if answer.succeeded() {
            return revision(&mut answer).map(Guarded::Written);
        }
        Ok(Guarded::Refused(first(&first_range(&answer)?)))
    }
}

/// A missing lease is an answer where it is not the session's.
fn on_lease_of_its_own(answer: Result<Guarded, Error>) -> Result<Guarded, Error> {
    match answer {
        Err(error) if classify(&error) == Verdict::LeaseGone => Ok(Guarded::NoLease),
        answer => answer,
    }
}
