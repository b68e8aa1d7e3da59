//! The queue of the writers: what goes out together, and what has to wait.

use super::retry::{Answer, Refused};
use super::room::give_back;
use crate::etcd::{Write, Written};
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// So many are sent of what gathers: while etcd works on one, the next gathers.
const GATHERED: usize = 2;

/// So many changes ride together at the most: etcd takes 128 operations, and of these the two
/// of a nested transaction are subtracted.
const MOST: usize = 120;

/// So many are looked at when a transaction is filled; those of a line that rides already stay.
const LOOKED_AT: usize = 2 * MOST;

/// A change and who waits for its answer.
pub(super) struct Request {
    pub(super) write: Write,
    /// A hash of the line: two that are alike by chance are kept apart, which does no harm.
    line: u64,
    /// Another change of its line has been preferred.
    passed_over: bool,
    /// Nothing of it was ever sent.
    fresh: bool,
    pub(super) tell: Tell,
}

pub(super) type Tell = oneshot::Sender<Result<Answer<Written>, Failed>>;

/// Why a change was not answered, and the change itself, to be tried again.
pub(super) struct Failed(pub(super) Write, pub(super) Refused);

/// One change under way that found itself alone; others may go when this is dropped.
pub(super) struct Alone<'a>(&'a Writes);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.gathered -= 1;
        let others_wait = !queue.waiting.is_empty();
        drop(queue);
        if others_wait {
            self.0.news.notify_one();
        }
    }
}

pub(crate) struct Writes {
    queue: Mutex<Queue>,
    news: Notify,
    /// [`MOST`], or less if this etcd takes less (`--max-txn-ops`).
    most: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
    /// How many of these were passed over.
    passed_over: usize,
    /// How many of those that gathered are under way.
    gathered: usize,
    closed: bool,
}

impl Writes {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::default(),
            news: Notify::new(),
            most: AtomicUsize::new(MOST),
        }
    }

    /// Whether nothing is under way and nothing waits: then a change is sent by whoever makes it, which
    /// spares it two switches between tasks.
    pub(super) fn alone(&self) -> Option<Alone<'_>> {
        let mut queue = self.queue();
        if queue.closed || queue.gathered > 0 || !queue.waiting.is_empty() {
            return None;
        }
        queue.gathered = 1;
        Some(Alone(self))
    }

    /// Queues a change up; `fresh` if nothing of it was ever sent.
    pub(super) fn enter(&self, write: Write, fresh: bool, tell: Tell) {
        let mut hasher = DefaultHasher::new();
        write.line().hash(&mut hasher);
        let line = hasher.finish();
        let request = Request {
            write,
            line,
            passed_over: false,
            fresh,
            tell,
        };
        let mut queue = self.queue();
        if queue.closed {
            return; // which tells
        }
        // Who leaves lets another one in.
        match request.write {
            Write::Leave { .. } => queue.waiting.push_front(request),
            Write::Join { .. } | Write::Try { .. } => queue.waiting.push_back(request),
        }
        let full = queue.gathered == GATHERED;
        drop(queue);
        // Else whoever is answered next takes it along.
        if !full {
            self.news.notify_one();
        }
    }

    /// What goes out now, and whether it has gathered; nothing if that is to wait.
    pub(super) fn take(&self) -> (Vec<Request>, bool) {
        let mut queue = self.queue();
        let gathers = queue.gathered < GATHERED;
        let taken = if gathers {
            queue.gather(self.most.load(Ordering::Relaxed))
        } else {
            queue.passed_over().into_iter().collect()
        };
        if gathers && !taken.is_empty() {
            queue.gathered += 1;
        }
        if queue.passed_over > 0 {
            self.news.notify_one();
        }
        (taken, gathers)
    }

    /// What has gathered is answered: so another may go out.
    pub(super) fn answered(&self) {
        self.queue().gathered -= 1;
    }

    /// Waits until there may be something to take.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// This etcd has refused a transaction of so many.
    pub(super) fn too_many(&self, n: usize) {
        self.most.fetch_min((n / 2).max(1), Ordering::Relaxed);
    }

    /// Takes the join with this key back out, if nothing of it was ever sent: gives true then.
    pub(crate) fn withdraw(&self, key: &Arc<str>) -> bool {
        let withdrawn = self.queue().withdraw(key);
        withdrawn.is_some()
    }

    /// Takes nothing any more, and tells those who wait.
    pub(super) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Takes changes of different lines, in their order.
    fn gather(&mut self, most: usize) -> Vec<Request> {
        if self.waiting.len() <= 1 {
            self.passed_over = 0;
            return self.waiting.pop_front().into_iter().collect();
        }
        let mut lines = HashSet::new();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for _ in 0..LOOKED_AT {
            if taken.len() == most {
                break;
            }
            let Some(mut request) = self.waiting.pop_front() else {
                break;
            };
            let rides = lines.insert(request.line);
            self.passed_over -= usize::from(request.passed_over);
            request.passed_over = !rides;
            self.passed_over += usize::from(request.passed_over);
            if rides {
                taken.push(request);
            } else {
                left.push(request);
            }
        }
        for request in left.into_iter().rev() {
            self.waiting.push_front(request);
        }
        give_back(&mut self.waiting);
        taken
    }

    /// Takes the first that was passed over.
    fn passed_over(&mut self) -> Option<Request> {
        if self.passed_over == 0 {
            return None;
        }
        let i = self
            .waiting
            .iter()
            .position(|request| request.passed_over)?;
        self.passed_over -= 1;
        self.waiting.remove(i)
    }

    fn withdraw(&mut self, key: &Arc<str>) -> Option<Request> {
        let is_it = |request: &Request| {
            request.fresh
                && request
                    .write
                    .joins()
                    .is_some_and(|other| Arc::ptr_eq(other, key))
        };
        // Who gives up soonest is often who came last.
        let i = self.waiting.iter().rposition(is_it)?;
        let withdrawn = self.waiting.remove(i)?;
        self.passed_over -= usize::from(withdrawn.passed_over);
        Some(withdrawn)
    }
}

#[cfg(test)]
mod tests;
