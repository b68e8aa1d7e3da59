//! The door to a lock.

use crate::error::{Error, Result};
use crate::fencing::FencingToken;
use crate::guard::LockGuard;
use crate::key::Name;
#[cfg(doc)]
use crate::queue::Hold;
use crate::queue::{self, Waiter};
use crate::session::Session;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// A limit that nobody lives to see.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A lock that at most one guard holds at a time, across processes, machines and languages.
///
/// Everybody who wants the same name stands in one line, first come first served, and is woken
/// when the turn comes: tasks of one session, sessions, processes, and whoever uses the Go
/// client's `concurrency.Mutex`, `etcdctl lock` or jetcd on that name. `a` and `a/b` are
/// different locks.
///
/// Cheap to make and to clone: it is a name and a clone of the session, and sends nothing by
/// itself.
///
/// # Promises
///
/// - At most one guard of a name [is held](Hold::is_held) at any moment, as far as time can tell;
///   see [`Hold`].
/// - Turns come in the order in which etcd took the requests to join.
///
/// # Not promised
///
/// - The order of calls: of two at about the same time, etcd may take either first.
/// - Re-entrancy: a task that holds the lock and calls [`lock`](Self::lock) again waits for
///   itself.
/// - That work under the lock never overlaps, if the work does not check. Run it with
///   [`run_until_lost`](Hold::run_until_lost) and take the [token](Hold::token) to the
///   resource.
///
/// # Examples
///
/// One job at a time, wherever it is started:
///
/// ```no_run
/// use etcd_lock::{Mutex, Session};
///
/// # async fn example(session: Session) -> Result<(), Box<dyn std::error::Error>> {
/// let mutex = Mutex::new(&session, "jobs/nightly")?;
/// let guard = mutex.lock().await?;
/// match guard.run_until_lost(async { /* the work */ }).await {
///     Ok(()) => guard.release().await?,
///     Err(lost) => eprintln!("stopped in the middle: {lost}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Mutex {
    session: Session,
    name: Name,
}

/// What a [try](Mutex::try_lock) gives if the lock is held, or somebody waits for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("held by {} ({})", holder.label, holder.key)]
pub struct Busy {
    holder: Waiter,
}

impl Busy {
    /// Tells who was first in line when the lock was tried.
    pub fn holder(&self) -> &Waiter {
        &self.holder
    }
}

impl Mutex {
    /// Names a lock, to be locked through `session`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is empty or ends in `/`.
    pub fn new(session: &Session, name: &str) -> Result<Self> {
        let name = Name::new(name)?;
        let session = session.clone();
        Ok(Self { session, name })
    }

    /// Gives the lock's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Waits in line for the lock.
    ///
    /// Without contention this is one transaction. The wait ends with the session at the
    /// latest; bound it with [`lock_within`](Self::lock_within) or [`tokio::time::timeout`].
    /// The place in line is taken when the future is first polled; the future borrows nothing
    /// and can be spawned.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line, even if its request is in flight or the
    /// turn has just come: the key is removed in the background. A later call stands at the
    /// end of the line.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the session ends, or the place's key is deleted by somebody else: told
    /// within a second, if etcd can be reached. [`Error::Etcd`] if etcd refuses for good
    /// (permissions, for example). That no member answers is no error here: it is tried again
    /// until the session ends; so is a look at the line by who stands in it already, should the
    /// permission be taken away.
    ///
    /// # Panics
    ///
    /// It may, if it is not polled in a tokio runtime with time enabled.
    pub fn lock(&self) -> impl Future<Output = Result<LockGuard>> + Send + use<> {
        let (session, name, label) = self.parts();
        async move { queue::wait(session, name, label).await.map(LockGuard::new) }
    }

