//! The janitor: pays what others owe when they are dropped, and takes the lease away at the end.
//!
//! Dropping a future does not take its request back, and a delete can overtake the put that
//! it is to undo. So whoever is dropped in mid-request hands the request itself over, as a
//! future, and the janitor brings it to its definite outcome and then cleans up. Even so, a
//! member that was frozen can apply a put minutes after it was given up: after any doubtful
//! join the janitor looks, once per TTL, for keys on the lease that nobody owns.

use super::core::Core;
use super::retry::{Hedge, backoff, until_answered};
use super::room::give_back;
use crate::error::{Lost, Result};
use crate::etcd::{Read, Write};
use crate::key;
use crate::metrics;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Work that somebody owes and the janitor does; dropped when the session ends.
pub(crate) type Debt = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells how the revoke at the end came out.
pub(super) type TellRevoked = watch::Sender<Option<Result<(), String>>>;

/// Gives the work once it is due, or nothing if there is no more need.
type Later = Box<dyn FnOnce() -> Option<Debt> + Send>;

/// How long work given to [`Debts::later`] rests: holds shorter than this cost nothing more.
///
/// What longer ones cost more is the watch on their own key, once: 40 us of a core here and 65 in etcd where locks are
/// taken one by one, 1 and 7 where hundreds are taken at once, and 0.9 KB here while they are held.
const REST: Duration = Duration::from_millis(100);

/// The counter where everybody leaves what the janitor is to do.
pub(crate) struct Debts {
    send: mpsc::UnboundedSender<Debt>,
    /// Nothing once nobody works any more.
    resting: Mutex<Option<VecDeque<(Instant, Later)>>>,
    rests: AtomicBool,
    doubt: AtomicBool,
    bell: Notify,
}

impl Debts {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Debt>) {
        let (send, receive) = mpsc::unbounded_channel();
        let debts = Self {
            send,
            resting: Mutex::new(Some(VecDeque::new())),
            rests: AtomicBool::new(false),
            doubt: AtomicBool::new(false),
            bell: Notify::new(),
        };
        (debts, receive)
    }

    /// Hands work over. Never blocks or fails; after the session's end there is none to do.
    pub(crate) fn owe(&self, debt: impl Future<Output = ()> + Send + 'static) {
        let _session_is_over = self.send.send(Box::pin(debt));
    }

    /// Hands over work that is to begin in [`REST`], if `work` still gives any then. It is dropped
    /// when the session ends, at once if that has ended.
    pub(crate) fn later(&self, work: impl FnOnce() -> Option<Debt> + Send + 'static) {
        let due = Instant::now() + REST;
        let mut resting = lock(&self.resting);
        let Some(resting) = resting.as_mut() else {
            return;
        };
        resting.push_back((due, Box::new(work)));
        if !self.rests.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// Has the keys on the lease looked through from now on, once per TTL.
    pub(super) fn sweep(&self) {
        if !self.doubt.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// What has rested long enough, and when to look again.
    fn rested(&self) -> (Vec<Later>, Option<Instant>) {
        let mut resting = lock(&self.resting);
        let Some(resting) = resting.as_mut() else {
            return (Vec::new(), None);
        };
        let now = Instant::now();
        let n = resting.partition_point(|(due, _)| *due <= now);
        let due = resting.drain(..n).map(|(_, work)| work).collect();
        give_back(resting);
        let again = (!resting.is_empty()).then(|| now + REST);
        self.rests.store(again.is_some(), Ordering::Release);
        (due, again)
    }
}

/// Nobody works any more, and what rests is dropped.
struct Shut<'a>(&'a Debts);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        let resting = lock(&self.0.resting).take();
        // Not under the lock: it may have something to say when it goes.
        drop(resting);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn run(
    core: Arc<Core>,
    mut receive: mpsc::UnboundedReceiver<Debt>,
    tell_revoked: TellRevoked,
) {
    let shut = Shut(&core.debts);
    let mut working = FuturesUnordered::new();
    let mut look_at: Option<Instant> = None;
    let mut sweep_at: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            _lost = core.over() => break,
            Some(()) = working.next() => {}
            Some(debt) = receive.recv() => working.push(debt),
            () = core.debts.bell.notified() => {
                look_at = look_at.or_else(|| Some(Instant::now() + REST));
                if core.debts.doubt.load(Ordering::Acquire) {
                    sweep_at = sweep_at.or_else(|| Some(Instant::now() + core.ttl));
                }
            }
            () = at(look_at) => {
                let (due, again) = core.debts.rested();
                working.extend(due.into_iter().filter_map(|work| work()));
                look_at = again;
            }
            () = at(sweep_at) => {
                let core = core.clone();
                sweep_at = Some(Instant::now() + core.ttl);
                working.push(Box::pin(async move { sweep(&core).await }));
            }
        }
    }
    drop((working, shut));
    tell_revoked.send_replace(Some(revoke(&core).await));
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Removes the keys on the lease that nobody answers for: those whose numbers are retired.
async fn sweep(core: &Core) {
    let Ok(answer) = core
        .ask("look for keys on the lease", || {
            core.etcd.lease_keys(core.lease)
        })
        .await
    else {
        return;
    };
    for key in answer.value {
        let ours = key::of_session(&key, core.lease);
        if !ours.is_some_and(|(name, n)| core.numbers.is_retired(&name, n)) {
            continue;
        }
        // Our own keys are always text.
        let Ok(key) = String::from_utf8(key) else {
            continue;
        };
        let key = Arc::<str>::from(key);
        let read = Read::Key(key.clone());
        if let Ok(Some(standing)) = core.read("look at a key", read, |found| found.key()).await {
            tracing::warn!(
                key = &*key,
                token = standing.revision,
                "swept a key that a late request had put"
            );
            metrics::swept();
            remove(core, key, standing.revision).await;
        }
    }
}

/// Deletes a key, and what an operator may have put beside it in its place, however long it takes
/// while the session lives.
pub(crate) async fn remove(core: &Core, key: Arc<str>, revision: i64) {
    // Slow from the start: what could pass was tried again already.
    let mut failures = 8;
    let leave = async || -> Result<()> {
        let leave = Write::Leave {
            key: key.clone(),
            revision,
        };
        if core.write("delete a key", leave).await?.value.left() {
            return Ok(());
        }
        let forget = || core.etcd.forget_break(&key);
        core.ask("forget that a hold was broken", forget).await?;
        Ok(())
    };
    while let Err(error) = leave().await {
        if core.certain().is_err() {
            return;
        }
        tracing::warn!(%error, key = &*key, "a key could not be deleted; trying on");
        failures += 1;
        sleep(backoff(failures)).await;
    }
}

/// Revokes the lease, so that nobody has to wait for it to expire.
async fn revoke(core: &Core) -> Result<(), String> {
    let deadline = Some(Instant::now() + core.ttl);
    let attempt = || core.etcd.revoke(core.lease);
    match until_answered(&core.etcd, Hedge::Late(&core.pace), deadline, attempt).await {
        Ok(_) => Ok(()),
        Err(refused) => {
            let error = refused.into_error("revoke the lease").to_string();
            if core
                .over
                .get()
                .is_some_and(|loss| loss.cause == Lost::Closed)
            {
                tracing::warn!(error, "the lease of a closed session is left to expire");
            }
            Err(error)
        }
    }
}
