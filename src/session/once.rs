//! A request that must not be carried out twice, as those of users.
//!
//! One attempt at a time: what certainly was not carried out is tried again, and an attempt whose
//! answer is lost is not. Nobody can tell then what became of it, but it can be kept from being
//! carried out *later*, when the caller has looked and gone on: a request that hung in a frozen
//! member comes minutes late (see the janitor). That is to settle it.

use super::core::Core;
use super::retry::{REFRESHES, backoff};
use crate::error::{Error, Lost, Result};
use crate::etcd::{Verdict, classify, is_not_carried_out, silence};
use std::pin::pin;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

/// What etcd has said for certain: an answer, or that it was not carried out and will not be.
type Said<T> = Result<T, etcd_client::Error>;

impl Core {
    /// Makes a request until it is answered, refused, in doubt, or it is `over` for the caller.
    ///
    /// When an answer is late or lost, `settle` has to see to it that the attempt is not carried
    /// out any more, if it was not; it tells whether it could. A late answer may come meanwhile,
    /// and then counts.
    pub(crate) async fn ask_once<T, A, S, O>(
        &self,
        doing: &'static str,
        attempt: impl Fn() -> A,
        settle: impl Fn() -> S,
        over: impl Fn() -> O,
    ) -> Result<T>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
        S: Future<Output = bool>,
        O: Future<Output = Lost>,
    {
        let (mut failures, mut refreshes) = (0, 0);
        loop {
            let room = tokio::select! {
                biased;
                lost = over() => return Err(lost.into()),
                room = self.room.acquire() => room.ok(),
            };
            let source = match self.send_once(room, &attempt, &settle, &over).await? {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match classify(&source) {
                Verdict::Retry { .. } => {}
                Verdict::Refresh if refreshes < REFRESHES => {
                    refreshes += 1;
                    // Whether it was of use, the next attempt will tell.
                    let refresh = timeout(self.ttl, self.etcd.refresh_token());
                    tokio::select! {
                        biased;
                        answer = refresh => tracing::debug!(?answer, "authentication token refreshed"),
                        lost = over() => return Err(lost.into()),
                    }
                }
                _ => return Err(Error::etcd(doing, source)),
            }
            tracing::debug!(error = %source, "a request that was not carried out is made again");
            failures += 1;
            tokio::select! {
                biased;
                () = sleep(backoff(failures)) => {}
                lost = over() => return Err(lost.into()),
            }
        }
    }

    /// Makes one attempt; an error if it stays in doubt.
    async fn send_once<T, A, S, O>(
        &self,
        room: Option<SemaphorePermit<'_>>,
        attempt: impl Fn() -> A,
        settle: impl Fn() -> S,
        over: impl Fn() -> O,
    ) -> Result<Said<T>>
    where
        A: Future<Output = Result<T, etcd_client::Error>>,
        S: Future<Output = bool>,
        O: Future<Output = Lost>,
    {
        let began = Instant::now();
        let late = self.pace.late_after().min(self.ttl);
        // An error is doubt.
        let mut sent = pin!(async {
            match attempt().await {
                Ok(value) => {
                    self.pace.answered(began.elapsed());
                    Ok(Ok(value))
                }
                Err(error) if is_not_carried_out(&error) => Ok(Err(error)),
                Err(error) => Err(error),
            }
        });
        let in_time = tokio::select! {
            biased;
            sent = &mut sent => Some(sent),
            () = sleep(late) => None,
            _lost = over() => return Err(unknown(silence(), false)),
        };
        // What settles it needs room, too.
        drop(room);
        let sent = if let Some(sent) = in_time {
            sent
        } else {
            tokio::select! {
                biased;
                sent = &mut sent => sent,
                settled = settle() => {
                    let sent = tokio::select! {
                        biased;
                        sent = &mut sent => sent,
                        () = sleep(late) => Err(silence()),
                        _lost = over() => Err(silence()),
                    };
                    return sent.map_err(|source| unknown(source, settled));
                }
                _lost = over() => return Err(unknown(silence(), false)),
            }
        };
        match sent {
            Ok(said) => Ok(said),
            Err(source) => {
                let settled = tokio::select! {
                    biased;
                    settled = settle() => settled,
                    _lost = over() => false,
                };
                Err(unknown(source, settled))
            }
        }
    }
}

fn unknown(source: etcd_client::Error, settled: bool) -> Error {
    Error::Unknown { source, settled }
}
