//! The value of a hold.

use crate::clock::Moment;
use crate::error::{Lost, Result};
use crate::etcd;
use crate::fencing::FencingToken;
use crate::queue::Hold;
use etcd_client::Compare;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::Instant;

/// A lock that is held, until this is released, dropped or lost.
///
/// A hold can be lost at any moment: its session may end, or somebody may delete its key. Ask
/// with [`is_held`](Self::is_held), wait with [`lost`](Self::lost), or run the work with
/// [`run_until_lost`](Self::run_until_lost), which stops it. A lost guard stays lost; locking
/// again gives a new guard with a larger token.
///
/// # Promises
///
/// As long as clocks run at about the same rate, a guard is not held any more *before* etcd can
/// give the lock to anybody else, unless somebody deletes its key: then that is told as soon as
/// etcd says so, and the next holder may be told at the same time.
///
/// Dropping it gives the lock up in the background, in any place: it does not block, panic or
/// need a runtime. [`release`](Self::release) tells you when it is done.
#[must_use = "dropping a guard at once gives the lock up; bind it to a name, not to `_`"]
pub struct LockGuard {
    hold: Hold,
}

impl LockGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Gives the number to fence the resource with: larger than that of every earlier holder.
    pub fn token(&self) -> FencingToken {
        FencingToken::of(self.hold.place().revision)
    }

    /// Gives the lock's name.
    pub fn name(&self) -> &str {
        self.hold.place().name.as_str()
    }

    /// Gives the key in etcd that this hold is.
    pub fn key(&self) -> &str {
        &self.hold.place().key
    }

    /// Tells whether the lock is certainly held at this moment.
    ///
    /// Compares the clock on every call, so it is right even if this process stood still until
    /// now. What happens between this answer and the next line is what the token is for.
    pub fn is_held(&self) -> bool {
        self.hold.certain().is_ok()
    }

    /// Gives the instant until which the lock is certainly held, if it still is.
    ///
    /// Renewals move it on. Within it the lock can be lost only by a delete of the key, a revoke
    /// of the lease or a close of the session.
    pub fn certain_until(&self) -> Option<Instant> {
        let until = self.hold.certain().ok()?;
        Some(Instant::now() + until.left(Moment::now()))
    }

    /// Waits until the lock is lost, and tells how.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; it can be called again.
    pub async fn lost(&self) -> Lost {
        self.hold.lost().await
    }

    /// Runs `work` as long as the lock is held: if it is lost, the work is dropped where it
    /// stands and the cause is given.
    ///
    /// The loss is asked for before every step of the work, by the clock. Work can be stopped
    /// only where it awaits: hand blocking work the token, and keep it short. What the work
    /// spawns is not stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the lock stays held.
    ///
    /// # Errors
    ///
    /// The cause of the loss; the work's own result is the inner value.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: etcd_lock::LockGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// let token = guard.token();
    /// let written = guard.run_until_lost(async { /* write, with the token */ }).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            if let Err(lost) = self.hold.certain() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Gives the lock up and waits until etcd has confirmed it.
    ///
    /// The guard counts as not held *before* the request goes out.
    ///
    /// # Cancel safety
    ///
    /// The lock is given up with the first poll; if the future is dropped, the key is removed
    /// in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) at once if the lock had been lost before: then the
    /// work was not protected to its end. [`Error::Unconfirmed`](crate::Error::Unconfirmed) if
    /// etcd has not confirmed within a TTL: removing goes on in the background.
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    /// Gives a condition for transactions of your own in the same etcd: true while this hold's
    /// key stands, so that nothing is written once it is gone.
    ///
    /// etcd judges it, not a clock: a transaction with this condition is safe however long
    /// this process was paused.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use etcd_lock::etcd_client::{Client, Txn, TxnOp};
    ///
    /// # async fn example(guard: etcd_lock::LockGuard, mut client: Client)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let txn = Txn::new()
    ///     .when([guard.fence()])
    ///     .and_then([TxnOp::put("report", "done", None)]);
    /// let written = client.txn(txn).await?.succeeded();
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Compare {
        etcd::is(self.key(), self.hold.place().revision)
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.key())
            .field("token", &self.token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