    /// Takes the lock if nobody stands in its line, and else tells who is first.
    ///
    /// One transaction, as a rule; a try that fails leaves nothing behind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes no lock: if its request is in flight, the key is removed in the
    /// background.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). That the lock is busy is not among them but the inner `Err`:
    /// `is_ok()`, or `if let Ok(_) = …`, does **not** mean that the lock was taken. Match both,
    /// or use `??`.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// Skip a run that is going on elsewhere:
    ///
    /// ```no_run
    /// # async fn example(mutex: etcd_lock::Mutex) -> Result<(), etcd_lock::Error> {
    /// match mutex.try_lock().await? {
    ///     Ok(guard) => guard.release().await?,
    ///     Err(busy) => println!("skipped: {busy}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_lock(&self) -> impl Future<Output = Result<Result<LockGuard, Busy>>> + Send + use<> {
        let (session, name, label) = self.parts();
        async move {
            let tried = queue::try_once(session, name, label).await?;
            Ok(match tried {
                Ok(hold) => Ok(LockGuard::new(hold)),
                Err(first) => Err(Busy {
                    holder: Waiter::new(0, &first),
                }),
            })
        }
    }

    /// Waits in line for the lock, but not longer than `limit`, counted from this call.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] after `limit`, whether others held it or etcd was away; else as
    /// [`lock`](Self::lock).
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: etcd_lock::Mutex) -> Result<(), etcd_lock::Error> {
    /// use std::time::Duration;
    ///
    /// match mutex.lock_within(Duration::from_secs(5)).await {
    ///     Ok(guard) => guard.release().await?,
    ///     Err(etcd_lock::Error::TimedOut { .. }) => println!("busy; another time"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn lock_within(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<LockGuard>> + Send + use<> {
        // So far in the future that the sum cannot be too large.
        let deadline = Instant::now() + limit.min(A_LIFETIME);
        let (session, name, label) = self.parts();
        async move {
            let waited = queue::wait_until(deadline, session, name.clone(), label).await;
            let Some(hold) = waited else {
                let name = name.as_str().to_owned();
                return Err(Error::TimedOut { name, limit });
            };
            hold.map(LockGuard::new)
        }
    }

    /// Shows who stands in the line: the holder first, then the waiters in order.
    ///
    /// It is read from etcd in one linearizable read: true of that moment, past when you see it.
    /// Whoever is first may not yet know, and one that has crashed is shown until its lease ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the session ends, [`Error::Etcd`] if etcd refuses.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: etcd_lock::Mutex) -> Result<(), etcd_lock::Error> {
    /// for waiter in mutex.queue().await? {
    ///     println!("{}. {} (token {})", waiter.position, waiter.label, waiter.token);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn queue(&self) -> Result<Vec<Waiter>> {
        let line = queue::list(self.session.core(), &self.name).await?;
        let line = line.iter().enumerate();
        Ok(line
            .map(|(position, standing)| Waiter::new(position, standing))
            .collect())
    }

    /// Breaks the hold with this token: deletes its key, if it still is the one that holds.
    ///
    /// Gives who held; `None` if no hold with this token is first in the line (any more), and
    /// nothing was done. Take the token from the [queue](Self::queue) that made you decide: a hold
    /// that began since is left alone.
    ///
    /// # Promises
    ///
    /// The holder is told [`Lost::Broken`](crate::Lost::Broken) as soon as etcd is heard, or at its
    /// release. Those of other clients learn of it as of any delete of their key.
    ///
    /// # Not promised
    ///
    /// That it has stopped working: the next in line holds at once, and the old one is told only
    /// afterwards. If the resource checks no [token](Hold::token), stop its process instead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may or may not break the hold.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if this session ends, [`Error::Etcd`] if etcd refuses. If an answer was lost
    /// and the hold is over then, it counts as broken: it may have ended by itself meanwhile.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: etcd_lock::Mutex) -> Result<(), etcd_lock::Error> {
    /// let queue = mutex.queue().await?;
    /// if let Some(holder) = queue.first().filter(|holder| holder.label == "host-7:4711") {
    ///     mutex.break_if(holder.token).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn break_if(&self, token: FencingToken) -> Result<Option<Waiter>> {
        let broken = queue::break_if(self.session.core(), &self.name, token.revision()).await?;
        Ok(broken.map(|standing| Waiter::new(0, &standing)))
    }

    /// What a future that borrows nothing needs.
    fn parts(&self) -> (Session, Name, Vec<u8>) {
        let label = queue::inscription(self.session.core());
        (self.session.clone(), self.name.clone(), label)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name())
            .field("session", &self.session)
            .finish()
    }
}
