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
use super::writes::{Alone, Failed, Request, Writes};
use crate::error::{Lost, Result};
use crate::etcd::{Verdict, Write, Written};
use futures_util::future::join_all;
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// More than those that send what has gathered ([`Writes::take`]): the others send what could not
/// ride with the rest of its line. With two alone, a crowd at one lock was slower.
pub(super) const WRITERS: usize = 4;

/// Closes the queue when the writers end, however that is: by the end of the session, or with
/// their runtime. Who waits in it is told by that.
struct Closing<'a>(&'a Writes);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Core {
    /// Makes a change of a line, tried until it is answered or the session ends.
    ///
    /// Dropping the future does not take it back, as far as anybody can tell; [`Writes::withdraw`] may.
    pub(crate) async fn write(
        &self,
        doing: &'static str,
        mut write: Write,
    ) -> Result<Answer<Written>> {
        let mut failures = 0;
        let mut doubtful = false;
        loop {
            self.certain()?;
            // Outside of any runtime a future can be polled, but nothing be sent.
            let told = if Handle::try_current().is_ok()
                && let Some(alone) = self.writes.alone()
            {
                // Boxed, as it is large and few are alone.
                Box::pin(self.send_alone(write, alone)).await
            } else {
                let (tell, told) = oneshot::channel();
                self.writes.enter(write, failures == 0, tell);
                told.await.ok()
            };
            let refused = match told {
                Some(Ok(mut answer)) => {
                    answer.doubtful |= doubtful;
                    return Ok(answer);
                }
                Some(Err(Failed(again, refused))) => {
                    write = again;
                    refused
                }
                // The session has ended, or its runtime.
                None => return Err(self.end(Lost::Closed).into()),
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

    /// Sends a change that is alone; `None` if the session ends meanwhile.
    async fn send_alone(
        &self,
        write: Write,
        _until_answered: Alone<'_>,
    ) -> Option<Result<Answer<Written>, Failed>> {
        let answer = tokio::select! {
            biased;
            _lost = self.over() => return None,
            answer = answers(self, std::iter::once(&write)) => answer,
        };
        match answer {
            Ok(Answer { value, doubtful }) => {
                let value = value.into_iter().next()?;
                Some(Ok(Answer { value, doubtful }))
            }
            Err(refused) => Some(Err(Failed(write, refused))),
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
        let (requests, gathered) = core.writes.take();
        let work = async {
            if requests.is_empty() {
                core.writes.news().await;
                return;
            }
            send(&core, requests).await;
            if gathered {
                core.writes.answered();
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
    match answers(core, requests.iter().map(|request| &request.write)).await {
        Ok(Answer { value, doubtful }) => {
            for (request, value) in requests.into_iter().zip(value) {
                // Who is gone has left the removal to the janitor.
                let _gone = request.tell.send(Ok(Answer { value, doubtful }));
            }
        }
        Err(refused) if requests.len() > 1 => {
            if refused.verdict == Verdict::TooManyOperations {
                core.writes.too_many(requests.len());
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
    let answer = answers(core, std::iter::once(&request.write)).await;
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

async fn answers<'a>(
    core: &Core,
    writes: impl ExactSizeIterator<Item = &'a Write> + Clone,
) -> Result<Answer<Vec<Written>>, Refused> {
    let attempt = || core.etcd.write(writes.clone());
    until_answered(&core.etcd, Hedge::Late(&core.pace), None, attempt).await
}
