//! The writers: send the session's changes of lines, those that queue up in one transaction.
//!
//! etcd's raft takes some 10,000 proposals a second, however small they are. So what queues up
//! while two transactions are under way rides together in the next one, nested (measured: several
//! times the rate from some dozens of tasks on). One that comes alone goes out at once and plain.
//!
//! What rides together is answered or tried again together, which does no harm: each change is
//! made so that it can be carried out twice. If a transaction is *refused*, its changes are made
//! one by one, so that one cannot fail the others.

use super::core::Core;
use super::retry::{Answer, Hedge, Refused, backoff, until_answered};
use crate::error::{Lost, Result};
use crate::etcd::{Verdict, Write, Written};
use futures_util::future::join_all;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// So many transactions are under way at once: while etcd works on one, the next gathers.
pub(super) const WRITERS: usize = 2;

/// So many changes ride together at the most: etcd takes 128 operations, and of these the two
/// of a nested transaction are subtracted.
const MOST: usize = 120;

/// So many are looked at when a transaction is filled; those of a line that rides already stay.
const LOOKED_AT: usize = 2 * MOST;

/// A change and who waits for its answer.
struct Request {
    write: Write,
    /// A hash of the line: two that are alike by chance wait for each other, which does no harm.
    line: u64,
    tell: Tell,
}

type Tell = oneshot::Sender<Result<Answer<Written>, Failed>>;

/// Why a change was not answered, and the change itself, to be tried again.
struct Failed(Write, Refused);

pub(crate) struct Writes {
    queue: Mutex<Queue>,
    news: Notify,
    /// [`MOST`], or less if this etcd takes less (`--max-txn-ops`).
    most: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
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

    fn enter(&self, write: Write, tell: Tell) {
        let mut hasher = DefaultHasher::new();
        write.line().hash(&mut hasher);
        let line = hasher.finish();
        let request = Request { write, line, tell };
        let mut queue = self.queue();
        if queue.closed {
            return; // which tells
        }
        // Who leaves lets another one in.
        match request.write {
            Write::Leave { .. } => queue.waiting.push_front(request),
            Write::Join { .. } | Write::Try(_) => queue.waiting.push_back(request),
        }
        drop(queue);
        self.news.notify_one();
    }

    /// Those that go out together now: of different lines, in the order of the queue.
    fn take(&self) -> Vec<Request> {
        let mut queue = self.queue();
        let most = self.most.load(Ordering::Relaxed);
        if queue.waiting.len() <= 1 {
            return queue.waiting.pop_front().into_iter().collect();
        }
        let mut lines = HashSet::new();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for _ in 0..LOOKED_AT {
            if taken.len() == most {
                break;
            }
            let Some(request) = queue.waiting.pop_front() else {
                break;
            };
            if lines.insert(request.line) {
                taken.push(request);
            } else {
                left.push(request);
            }
        }
        for request in left.into_iter().rev() {
            queue.waiting.push_front(request);
        }
        taken
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue when the writers end, however that is: by the end of the session, or with
/// their runtime. Who waits in it is told by that.
struct Closing<'a>(&'a Writes);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }
}

impl Core {
    /// Makes a change of a line, tried until it is answered or the session ends.
    ///
    /// Dropping the future does not take it back.
    pub(crate) async fn write(
        &self,
        doing: &'static str,
        mut write: Write,
    ) -> Result<Answer<Written>> {
        let mut failures = 0;
        let mut doubtful = false;
        loop {
            self.certain()?;
            let (tell, told) = oneshot::channel();
            self.writes.enter(write, tell);
            let refused = match told.await {
                Ok(Ok(mut answer)) => {
                    answer.doubtful |= doubtful;
                    return Ok(answer);
                }
                Ok(Err(Failed(again, refused))) => {
                    write = again;
                    refused
                }
                // The writers are gone: the session has ended, or its runtime.
                Err(_closed) => return Err(self.end(Lost::Closed).into()),
            };
            doubtful |= refused.doubtful;
            match refused.verdict {
                // Boxed, as it is rare and large.
                Verdict::LeaseGone => Box::pin(self.confirm_lease()).await?,
                _ => return Err(refused.into_error(doing)),
            }
            failures += 1;
            tokio::time::sleep(backoff(failures)).await;
        }
    }

    /// As [`write`](Self::write), but given up after a TTL; `None` then.
    pub(crate) async fn write_within_ttl(
        &self,
        doing: &'static str,
        write: Write,
    ) -> Option<Result<Answer<Written>>> {
        tokio::time::timeout(self.ttl, self.write(doing, write))
            .await
            .ok()
    }
}

/// One of the [`WRITERS`].
pub(super) async fn run(core: Arc<Core>) {
    let _closing = Closing(&core.writes);
    let mut over = pin!(core.over());
    loop {
        let requests = core.writes.take();
        let work = async {
            if requests.is_empty() {
                core.writes.news.notified().await;
            } else {
                send(&core, requests).await;
            }
        };
        tokio::select! {
            biased;
            _lost = &mut over => return,
            () = work => {}
        }
    }
}

/// Sends what rides together and tells each its answer.
async fn send(core: &Core, mut requests: Vec<Request>) {
    match answers(core, &requests).await {
        Ok(Answer { value, doubtful }) => {
            for (request, value) in requests.into_iter().zip(value) {
                // Who is gone has left the removal to the janitor.
                let _gone = request.tell.send(Ok(Answer { value, doubtful }));
            }
        }
        Err(refused) if requests.len() > 1 => {
            if refused.verdict == Verdict::TooManyOperations {
                let most = &core.writes.most;
                most.store(requests.len() / 2, Ordering::Relaxed);
            }
            let doubtful = refused.doubtful;
            join_all(
                requests
                    .into_iter()
                    .map(|request| alone(core, request, doubtful)),
            )
            .await;
        }
        Err(refused) => {
            if let Some(Request { write, tell, .. }) = requests.pop() {
                let _gone = tell.send(Err(Failed(write, refused)));
            }
        }
    }
}

/// Makes a change that was refused together with others, which `doubtful` is about.
async fn alone(core: &Core, request: Request, doubtful: bool) {
    let answer = answers(core, std::slice::from_ref(&request)).await;
    let Request { write, tell, .. } = request;
    let told = match answer {
        Ok(mut answer) => match answer.value.pop() {
            Some(value) => Ok(Answer {
                value,
                doubtful: doubtful || answer.doubtful,
            }),
            None => return,
        },
        Err(mut refused) => {
            refused.doubtful |= doubtful;
            Err(Failed(write, refused))
        }
    };
    let _gone = tell.send(told);
}

async fn answers(core: &Core, requests: &[Request]) -> Result<Answer<Vec<Written>>, Refused> {
    let writes = || {
        core.etcd
            .write(requests.iter().map(|request| &request.write))
    };
    until_answered(&core.etcd, Hedge::Late(&core.pace), None, writes).await
}
