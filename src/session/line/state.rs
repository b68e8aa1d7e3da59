//! The line in memory: what is read, what follows, and whose turn it is.

use super::NEAR;
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
    /// It stands far back in a crowd.
    Far,
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
    /// Our own waiters, by their keys. Boxed, as a map's smallest node has room for eleven.
    pub(super) waiting: BTreeMap<Arc<[u8]>, Box<Waits>>,
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
        crowd: usize,
        tell: oneshot::Sender<News>,
    ) {
        let waits = Waits {
            revision,
            tell,
            ahead,
        };
        self.waiting.insert(key.clone(), Box::new(waits));
        if revision <= self.complete && !self.stands(key, revision) {
            self.tell(key, revision, News::Gone);
        }
        self.show_ahead(key);
        self.leave_far(key, crowd);
        self.call_first();
    }

    /// Takes over what a read found, at `revision`.
    pub(super) fn load(&mut self, revision: i64, keys: Vec<Standing>, crowd: usize) {
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
        let waiting: Vec<_> = self.waiting.keys().cloned().collect();
        for key in waiting {
            self.show_ahead(&key);
            self.leave_far(&key, crowd);
        }
        self.call_first();
    }

    /// Takes over what happened since; nobody is called before all of it is.
    pub(super) fn follow(
        &mut self,
        events: Vec<Event>,
        crowd: usize,
        is_in_line: impl Fn(&[u8]) -> bool,
    ) {
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
                self.leave_far(&event.key, crowd);
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

    /// Has the waiter of `key`, if that is ours and stands, wait elsewhere if the line is longer than a
    /// `crowd` and it stands far back.
    fn leave_far(&mut self, key: &Arc<[u8]>, crowd: usize) {
        if self.order.len() <= crowd {
            return;
        }
        let revision = self.waiting.get(key).map(|waits| waits.revision);
        let Some(revision) = revision.filter(|revision| self.stands(key, *revision)) else {
            return;
        };
        let near = usize::from(NEAR);
        let ahead = self.order.range(..(revision, key.clone()));
        if ahead.take(near).count() == near {
            self.tell(key, revision, News::Far);
        }
    }

    pub(super) fn length(&self) -> usize {
        self.order.len()
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
mod tests;
