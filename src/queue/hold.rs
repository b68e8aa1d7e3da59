//! Holding: from the turn to the release or the loss.

use super::breaking::why_gone;
use super::fate::Owned;
use super::place::Place;
use super::settle::Puts;
use super::sight::Holds;
use crate::clock::Moment;
use crate::error::{Error, Lost, Result};
use crate::etcd::{self, Guarded};
use crate::fencing::{FencingToken, NamedToken};
use crate::loss::Loss;
use crate::session::{Core, Session};
use etcd_client::Compare;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;
use tracing::Span;

/// What every hold can be asked, of a lock ([`LockGuard`](crate::LockGuard)) as of an election
/// ([`Leadership`](crate::Leadership)); both dereference to this.
///
/// A hold can be lost at any moment: its session may end, or somebody may delete its key. Ask
/// with [`is_held`](Self::is_held), wait with [`lost`](Self::lost), or run the work with
/// [`run_until_lost`](Self::run_until_lost), which stops it. What is lost stays lost.
///
/// # Promises
///
/// As long as clocks run at about the same rate, it is not held any more *before* etcd can give
/// the turn to anybody else. Two things done by hand are outside of that: a delete of its key and
/// a revoke of its lease. They are told as soon as etcd says so, and the next holder may be told
/// earlier.
///
/// # Not promised
///
/// That nothing is done after the loss: between an answer and what you do next, this process can
/// stand still, and a packet can be late. For that, take the [token](Self::token) to the resource;
/// what is in the same etcd is written by [transactions](Self::txn) that prove the hold.
pub struct Hold {
    /// Dropped before the place, whose session may end with it.
    fate: Owned,
    pub(super) place: Place,
    pub(super) puts: Puts,
}

impl Hold {
    /// A hold for a place that has had its turn, if the session is certain now.
    pub(super) fn begin(place: Place, waited: &Span) -> Result<Self> {
        let core = place.session.core();
        core.certain()?;
        let fate = Owned::begin(core, Holds::begin(&place, waited));
        let puts = Puts::begin(place.revision);
        Ok(Self { fate, place, puts })
    }

    /// Gives the number to fence the resource with: larger than that of every earlier holder.
    ///
    /// See [`FencingToken`] for what the resource has to do.
    pub fn token(&self) -> FencingToken {
        FencingToken::of(self.place.revision)
    }

    /// Gives the token together with the name, for a resource that could be shown another's.
    pub fn named_token(&self) -> NamedToken {
        NamedToken::of_name(self.place.name.clone(), self.token())
    }

    /// Gives the name of the lock or election.
    pub fn name(&self) -> &str {
        self.place.name.as_str()
    }

    /// Gives the key in etcd that this hold is.
    pub fn key(&self) -> &str {
        &self.place.key
    }

    /// Tells whether it is certainly held at this moment.
    ///
    /// Compares the clock on every call, so it is right even if this process stood still until
    /// now. What happens between this answer and the next line is what the token is for. Once
    /// false it stays false.
    pub fn is_held(&self) -> bool {
        self.certain().is_ok()
    }

    /// Gives the instant until which it is certainly held, if it still is.
    ///
    /// Renewals move it on. Before that it can be lost only by a delete of the key, a revoke of
    /// the lease or a close of the session. tokio's clock does not count time for which the
    /// machine is suspended; [`is_held`](Self::is_held) does (on Linux).
    pub fn certain_until(&self) -> Option<Instant> {
        let until = self.certain().ok()?;
        Some(Instant::now() + until.left(Moment::now()))
    }

    /// Waits until it is lost, and tells how.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; it can be called again.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    pub async fn lost(&self) -> Lost {
        loop {
            if let Some(lost) = self.fate.lost() {
                return lost;
            }
            tokio::select! {
                biased;
                () = self.fate.ended() => {}
                lost = self.place.session.ended() => return lost,
            }
        }
    }

    /// Runs `work` as long as it is held, and drops the work where it stands on loss.
    ///
    /// The loss is asked for before every step of the work, by the clock. Work can be stopped
    /// only where it awaits: hand blocking work the token, and keep it short. What the work
    /// spawns is not stopped. It runs in the hold's tracing span, which has its name and token.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work; the hold stays as it is.
    ///
    /// # Errors
    ///
    /// The cause of the loss; the work's own result is the inner value. Work that has come to its
    /// end was protected up to its last step, not through it: [`release`] tells if it was lost
    /// since.
    ///
    /// [`release`]: crate::LockGuard::release
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// Work that carries its token:
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
            if let Err(lost) = self.certain() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            let _seen = self.fate.span().enter();
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Gives a condition for transactions in the same etcd: true while this hold's key stands.
    ///
    /// Nothing is written once the key is gone. etcd judges it, not a clock: a transaction with
    /// this condition is safe however long this process was paused. (Its answer can be lost, as
    /// any answer; whoever repeats it has to be ready for its having been carried out, even later.)
    ///
    /// It is for clients and transactions of your own. [`txn`](Self::txn) has it built in, tells a
    /// loss from a condition that failed, and repeats what can be repeated.
    ///
    /// # Examples
    ///
    /// A write that only the holder can make:
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
        etcd::is(self.key(), self.place.revision)
    }

    /// The create revision of the key.
    pub(crate) fn revision(&self) -> i64 {
        self.place.revision
    }

    pub(super) fn session(&self) -> &Session {
        &self.place.session
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.session().core()
    }

    /// Ends it where its key was found to be gone, and tells why that is.
    pub(crate) async fn key_is_gone(&self) -> Lost {
        let lost = why_gone(self.core(), self.key()).await;
        self.fate.lose(lost)
    }

    /// Puts a value on the hold's own key, if that was last put at `modified`.
    pub(crate) async fn proclaim(&self, modified: i64, value: &[u8]) -> Result<Guarded> {
        let (core, key) = (self.core(), (self.key(), self.revision()));
        let put = || core.etcd.proclaim(key, modified, value, core.lease);
        let answer = core.ask("put the key's value", put).await?.value;
        if let Guarded::Written(revision) = answer {
            self.puts.note(revision);
        }
        Ok(answer)
    }

    /// What was known of its own loss when it was seen.
    pub(super) fn known_loss(&self) -> Option<Loss> {
        self.fate.loss()
    }

    /// Until when it is certainly held; an error once it is lost.
    pub(crate) fn certain(&self) -> Result<Moment, Lost> {
        match self.fate.lost() {
            Some(lost) => Err(lost),
            None => self.place.session.core().certain(),
        }
    }

    /// Gives it up, leaving to the caller what becomes of the key.
    pub(crate) fn end(self) -> Place {
        self.place
    }

    /// Gives it up: from now on it is not held, then the key goes.
    pub(crate) async fn release(self) -> Result<()> {
        self.certain()?;
        let Self {
            mut place, fate, ..
        } = self;
        drop(fate);
        let core = place.session.core().clone();
        let key = place.key.clone();
        match place.leave().await {
            Ok(Some(false)) => Err(why_gone(&core, &key).await.into()),
            Ok(Some(true) | None) => Ok(()),
            // It was held until it was given up: what was lost is the answer.
            Err(Error::Lost(lost)) => Err(Error::Unconfirmed {
                what: format!("the end of key {key:?}"),
                why: lost.to_string(),
                within: core.ttl,
            }),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &self.key())
            .field("token", &self.token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
