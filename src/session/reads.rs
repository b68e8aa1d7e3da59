//! The readers: what is asked while they are busy is asked together afterwards.
//!
//! A session with thousands of locks looks at each of its keys and lines once per TTL, and at all of
//! them after its watches had a gap. One by one, that is as much work for etcd as the locking itself.

use super::core::Core;
use super::retry::{Hedge, Refused, until_answered};
use super::room::give_back;
use crate::error::{Error, Lost, Result};
use crate::etcd::{Found, Read, Verdict};
use futures_util::future::join_all;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// So many ask at once; the second does not wait for the first to be answered.
pub(super) const READERS: usize = 2;

/// So many operations are asked for together at the most: etcd takes 128.
const MOST: usize = 120;

pub(crate) struct Reads {
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

/// A read and who waits for its answer.
struct Request {
    read: Read,
    tell: oneshot::Sender<Result<Found, Refused>>,
}

impl Reads {
    pub(super) fn new() -> Self {
        Self {
            queue: Mutex::default(),
            news: Notify::new(),
            most: AtomicUsize::new(MOST),
        }
    }

    fn enter(&self, read: Read) -> oneshot::Receiver<Result<Found, Refused>> {
        let (tell, told) = oneshot::channel();
        let mut queue = self.queue();
        // Else dropped, which tells.
        if !queue.closed {
            queue.waiting.push_back(Request { read, tell });
        }
        drop(queue);
        self.news.notify_one();
        told
    }

    /// What is asked now, as far as anybody still wants to know.
    fn take(&self) -> Vec<Request> {
        let mut queue = self.queue();
        let mut room = self.most.load(Ordering::Relaxed);
        let mut taken = Vec::new();
        while let Some(next) = queue.waiting.pop_front() {
            if next.tell.is_closed() {
                continue;
            }
            let operations = next.read.operations();
            if operations > room && !taken.is_empty() {
                queue.waiting.push_front(next);
                // For another reader, if there is one with nothing to do.
                self.news.notify_one();
                break;
            }
            room = room.saturating_sub(operations);
            taken.push(next);
        }
        give_back(&mut queue.waiting);
        taken
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the queue when a reader ends, however that is: by the end of the session, or with their
/// runtime. Who waits in it is told by that.
struct Closing<'a>(&'a Reads);

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
    /// Asks, until it is answered or the session ends; `tell` finds in the answer what was asked.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn read<T>(
        &self,
        doing: &'static str,
        read: Read,
        tell: impl FnOnce(Found) -> Result<T, etcd_client::Error>,
    ) -> Result<T> {
        self.certain()?;
        match self.reads.enter(read).await {
            Ok(Ok(found)) => tell(found).map_err(|source| Error::etcd(doing, source)),
            Ok(Err(refused)) => Err(refused.into_error(doing)),
            // The readers are gone: the session has ended, or its runtime.
            Err(_closed) => Err(self.end(Lost::Closed).into()),
        }
    }
}

/// One of the [`READERS`].
pub(super) async fn run(core: Arc<Core>) {
    let _closing = Closing(&core.reads);
    let mut over = pin!(core.over());
    loop {
        let requests = core.reads.take();
        let work = async {
            if requests.is_empty() {
                core.reads.news.notified().await;
            } else {
                ask(&core, requests).await;
            }
        };
        tokio::select! {
            biased;
            _lost = &mut over => return,
            () = work => {}
        }
    }
}

/// Asks together and tells each its answer. If that is refused, each is asked alone, so that one
/// cannot fail the others.
async fn ask(core: &Core, mut requests: Vec<Request>) {
    let n = requests.len();
    let reads = || core.etcd.read(requests.iter().map(|request| &request.read));
    let refused = match until_answered(&core.etcd, Hedge::Late(&core.pace), None, reads).await {
        Ok(answer) => {
            for (request, found) in requests.into_iter().zip(answer.value) {
                let _gone = request.tell.send(Ok(found));
            }
            return;
        }
        Err(refused) => refused,
    };
    if n > 1 {
        if refused.verdict == Verdict::TooManyOperations {
            core.reads.most.fetch_min((n / 2).max(1), Ordering::Relaxed);
        }
        let alone = |request| Box::pin(ask(core, vec![request]));
        join_all(requests.into_iter().map(alone)).await;
    } else if let Some(request) = requests.pop() {
        let _gone = request.tell.send(Err(refused));
    }
}
