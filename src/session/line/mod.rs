//! A line as a session sees it that has several waiters in it: one watch, the line in memory.
//!
//! The line is read once and then follows the puts and deletes of the watch, in the order of
//! revisions. A waiter has its turn when its key is the first: its own put has then been seen,
//! hence all that came before it. Whatever the number of waiters, a hand-over costs one commit,
//! one push, and one wake-up; nothing is read. After a gap, and once per TTL, it is read again.

mod ahead;
mod state;

pub(crate) use ahead::Ahead;
pub(crate) use state::News;

use super::core::Core;
use super::numbers::Number;
use super::watch::Change;
use crate::etcd::{Range, Read, Standing};
use crate::key::Name;
use state::State;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

/// The near window, see [`mod@crate::queue`]'s waiting: how many keys a join reads, and a look.
///
/// Chosen by what 64 sessions (256) with one contender each make that come back at once: with 3, 4, 8
/// and 16 it was 1,073 (658), 1,215 (841), 850 (735) and 782 (714) sections a second. With fewer, the
/// next is not ready when its turn comes; with more, more are told.
pub(crate) const NEAR: u8 = 4;

/// A session that follows a line goes on with up to so many times its waiters: to leave it and come near
/// again costs as much as to be told of all that happens (of 16 sessions as above: 1,660 sections a
/// second, and 1,284 without this).
const CROWD: usize = 32;

/// How long a line is followed after its last waiter: under contention, the next comes soon.
const LINGER: Duration = Duration::from_secs(1);

/// The lines that a session follows.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<Name, Arc<Line>>>);

#[derive(Default)]
struct Line {
    state: Mutex<State>,
    /// Rings when nobody waits any more.
    empty: Notify,
}

impl Lines {
    fn all(&self) -> MutexGuard<'_, HashMap<Name, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More are too many to begin to follow for those few of us who stand in that line.
    pub(crate) fn long(core: &Core, name: &Name) -> usize {
        usize::from(NEAR) * Number::in_use(core, name)
    }

    /// More are too many to follow on.
    fn crowd(core: &Core, name: &Name) -> usize {
        CROWD * Number::in_use(core, name)
    }

    pub(crate) fn follows(&self, name: &Name) -> bool {
        self.all().contains_key(name)
    }

    /// Waits until the key that was created at `revision` is the first in line, or gone, or seen to
    /// stand far back in a crowd.
    /// Shows meanwhile who is directly ahead.
    pub(crate) async fn wait(
        core: &Arc<Core>,
        name: &Name,
        (key, revision): (&Arc<str>, i64),
        ahead: Ahead,
    ) -> News {
        let (waiter, news) = Waiter::stand(core, name, (key, revision), ahead);
        // A line that is given up says nothing: then it has to be looked at.
        let news = news.await.unwrap_or(News::Unreadable);
        drop(waiter);
        news
    }
}

/// One of our own in a line, until dropped.
struct Waiter {
    line: Arc<Line>,
    key: Arc<[u8]>,
}

impl Waiter {
    fn stand(
        core: &Arc<Core>,
        name: &Name,
        (key, revision): (&Arc<str>, i64),
        ahead: Ahead,
    ) -> (Self, oneshot::Receiver<News>) {
        let (tell, news) = oneshot::channel();
        let mut lines = core.lines.all();
        let line = match lines.entry(name.clone()) {
            Entry::Occupied(line) => line.get().clone(),
            Entry::Vacant(none) => {
                let line = Arc::<Line>::default();
                tokio::spawn(run(core.clone(), name.clone(), line.clone()));
                none.insert(line).clone()
            }
        };
        let key = Arc::from(key.clone());
        // Under the lock of all lines: a line without waiters may be given up.
        let crowd = Lines::crowd(core, name);
        line.state().stand(&key, revision, ahead, crowd, tell);
        drop(lines);
        (Self { line, key }, news)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.waiting.remove(&self.key);
        if state.waiting.is_empty() {
            self.line.empty.notify_one();
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the task of a line does.
#[expect(
    clippy::manual_async_fn,
    reason = "it would keep its arguments twice, and there can be as many of these as waiters"
)]
fn run(core: Arc<Core>, name: Name, line: Arc<Line>) -> impl Future<Output = ()> {
    async move {
        let _ended = Ended(&core, &name, &line);
        tokio::select! {
            biased;
            () = follow(&core, &name, &line) => {}
            _lost = core.over() => {}
        }
    }
}

/// However the task ends: nobody waits for it any longer, and a new one may begin.
struct Ended<'a>(&'a Core, &'a Name, &'a Arc<Line>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let Self(core, name, line) = self;
        let mut lines = core.lines.all();
        if lines
            .get(name)
            .is_some_and(|other| Arc::ptr_eq(other, line))
        {
            lines.remove(name);
        }
        line.state().waiting.clear();
    }
}

/// Keeps the line up to date until nobody has waited in it for a while.
async fn follow(core: &Core, name: &Name, line: &Line) {
    let watch = core.watches.watch(Range::line(name.prefix().as_bytes()));
    let mut empty_since = None;
    loop {
        watch.ready().await;
        let read = Read::Line(name.clone());
        let read = core.read("read the line", read, |found| found.line(name));
        match read.await {
            Ok((revision, keys)) => {
                warn_of_foreign(name, &keys);
                line.state().load(revision, keys, Lines::crowd(core, name));
            }
            Err(error) => {
                tracing::debug!(%error, name = name.as_str(), "a line cannot be read");
                // Their channels close: they look for themselves.
                line.state().waiting.clear();
            }
        }
        let read_again = Instant::now() + core.about_a_ttl();
        loop {
            let (empty, linger) = {
                let state = line.state();
                // In a crowd, the next will stand far back.
                let crowd = state.length() > CROWD;
                let linger = if crowd { Duration::ZERO } else { LINGER };
                (state.waiting.is_empty(), linger)
            };
            empty_since = empty.then(|| empty_since.unwrap_or_else(Instant::now));
            let linger_until = empty_since.map(|since| since + linger);
            tokio::select! {
                biased;
                () = sleep_until(linger_until.map_or(read_again, |at| at.min(read_again))) => {
                    if Instant::now() >= read_again {
                        break;
                    }
                    // Under the lock of all lines, so that nobody comes meanwhile.
                    let mut lines = core.lines.all();
                    if line.state().waiting.is_empty() {
                        lines.remove(name);
                        return;
                    }
                }
                change = watch.changed() => match change {
                    Change::Events(events) => {
                        let crowd = Lines::crowd(core, name);
                        line.state().follow(events, crowd, |key| name.is_in_line(key));
                    }
                    Change::Gap => break,
                },
                () = line.empty.notified() => {}
            }
        }
    }
}

fn warn_of_foreign(name: &Name, keys: &[Standing]) {
    if let Some(foreign) = keys.iter().find(|standing| standing.lease == 0) {
        tracing::warn!(
            name = name.as_str(),
            key = %String::from_utf8_lossy(&foreign.key),
            "somebody waits behind a key without a lease: it goes only if somebody deletes it"
        );
    }
}
