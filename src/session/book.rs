//! The book of a session's watches: who watches what, and what is still to be said to etcd.

use super::room::give_back;
use super::watch::{Event, Slot};
use crate::etcd::{Range, Verdict, classify_text};
use etcd_client::WatchResponse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Book {
    by_range: HashMap<Range, i64>,
    entries: BTreeMap<i64, Entry>,
    outbox: VecDeque<Say>,
    last_id: i64,
}

struct Entry {
    range: Range,
    confirmed: bool,
    slots: Vec<Arc<Slot>>,
}

/// A message to etcd.
#[derive(Clone)]
pub(super) enum Say {
    Create(i64, Range),
    Cancel(i64),
    Probe,
}

/// etcd does not say which watch it refuses, so the stream is of no more use.
pub(super) struct Refused {
    /// It was for an authentication token that is too old: after a role has changed, for one.
    pub(super) stale_token: bool,
}

impl Book {
    /// Adds a subscriber; true if there is something new to say.
    pub(super) fn subscribe(&mut self, range: &Range, slot: Arc<Slot>) -> bool {
        if let Some(entry) = self.entry(range) {
            if entry.confirmed {
                slot.confirm();
            }
            entry.slots.push(slot);
            return false;
        }
        self.add(range.clone(), vec![slot]);
        true
    }

    /// Takes a subscriber out; true if there is something new to say.
    pub(super) fn unsubscribe(&mut self, range: &Range, slot: &Arc<Slot>) -> bool {
        let Some(entry) = self.entry(range) else {
            return false;
        };
        entry.slots.retain(|other| !Arc::ptr_eq(other, slot));
        if !entry.slots.is_empty() {
            return false;
        }
        if let Some(id) = self.by_range.remove(range) {
            self.entries.remove(&id);
            self.outbox.push_back(Say::Cancel(id));
        }
        true
    }

    fn entry(&mut self, range: &Range) -> Option<&mut Entry> {
        self.entries.get_mut(self.by_range.get(range)?)
    }

    fn add(&mut self, range: Range, slots: Vec<Arc<Slot>>) {
        self.last_id += 1;
        let id = self.last_id;
        self.by_range.insert(range.clone(), id);
        let entry = Entry {
            range: range.clone(),
            confirmed: false,
            slots,
        };
        self.entries.insert(id, entry);
        self.outbox.push_back(Say::Create(id, range));
    }

    fn remove(&mut self, id: i64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.by_range.remove(&entry.range);
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets what the last stream knew and plans to say everything on the next one, whose
    /// opening says the first: gives that one.
    pub(super) fn begin(&mut self) -> Option<(i64, Range)> {
        self.outbox.clear();
        let mut entries = self.entries.iter();
        let (first, entry) = entries.next()?;
        let first = (*first, entry.range.clone());
        let rest = entries.map(|(id, entry)| Say::Create(*id, entry.range.clone()));
        self.outbox.extend(rest);
        Some(first)
    }

    pub(super) fn to_say(&self) -> Option<Say> {
        self.outbox.front().cloned()
    }

    pub(super) fn said(&mut self) {
        self.outbox.pop_front();
        give_back(&mut self.outbox);
    }

    pub(super) fn probe(&mut self) {
        self.outbox.push_back(Say::Probe);
    }

    /// The stream is gone: tells everybody.
    pub(super) fn gap(&mut self) {
        for entry in self.entries.values_mut() {
            entry.confirmed = false;
            for slot in &entry.slots {
                slot.miss();
            }
        }
    }

    pub(super) fn dispatch(&mut self, message: &WatchResponse) -> Result<(), Refused> {
        let id = message.watch_id();
        if message.canceled() {
            return self.cancelled(message);
        }
        let Some(entry) = self.entries.get_mut(&id) else {
            return Ok(());
        };
        if message.created() {
            entry.confirmed = true;
            for slot in &entry.slots {
                slot.confirm();
            }
        }
        let events: Vec<Event> = message.events().iter().filter_map(event).collect();
        if !events.is_empty() {
            // All events of an answer at once: a revision is never seen in part.
            for slot in &entry.slots {
                slot.see(&events);
            }
        }
        Ok(())
    }

    fn cancelled(&mut self, message: &WatchResponse) -> Result<(), Refused> {
        let reason = message.cancel_reason();
        if message.created() {
            let stale_token = classify_text(reason) == Some(Verdict::Refresh);
            if !stale_token {
                tracing::warn!(reason, "etcd refuses a watch");
            }
            return Err(Refused { stale_token });
        }
        if let Some(Entry { range, slots, .. }) = self.remove(message.watch_id()) {
            tracing::debug!(reason, "etcd cancelled a watch");
            for slot in &slots {
                slot.miss();
            }
            if !slots.is_empty() {
                self.add(range, slots);
            }
        }
        Ok(())
    }
}

fn event(event: &etcd_client::Event) -> Option<Event> {
    let kv = event.kv()?;
    Some(Event {
        key: kv.key().into(),
        created: kv.create_revision(),
        at: kv.mod_revision(),
    })
}
