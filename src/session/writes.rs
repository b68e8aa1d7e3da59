//! The queue of the writers: what goes out together, and what has to wait.

use super::retry::{Answer, Refused};
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
            Write::Join { .. } | Write::Try(_) => queue.waiting.push_back(request),
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
mod tests {
    use super::*;
    use crate::etcd::Join;
    use crate::key::Name;

    fn leave(key: &str) -> Write {
        let (key, revision) = (key.into(), 1);
        Write::Leave { key, revision }
    }

    /// Enters changes and gives the keys that are taken, time after time, each with whether it
    /// has gathered.
    fn rides(keys: &[&str], most: usize) -> Vec<(String, bool)> {
        let writes = Writes::new();
        writes.most.store(most, Ordering::Relaxed);
        // The last that came to leave is the first.
        for key in keys.iter().rev() {
            writes.enter(leave(key), true, oneshot::channel().0);
        }
        let taken = std::iter::from_fn(|| {
            let (taken, gathered) = writes.take();
            let keys = taken.iter().map(|request| match &request.write {
                Write::Leave { key, .. } => &**key,
                other => panic!("{other:?}"),
            });
            let keys = keys.collect::<Vec<_>>().join(" ");
            (!taken.is_empty()).then_some((keys, gathered))
        });
        taken.collect()
    }

    #[test]
    fn different_lines_ride_together_as_far_as_there_is_room() {
        assert_eq!(
            rides(&["a/1", "b/1", "c/1"], 3),
            [("a/1 b/1 c/1".into(), true)]
        );
        let two = [("a/1 b/1".into(), true), ("c/1".into(), true)];
        assert_eq!(rides(&["a/1", "b/1", "c/1"], 2), two);
    }

    #[test]
    fn one_line_never_rides_twice_and_does_not_wait_for_company() {
        let wanted = [
            ("a/1 b/1", true),
            ("a/2", true),
            ("a/3", false),
            ("a/4", false),
        ];
        let wanted = wanted.map(|(keys, gathered)| (keys.to_owned(), gathered));
        assert_eq!(rides(&["a/1", "a/2", "b/1", "a/3", "a/4"], 9), wanted);
    }

    #[test]
    fn what_gathers_waits_for_one_of_two_answers() {
        let writes = Writes::new();
        for key in ["a/1", "b/1", "c/1"] {
            writes.enter(leave(key), true, oneshot::channel().0);
            writes.take();
        }
        assert!(writes.take().0.is_empty());
        writes.answered();
        assert_eq!(writes.take().0.len(), 1);
    }

    #[test]
    fn a_join_is_withdrawn_unless_something_of_it_was_sent() {
        let writes = Writes::new();
        let keys: [Arc<str>; 4] = ["a/1", "a/2", "a/3", "a/4"].map(Into::into);
        for (i, key) in keys.iter().enumerate() {
            let join = Join {
                name: Name::new("a").unwrap(),
                key: key.clone(),
                value: Vec::new(),
                lease: 1,
            };
            writes.enter(Write::Try(join), i != 2, oneshot::channel().0);
        }
        assert_eq!(writes.take().0.len(), 1);
        let withdrawn = keys.each_ref().map(|key| writes.withdraw(key));
        assert_eq!(withdrawn, [false, true, false, true]);
        assert_eq!(writes.take().0.len(), 1);
        assert!(writes.take().0.is_empty());
    }

    #[tokio::test]
    async fn a_closed_queue_tells_those_who_wait_and_those_who_come() {
        let writes = Writes::new();
        let (tell, waits) = oneshot::channel();
        writes.enter(leave("a/1"), true, tell);
        writes.close();
        let (tell, comes) = oneshot::channel();
        writes.enter(leave("b/1"), true, tell);
        assert!(waits.await.is_err() && comes.await.is_err());
    }
}
