//! A watch as its subscriber sees it.

use super::book::Book;
use crate::etcd::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) key: Arc<[u8]>,
    /// The create revision; 0 for a delete.
    pub(crate) created: i64,
    /// The revision of this event.
    pub(crate) at: i64,
}

impl Event {
    pub(crate) fn is_delete(&self) -> bool {
        self.created == 0
    }

    /// Whether the key that was created at `revision` has gone by this.
    pub(crate) fn takes(&self, key: &[u8], revision: i64) -> bool {
        self.is_delete() && *self.key == *key && self.at > revision
    }
}

/// What a watch has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This happened, in this order.
    Events(Vec<Event>),
    /// Something may have been missed: wait until ready, then look.
    Gap,
}

/// Where the watcher leaves what one subscriber is to see.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<Seen>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    ready: bool,
    gap: bool,
    events: Vec<Event>,
}

impl Slot {
    /// etcd has confirmed the watch.
    pub(super) fn confirm(&self) {
        self.state().ready = true;
        self.news.notify_one();
    }

    /// The watch is not confirmed any more.
    pub(super) fn miss(&self) {
        let mut state = self.state();
        state.gap |= state.ready;
        state.ready = false;
        state.events.clear();
        self.news.notify_one();
    }

    pub(super) fn see(&self, events: &[Event]) {
        self.state().events.extend_from_slice(events);
        self.news.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All watches of a session. The book is open to subscribers; the watcher carries it to etcd.
#[derive(Default)]
pub(crate) struct Watches {
    book: Mutex<Book>,
    /// Rings when there is something to say to etcd.
    pub(super) bell: Notify,
}

impl Watches {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches `range`, from a moment that [`Watch::ready`] tells.
    pub(crate) fn watch(self: &Arc<Self>, range: Range) -> Watch {
        let slot = Arc::<Slot>::default();
        if self.book().subscribe(&range, slot.clone()) {
            self.bell.notify_one();
        }
        Watch {
            range,
            slot,
            watches: self.clone(),
        }
    }
}

/// A watch on a range, until dropped.
pub(crate) struct Watch {
    range: Range,
    slot: Arc<Slot>,
    watches: Arc<Watches>,
}

impl Watch {
    /// Waits until etcd has confirmed the watch: what happens from now on will be seen.
    pub(crate) async fn ready(&self) {
        loop {
            {
                let mut state = self.slot.state();
                if state.ready {
                    state.gap = false;
                    return;
                }
            }
            self.slot.news.notified().await;
        }
    }

    /// Waits for what comes next after [`ready`](Self::ready).
    pub(crate) async fn changed(&self) -> Change {
        loop {
            {
                let mut state = self.slot.state();
                if state.gap {
                    state.gap = false;
                    return Change::Gap;
                }
                if !state.events.is_empty() {
                    return Change::Events(std::mem::take(&mut state.events));
                }
            }
            self.slot.news.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.watches.book().unsubscribe(&self.range, &self.slot) {
            self.watches.bell.notify_one();
        }
    }
}
