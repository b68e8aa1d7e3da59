//! Breaking a hold: its key goes, and a note stays beside it for its owner.

use super::write::leased_put;
use super::{Etcd, Read, is};
use etcd_client::{Error, Txn, TxnOp};

impl Etcd {
    /// Deletes the key, if it still is the one created at `revision`. A note of who did it is put
    /// on `lease`, the key's own, so that it goes with that at the latest; none if there is none.
    pub(crate) async fn break_key(
        &self,
        key: &[u8],
        revision: i64,
        note: Option<(&str, i64)>,
    ) -> Result<bool, Error> {
        let mut then = vec![TxnOp::delete(key, None)];
        if let (Some((by, lease)), Ok(key)) = (note, std::str::from_utf8(key)) {
            then.push(leased_put(&beside(key), by.as_bytes(), lease));
        }
        let txn = Txn::new().when([is(key, revision)]).and_then(then);
        Ok(self.kv.clone().txn(txn).await?.succeeded())
    }

    /// Deletes the note about this key, if there is one.
    pub(crate) async fn forget_break(&self, key: &str) -> Result<(), Error> {
        self.kv.clone().delete(beside(key), None).await.map(drop)
    }
}

/// Asks for the note about this key, whose value says who broke the hold.
pub(crate) fn note_about(key: &str) -> Read {
    Read::Key(beside(key).into())
}

/// Behind another '/', so not in the line.
fn beside(key: &str) -> String {
    format!("{key}/broken")
}
