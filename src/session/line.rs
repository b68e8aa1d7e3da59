//! A line as a session sees it that has several waiters in it: one watch, the line in memory.
//!
//! The line is read once and then follows the puts and deletes of the watch, in the order of
//! revisions. A waiter has its turn when its key is the first: its own put has then been seen,
//! hence all that came before it. Whatever the number of waiters, a hand-over costs one commit,
//! one push, and one wake-up; nothing is read. After a gap, and once per TTL, it is read again.

use super::core::Core;
use super::watch::{Change, Event};
use crate::etcd::{Range, Standing};
use crate::key::Name;
use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// How long a line is followed after its last waiter: under contention, the next comes soon.
const LINGER: Duration = Duration::from_secs(1);

/// The lines that a session follows.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<Name, Arc<Line>>>);

/// What a waiter is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Its key is the first.
    Turn,
    /// Its key is gone.
    Gone,
    /// The line cannot be read: look for yourself why.
    Unreadable,
}

struct Line {
    state: Mutex<State>,
    /// Rings when nobody waits any more.
    empty: Notify,
}

#[derive(Default)]
struct State {
    /// The revision of the last read.
    loaded: i64,
    /// Everything that was created up to this revision, and lives, is here.
    complete: i64,
    order: BTreeSet<(i64, Arc<[u8]>)>,
    by_key: HashMap<Arc<[u8]>, i64>,
    /// Our own waiters, by the create revision of their keys.
    waiting: HashMap<i64, oneshot::Sender<News>>,
}

impl Lines {
    fn all(&self) -> MutexGuard<'_, HashMap<Name, Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn follows(&self, name: &Name) -> bool {
        self.all().contains_key(name)
    }

    /// Waits until the key that was created at `revision` is the first in line, or gone.
    pub(crate) async fn wait(core: &Arc<Core>, name: &Name, key: &str, revision: i64) -> News {
        let (waiter, news) = Waiter::stand(core, name, key, revision);
        // A line that is given up says nothing: then it has to be looked at.
        let news = news.await.unwrap_or(News::Unreadable);
        drop(waiter);
        news
    }
}

/// One of our own in a line, until dropped.
struct Waiter {
    line: Arc<Line>,
    revision: i64,
}

