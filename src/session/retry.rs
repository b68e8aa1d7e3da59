//! One request until it is answered: retries, and hedges against members that are frozen.
//!
//! etcd-client's channel sends each call to a random member and has no failover: with one
//! of three dead, a third of the calls fail at once; with one frozen, a third hang. So an
//! error is tried again quickly (the next call lands elsewhere), and a call whose answer is
//! late gets company while it stays in the race: a slow server is then never asked in vain, and
//! a frozen one costs a pause. Every request is made so that being carried out twice is harmless.

use super::pace::Pace;
use crate::etcd::{Etcd, Verdict, classify};
use etcd_client::Error;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Each attempt ends after this, answered or not. Longer than a proposal is stuck when
/// etcd's leader dies (7 s with default timings).
const ATTEMPT: Duration = Duration::from_secs(10);

/// The pause before the first retry after an error; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How many tokens are fetched for one request before "invalid token" is believed.
pub(super) const REFRESHES: u32 = 3;

/// When an unanswered attempt gets company.
#[derive(Clone, Copy)]
pub(crate) enum Hedge<'a> {
    /// When it is late, as answers come at present, then every 500 ms at the most often. (At
    /// intervals that grew to 2 s, some requests took more than 5 s with one of three frozen.)
    Late(&'a Pace),
    /// At every interval: for renewals, whose number is bounded by the lease's end.
    Every(Duration),
}

impl Hedge<'_> {
    fn after(self, attempts: u32) -> Duration {
        match self {
            Self::Late(pace) if attempts < 2 => pace.late_after(),
            Self::Late(pace) => pace.late_after().max(LONGEST_PAUSE),
            Self::Every(interval) => interval,
        }
    }

    fn answered(self, after: Duration) {
        if let Self::Late(pace) = self {
            pace.answered(after);
        }
    }
}

/// An answer, and whether another attempt may have been carried out too, or may yet be.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) doubtful: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) verdict: Verdict,
    pub(crate) error: Error,
    pub(crate) doubtful: bool,
}

impl Refused {
    pub(crate) fn into_error(self, doing: &'static str) -> crate::Error {
        let source = self.error;
        crate::Error::Etcd { doing, source }
    }
}

/// Makes attempts until one is answered, is refused for good, or `deadline` passes.
pub(crate) async fn until_answered<T, F>(
    etcd: &Etcd,
    hedge: Hedge<'_>,
    deadline: Option<Instant>,
    attempt: impl Fn() -> F,
) -> Result<Answer<T>, Refused>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut racing = FuturesUnordered::new();
    let (mut attempts, mut failures, mut refreshes) = (0, 0, 0);
    let mut doubtful = false;
    let mut last = None;
    let refused = |verdict, error, doubtful| Refused {
        verdict,
        error,
        doubtful,
    };
    loop {
        let sent = Instant::now();
        let sending = timeout(ATTEMPT, attempt());
        racing.push(async move { (sent, sending.await) });
        attempts += 1;
        let mut pause = Box::pin(sleep(hedge.after(attempts)));
        // One round: until it is time for another attempt.
        loop {
            let ended = tokio::select! {
                biased;
                Some(ended) = racing.next() => ended,
                () = &mut pause => break,
                () = until(deadline) => {
                    let error = last.unwrap_or_else(silence);
                    return Err(refused(classify(&error), error, true));
                }
            };
            let (sent, ended) = ended;
            let error = match ended {
                Ok(Ok(value)) => {
                    hedge.answered(sent.elapsed());
                    let doubtful = doubtful || !racing.is_empty();
                    return Ok(Answer { value, doubtful });
                }
                Ok(Err(error)) => error,
                Err(_elapsed) => silence(),
            };
            match classify(&error) {
                Verdict::Retry { doubtful: may } => doubtful |= may,
                Verdict::Refresh if refreshes < REFRESHES => {
                    refreshes += 1;
                    if let Ok(Err(e)) = timeout(ATTEMPT, etcd.refresh_token()).await
                        && classify(&e) == Verdict::Fatal
                    {
                        return Err(refused(Verdict::Fatal, e, doubtful));
                    }
                }
                Verdict::Refresh => return Err(refused(Verdict::Fatal, error, doubtful)),
                verdict => {
                    let doubtful = doubtful || !racing.is_empty();
                    return Err(refused(verdict, error, doubtful));
                }
            }
            tracing::debug!(%error, attempts, "a request to etcd is tried again");
            last = Some(error);
            failures += 1;
            if racing.is_empty() {
                pause = Box::pin(sleep(backoff(failures)));
            }
        }
    }
}

/// The pause after so many failures in a row: quick at first, since the next call lands on
/// another member; with jitter, so that the clients of a cluster that comes back do not come
/// all at once.
pub(crate) fn backoff(failures: u32) -> Duration {
    let full = FIRST_PAUSE * (1 << (failures.saturating_sub(1)).min(8));
    full.min(LONGEST_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// What a request that nobody answers ends with.
pub(super) fn silence() -> Error {
    Error::IoError(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "no member of the cluster answered in time",
    ))
}
