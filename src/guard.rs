//! The value of a lock that is held.

use crate::error::Result;
use crate::queue::Hold;
use std::ops::Deref;

/// A lock that is held, until this is released, dropped or lost.
///
/// Everything a hold can be asked is on [`Hold`], to which this dereferences: the
/// [token](Hold::token), whether it [is held](Hold::is_held), how it was [lost](Hold::lost), and
/// [work that stops on loss](Hold::run_until_lost). A lost guard stays lost; locking again gives
/// a new guard with a larger token.
///
/// Dropping it gives the lock up in the background, in any place: it does not block, panic or
/// need a runtime. [`release`](Self::release) tells you when it is done. Beware of
/// `let _ = mutex.lock().await?`, which drops it at once; `let _guard = …` does not.
#[must_use = "dropping a guard at once gives the lock up; bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct LockGuard {
    hold: Hold,
}

impl LockGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Gives the lock up and waits until etcd has confirmed it.
    ///
    /// The guard counts as not held *before* the request goes out.
    ///
    /// # Cancel safety
    ///
    /// The lock is given up in any case; if the future is dropped, the key is removed in the
    /// background.
    ///
    /// # Errors
    ///
    /// Whatever it is, the lock is given up; with the latter two the key may stand a while longer.
    ///
    /// - [`Error::Lost`](crate::Error::Lost) if the lock had been lost before: the work may not
    ///   have been protected to its end.
    /// - [`Error::Unconfirmed`](crate::Error::Unconfirmed) if etcd has not confirmed within a
    ///   TTL, or before the session ended; [`Error::Etcd`](crate::Error::Etcd) if it refuses.
    ///   The key is removed in the background, or goes with the lease.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: etcd_lock::LockGuard) {
    /// use etcd_lock::Error;
    ///
    /// match guard.release().await {
    ///     Ok(()) => println!("done, and the next one has it"),
    ///     Err(Error::Lost(lost)) => println!("somebody else may have worked meanwhile: {lost}"),
    ///     Err(error) => println!("done; the next one may have to wait: {error}"),
    /// }
    /// # }
    /// ```
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }
}

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}
