//! The watcher: carries all watches of a session on one gRPC stream.
//!
//! Watches have ids of our own and no start revision (see [`Etcd::watch`](crate::etcd::Etcd)).
//! Who watches the same range shares a watch. A stream that is silent is probed with progress
//! requests and given up after TTL/3; so is one that breaks. Then everybody is told of the gap
//! and has to look at the current state once the watch is ready again: nothing is resumed from
//! an old revision.

use super::core::Core;
use super::retry::{Hedge, backoff, until_answered};
use crate::etcd::Range;
use etcd_client::{EventType, WatchRequestSender, WatchResponse, WatchStream};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

/// Where watches are ordered.
pub(crate) type Orders = mpsc::UnboundedSender<Order>;

pub(crate) enum Order {
    Watch(Range, Arc<Slot>),
    Forget(Range, Arc<Slot>),
}

/// A deleted key and the revision at which it went.
pub(crate) type Gone = (Arc<[u8]>, i64);

/// What a watch has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// These keys were deleted, in this order.
    Gone(Vec<Gone>),
    /// Something may have been missed: wait until ready, then look.
    Gap,
}

/// Where the watcher leaves what one subscriber is to see.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<Seen>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    ready: bool,
    gap: bool,
    gone: Vec<Gone>,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, f: impl FnOnce(&mut Seen)) {
        f(&mut self.state());
        self.news.notify_one();
    }
}

/// A watch on a range; dropping it cancels it.
pub(crate) struct Watch {
    range: Range,
    slot: Arc<Slot>,
    orders: Orders,
}

impl Watch {
    pub(super) fn order(orders: &Orders, range: Range) -> Self {
        let slot = Arc::<Slot>::default();
        // Without a watcher the session is over, and whoever waits is told so by the session.
        let _session_is_over = orders.send(Order::Watch(range.clone(), slot.clone()));
        let orders = orders.clone();
        Self {
            range,
            slot,
            orders,
        }
    }

    /// Waits until etcd has confirmed the watch: what happens from now on will be seen.
    pub(crate) async fn ready(&self) {
        loop {
            let ready = {
                let mut state = self.slot.state();
                state.gap &= !state.ready;
                state.ready
            };
            if ready {
                return;
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
                if !state.gone.is_empty() {
                    return Change::Gone(std::mem::take(&mut state.gone));
                }
            }
            self.slot.news.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let order = Order::Forget(self.range.clone(), self.slot.clone());
        let _session_is_over = self.orders.send(order);
    }
}

/// All watches, and what is still to be said to etcd about them.
#[derive(Default)]
struct Book {
    by_range: HashMap<Range, i64>,
    entries: HashMap<i64, Entry>,
    outbox: VecDeque<Say>,
    last_id: i64,
}

struct Entry {
    range: Range,
    created: bool,
    slots: Vec<Arc<Slot>>,
}

enum Say {
    Create(i64),
    Cancel(i64),
    Probe,
}

/// The stream is of no more use.
struct Broken;

impl Book {
    fn take(&mut self, order: Order) {
        match order {
            Order::Watch(range, slot) => match self.by_range.get(&range) {
                Some(id) => {
                    if let Some(entry) = self.entries.get_mut(id) {
                        if entry.created {
                            slot.update(|seen| seen.ready = true);
                        }
                        entry.slots.push(slot);
                    }
                }
                None => self.add(range, vec![slot]),
            },
            Order::Forget(range, slot) => {
                let Some(id) = self.by_range.get(&range).copied() else {
                    return;
                };
                let Some(entry) = self.entries.get_mut(&id) else {
                    return;
                };
                entry.slots.retain(|other| !Arc::ptr_eq(other, &slot));
                if entry.slots.is_empty() {
                    self.entries.remove(&id);
                    self.by_range.remove(&range);
                    self.outbox.push_back(Say::Cancel(id));
                }
            }
        }
    }

    fn add(&mut self, range: Range, slots: Vec<Arc<Slot>>) {
        self.last_id += 1;
        let id = self.last_id;
        self.by_range.insert(range.clone(), id);
        let entry = Entry {
            range,
            created: false,
            slots,
        };
        self.entries.insert(id, entry);
        self.outbox.push_back(Say::Create(id));
    }

    /// Forgets what the last stream knew and plans to say everything on the next one, whose
    /// opening says the first: gives that one.
    fn begin(&mut self) -> Option<(i64, Range)> {
        self.outbox.clear();
        self.outbox
            .extend(self.entries.keys().copied().map(Say::Create));
        match self.outbox.pop_front()? {
            Say::Create(id) => Some((id, self.entries.get(&id)?.range.clone())),
            Say::Cancel(_) | Say::Probe => None,
        }
    }

    fn gap(&mut self) {
        for entry in self.entries.values_mut() {
            entry.tell_gap();
        }
    }

