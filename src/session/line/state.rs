//! The line in memory: what is read, what follows, and whose turn it is.

use super::ahead::Ahead;
use crate::etcd::Standing;
use crate::session::Event;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a waiter is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Its key is the first.
    Turn,
    /// Its key is gone.
    Gone,
    /// The line cannot be followed: look for yourself why.
    Unreadable,
}

#[derive(Default)]
pub(super) struct State {
    /// The revision of the last read.
    loaded: i64,
    /// Everything that was created up to this revision, and lives, is here.
    complete: i64,
    order: BTreeSet<(i64, Arc<[u8]>)>,
    by_key: HashMap<Arc<[u8]>, i64>,
    /// Our own waiters, by their keys.
    pub(super) waiting: BTreeMap<Arc<[u8]>, Waits>,
}

/// One of our own waiters.
pub(super) struct Waits {
    /// The create revision of its key.
    revision: i64,
    tell: oneshot::Sender<News>,
    ahead: Ahead,
}

impl State {
    pub(super) fn stand(
        &mut self,
        key: &Arc<[u8]>,
        revision: i64,
        ahead: Ahead,
        tell: oneshot::Sender<News>,
    ) {
        let waits = Waits {
            revision,
            tell,
            ahead,
        };
        self.waiting.insert(key.clone(), waits);
        if revision <= self.complete && !self.stands(key, revision) {
            self.tell(key, revision, News::Gone);
        }
        self.show_ahead(key);
        self.call_first();
    }

    /// Takes over what a read found, at `revision`.
    pub(super) fn load(&mut self, revision: i64, keys: impl Iterator<Item = Standing>) {
        self.order.clear();
        self.by_key.clear();
        for standing in keys {
            self.add(standing.key.into(), standing.revision);
        }
        (self.loaded, self.complete) = (revision, revision);
        let waiting = self.waiting.iter();
        let at = waiting.map(|(key, waits)| (key, waits.revision));
        let gone = at.filter(|(key, at)| *at <= revision && !self.stands(key, *at));
        let gone: Vec<_> = gone.map(|(key, at)| (key.clone(), at)).collect();
        for (key, at) in gone {
            self.tell(&key, at, News::Gone);
        }
        let seen = self
            .waiting
            .iter()
            .filter(|(_, waits)| waits.ahead.is_seen());
        let seen: Vec<_> = seen.map(|(key, _)| key.clone()).collect();
        for key in seen {
            self.show_ahead(&key);
        }
        self.call_first();
    }

    /// Takes over what happened since; nobody is called before all of it is.
    pub(super) fn follow(&mut self, events: Vec<Event>, is_in_line: impl Fn(&[u8]) -> bool) {
        for event in events {
            // Events of before the read are in what was read.
            if event.at <= self.loaded || !is_in_line(&event.key) {
                continue;
            }
            self.complete = event.at;
            if event.is_delete() {
                if let Some(revision) = self.by_key.remove(&event.key) {
                    self.order.remove(&(revision, event.key.clone()));
                    self.tell(&event.key, revision, News::Gone);
                    let behind = self.order.range((revision, event.key)..).next();
                    if let Some((_, behind)) = behind.cloned() {
                        self.show_ahead(&behind);
                    }
                }
            } else if event.created == event.at {
                self.add(event.key.clone(), event.created);
                self.show_ahead(&event.key);
            }
        }
        self.call_first();
    }

    /// Shows to the waiter of `key`, if that is ours and stands, who is directly ahead.
    fn show_ahead(&mut self, key: &Arc<[u8]>) {
        let Some(waits) = self.waiting.get_mut(key) else {
            return;
        };
        if !waits.ahead.is_seen() || self.by_key.get(key) != Some(&waits.revision) {
            return;
        }
        let own = (waits.revision, key.clone());
        if let Some((_, ahead)) = self.order.range(..own).next_back() {
            waits.ahead.is(ahead);
        }
    }

    fn stands(&self, key: &[u8], revision: i64) -> bool {
        self.by_key.get(key) == Some(&revision)
    }

    fn add(&mut self, key: Arc<[u8]>, revision: i64) {
        self.by_key.insert(key.clone(), revision);
        self.order.insert((revision, key));
    }

    fn call_first(&mut self) {
        if let Some((revision, first)) = self.order.first().cloned() {
            self.tell(&first, revision, News::Turn);
        }
    }

    /// Tells the waiter whose key was created at `revision`. One that has come on a key of the
    /// same name, used again, may wait before the end of the earlier key has been seen.
    fn tell(&mut self, key: &[u8], revision: i64, news: News) {
        let waits = self.waiting.get(key);
        if waits.is_some_and(|waits| waits.revision == revision)
            && let Some(waits) = self.waiting.remove(key)
        {
            let _nobody_waits = waits.tell.send(news);
        }
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
        let ahead = Ahead::of(&tracing::Span::none());
        state.stand(&Arc::from(key.as_bytes()), revision, ahead, tell);
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

    #[test]
    fn a_waiter_on_a_key_used_again_is_not_taken_for_its_earlier_owner() {
        let mut state = State::default();
        state.load(6, [standing("me", 5), standing("next", 6)].into_iter());
        // The earlier owner has left at 7, which is not seen yet.
        let mut news = stand(&mut state, "me", 8);
        assert_eq!(told(&mut news), None, "it stands behind the next one");
        state.follow(vec![delete("me", 7)], all);
        assert_eq!(told(&mut news), None, "that was the earlier key");
        state.follow(vec![put("me", 8), delete("next", 9)], all);
        assert_eq!(told(&mut news), Some(News::Turn));
    }

    #[test]
    fn of_keys_put_together_the_smaller_is_first() {
        let mut state = State::default();
        state.load(9, [standing("ma", 8), standing("me", 8)].into_iter());
        let mut news = stand(&mut state, "me", 8);
        assert_eq!(told(&mut news), None);
        state.follow(vec![delete("ma", 10)], all);
        assert_eq!(told(&mut news), Some(News::Turn));
    }
}