impl Waiter {
    fn stand(
        core: &Arc<Core>,
        name: &Name,
        key: &str,
        revision: i64,
    ) -> (Self, oneshot::Receiver<News>) {
        let (tell, news) = oneshot::channel();
        let mut lines = core.lines.all();
        let line = match lines.entry(name.clone()) {
            Entry::Occupied(line) => line.get().clone(),
            Entry::Vacant(none) => {
                let line = Arc::new(Line {
                    state: Mutex::default(),
                    empty: Notify::new(),
                });
                tokio::spawn(run(core.clone(), name.clone(), line.clone()));
                none.insert(line).clone()
            }
        };
        // Under the lock of all lines: a line without waiters may be given up.
        line.state().stand(key.as_bytes(), revision, tell);
        (Self { line, revision }, news)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.waiting.remove(&self.revision);
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

impl State {
    fn stand(&mut self, key: &[u8], revision: i64, tell: oneshot::Sender<News>) {
        let here = self.by_key.get(key) == Some(&revision);
        if revision <= self.complete && !here {
            let _nobody_waits = tell.send(News::Gone);
            return;
        }
        self.waiting.insert(revision, tell);
        self.call_first();
    }

    /// Takes over what a read found, at `revision`.
    fn load(&mut self, revision: i64, keys: impl Iterator<Item = Standing>) {
        self.order.clear();
        self.by_key.clear();
        for standing in keys {
            self.add(standing.key.into(), standing.revision);
        }
        (self.loaded, self.complete) = (revision, revision);
        let is_gone = |waiter: &i64| *waiter <= revision && !self.stands(*waiter);
        let gone: Vec<i64> = self.waiting.keys().copied().filter(is_gone).collect();
        for waiter in gone {
            self.tell(waiter, News::Gone);
        }
        self.call_first();
    }

    /// Takes over what happened since; nobody is called before all of it is.
    fn follow(&mut self, events: Vec<Event>, is_in_line: impl Fn(&[u8]) -> bool) {
        for event in events {
            // Events of before the read are in what was read.
            if event.at <= self.loaded || !is_in_line(&event.key) {
                continue;
            }
            self.complete = event.at;
            if event.is_delete() {
                if let Some(revision) = self.by_key.remove(&event.key) {
                    self.order.remove(&(revision, event.key));
                    self.tell(revision, News::Gone);
                }
            } else if event.created == event.at {
                self.add(event.key, event.created);
            }
        }
        self.call_first();
    }

    fn stands(&self, revision: i64) -> bool {
        let from = (revision, Arc::from(&b""[..]));
        let next = self.order.range(from..).next();
        next.is_some_and(|(standing, _)| *standing == revision)
    }

    fn add(&mut self, key: Arc<[u8]>, revision: i64) {
        self.by_key.insert(key.clone(), revision);
        self.order.insert((revision, key));
    }

    fn call_first(&mut self) {
        if let Some((first, _)) = self.order.first() {
            self.tell(*first, News::Turn);
        }
    }

    fn tell(&mut self, waiter: i64, news: News) {
        if let Some(tell) = self.waiting.remove(&waiter) {
            let _nobody_waits = tell.send(news);
        }
    }
}

async fn run(core: Arc<Core>, name: Name, line: Arc<Line>) {
    tokio::select! {
        () = follow(&core, &name, &line) => {}
        _lost = core.over() => {
            core.lines.all().remove(&name);
        }
    }
}

/// Keeps the line up to date until nobody has waited in it for a while.
async fn follow(core: &Core, name: &Name, line: &Line) {
    let watch = core.watches.watch(Range::line(name.prefix()));
    loop {
        watch.ready().await;
        match core
            .ask("read the line", || core.etcd.line(name.prefix()))
            .await
        {
            Ok(answer) => {
                let (revision, mut keys) = answer.value;
                keys.retain(|standing| name.is_in_line(&standing.key));
                warn_of_foreign(name, &keys);
                line.state().load(revision, keys.into_iter());
            }
            Err(error) => {
                tracing::debug!(%error, name = name.as_str(), "a line cannot be read");
                let waiting: Vec<_> = line.state().waiting.drain().collect();
                for (_, tell) in waiting {
                    let _nobody_waits = tell.send(News::Unreadable);
                }
            }
        }
        let read_again = sleep(core.about_a_ttl());
        tokio::pin!(read_again);
        loop {
            tokio::select! {
                change = watch.changed() => match change {
                    Change::Events(events) => {
                        line.state().follow(events, |key| name.is_in_line(key));
                    }
                    Change::Gap => break,
                },
                () = &mut read_again => break,
                () = line.empty.notified() => {}
                () = sleep(LINGER), if line.state().waiting.is_empty() => {
                    let mut lines = core.lines.all();
                    if line.state().waiting.is_empty() {
                        lines.remove(name);
                        return;
                    }
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, at: i64) -> Event {
        Event {
            key: Arc::from(key.as_bytes()),
            created: at,
            at,
            lease: 1,
        }
    }

    fn delete(key: &str, at: i64) -> Event {
        Event {
            created: 0,
            ..put(key, at)
        }
    }

    fn standing(key: &str, revision: i64) -> Standing {
        Standing {
            key: key.into(),
            revision,
            modified: revision,
            lease: 1,
            value: Vec::new(),
        }
    }

    fn stand(state: &mut State, key: &str, revision: i64) -> oneshot::Receiver<News> {
        let (tell, news) = oneshot::channel();
        state.stand(key.as_bytes(), revision, tell);
        news
    }

    fn told(news: &mut oneshot::Receiver<News>) -> Option<News> {
        news.try_recv().ok()
    }

    fn all(_: &[u8]) -> bool {
        true
    }

    #[test]
    fn the_turn_comes_when_all_before_are_gone() {
        let mut state = State::default();
        state.load(5, [standing("a", 3), standing("b", 4)].into_iter());
        let mut news = stand(&mut state, "me", 7);
        state.follow(vec![put("c", 6), put("me", 7), delete("a", 8)], all);
        assert_eq!(told(&mut news), None);
        state.follow(vec![delete("c", 9), delete("b", 10)], all);
        assert_eq!(told(&mut news), Some(News::Turn));
    }

    #[test]
    fn nobody_is_first_before_its_own_put_was_seen() {
        let mut state = State::default();
        state.load(5, std::iter::empty());
        let mut news = stand(&mut state, "me", 7);
        assert_eq!(told(&mut news), None, "somebody may have come at 6");
        state.follow(vec![put("c", 6)], all);
        assert_eq!(told(&mut news), None);
        state.follow(vec![put("me", 7)], all);
        assert_eq!(told(&mut news), None);
        state.follow(vec![delete("c", 8)], all);
        assert_eq!(told(&mut news), Some(News::Turn));
    }

    #[test]
    fn a_waiter_whose_key_goes_is_told_wherever_it_is_seen() {
        let mut state = State::default();
        state.load(5, [standing("a", 3), standing("me", 4)].into_iter());
        let mut news = stand(&mut state, "me", 4);
        state.follow(vec![delete("me", 6), delete("a", 6)], all);
        assert_eq!(
            told(&mut news),
            Some(News::Gone),
            "not the turn of a key that is gone"
        );
        let mut news = stand(&mut state, "me", 4);
        assert_eq!(told(&mut news), Some(News::Gone), "gone before it asked");
        let mut news = stand(&mut state, "me", 7);
        state.load(9, [standing("a", 8)].into_iter());
        assert_eq!(told(&mut news), Some(News::Gone), "not in a later read");
    }

    #[test]
    fn events_from_before_the_read_change_nothing() {
        let mut state = State::default();
        state.load(9, [standing("again", 8)].into_iter());
        let mut news = stand(&mut state, "me", 10);
        state.follow(
            vec![delete("again", 7), put("again", 8), put("me", 10)],
            all,
        );
        assert_eq!(told(&mut news), None);
        state.follow(vec![delete("again", 11)], all);
        assert_eq!(told(&mut news), Some(News::Turn));
    }
}