    fn dispatch(&mut self, message: &WatchResponse) -> Result<(), Broken> {
        let id = message.watch_id();
        if message.canceled() {
            if message.created() {
                // Refused, and etcd does not say which one: all of them go over again.
                tracing::warn!(reason = message.cancel_reason(), "etcd refuses a watch");
                return Err(Broken);
            }
            if let Some(entry) = self.entries.remove(&id) {
                tracing::debug!(reason = message.cancel_reason(), "etcd cancelled a watch");
                self.by_range.remove(&entry.range);
                let Entry { range, slots, .. } = entry;
                for slot in &slots {
                    slot.update(Seen::miss);
                }
                self.add(range, slots);
            }
            return Ok(());
        }
        let Some(entry) = self.entries.get_mut(&id) else {
            return Ok(());
        };
        if message.created() {
            entry.created = true;
            entry
                .slots
                .iter()
                .for_each(|slot| slot.update(|seen| seen.ready = true));
        }
        let deleted = message
            .events()
            .iter()
            .filter(|event| event.event_type() == EventType::Delete);
        let gone: Vec<Gone> = deleted
            .filter_map(|event| event.kv())
            .map(|kv| (Arc::from(kv.key()), kv.mod_revision()))
            .collect();
        if !gone.is_empty() {
            // All events of an answer at once: a revision is never seen in part.
            entry
                .slots
                .iter()
                .for_each(|slot| slot.update(|seen| seen.gone.extend_from_slice(&gone)));
        }
        Ok(())
    }
}

impl Entry {
    fn tell_gap(&mut self) {
        self.created = false;
        self.slots.iter().for_each(|slot| slot.update(Seen::miss));
    }
}

impl Seen {
    fn miss(&mut self) {
        self.gap |= self.ready;
        self.ready = false;
        self.gone.clear();
    }
}

pub(super) async fn run(core: Arc<Core>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut book = Book::default();
    tokio::select! {
        () = carry(&core, &mut book, &mut orders) => {}
        _lost = core.over() => {}
    }
}

async fn carry(core: &Core, book: &mut Book, orders: &mut mpsc::UnboundedReceiver<Order>) {
    let mut failures = 0;
    loop {
        while let Ok(order) = orders.try_recv() {
            book.take(order);
        }
        let Some((id, range)) = book.begin() else {
            // Nothing to watch: no stream.
            let Some(order) = orders.recv().await else {
                return;
            };
            book.take(order);
            continue;
        };
        let attempt = || core.etcd.watch(&range, id);
        match until_answered(&core.etcd, Hedge::Growing, None, attempt).await {
            Ok(answer) => {
                let opened = Instant::now();
                pump(core, book, orders, answer.value).await;
                if opened.elapsed() > core.ttl {
                    failures = 0;
                }
            }
            Err(refused) => tracing::warn!(error = %refused.error, "etcd refuses a watch stream"),
        }
        book.gap();
        failures += 1;
        sleep(backoff(failures)).await;
    }
}

/// Serves one stream until it breaks, or has had nothing to watch for a TTL.
async fn pump(
    core: &Core,
    book: &mut Book,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    stream: WatchStream,
) {
    let (mut speak, mut hear) = stream.split();
    let (probe_after, silent_after) = (core.ttl / 6, core.ttl / 3);
    let mut heard = Instant::now();
    let mut probed = false;
    loop {
        let idle = book.entries.is_empty();
        let patience = match (idle, probed) {
            (true, _) => core.ttl,
            (false, false) => probe_after,
            (false, true) => silent_after,
        };
        tokio::select! {
            Some(order) = orders.recv() => {
                book.take(order);
                if idle {
                    // Silence counts from the first watch on.
                    (heard, probed) = (Instant::now(), false);
                }
            }
            said = say(&mut speak, book), if !book.outbox.is_empty() => {
                if said.is_err() {
                    return;
                }
                book.outbox.pop_front();
            }
            message = hear.message() => match message {
                Ok(Some(message)) => {
                    (heard, probed) = (Instant::now(), false);
                    if book.dispatch(&message).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "a watch stream broke");
                    return;
                }
            },
            () = sleep_until(heard + patience) => {
                if idle || probed {
                    return;
                }
                book.outbox.push_back(Say::Probe);
                probed = true;
            }
        }
    }
}

/// Says the first of what is to be said. Dropping this says nothing, it is said later.
async fn say(speak: &mut WatchRequestSender, book: &Book) -> Result<(), etcd_client::Error> {
    match book.outbox.front() {
        Some(Say::Create(id)) => match book.entries.get(id) {
            Some(entry) => {
                let options = entry.range.options(*id);
                speak.watch(entry.range.start(), Some(options)).await
            }
            None => Ok(()),
        },
        Some(Say::Cancel(id)) => speak.cancel(*id).await,
        Some(Say::Probe) => speak.request_progress().await,
        None => Ok(()),
    }
}
