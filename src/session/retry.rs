//! One request until it is answered: retries, and hedges against members that are frozen.
//!
//! etcd-client's channel sends each call to a random member and has no failover: with one
//! of three dead, a third of the calls fail at once; with one frozen, a third hang. So an
//! error is tried again quickly (the next call lands elsewhere), and a call whose answer is
//! late gets company while it stays in the race: a slow server is then never asked in vain, and
//! a frozen one costs a pause. Every request is made so that being carried out twice is harmless.

use super::pace::Pace;
use crate::etcd::{Etcd, Verdict, classify, silence};
use etcd_client::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

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

    /// The pause after so many failures, when nothing is under way.
    fn pause(self, failures: u32) -> Duration {
        match self {
            Self::Late(_) => backoff(failures),
            Self::Every(interval) => backoff(failures).min(interval),
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
        crate::Error::etcd(doing, self.error)
    }
}

/// Makes attempts until one is answered, is refused for good, or `deadline` passes.
///
/// On the way of every lock and release: an answer in time costs one timer.
pub(crate) async fn until_answered<T, F>(
    etcd: &Etcd,
    hedge: Hedge<'_>,
    deadline: Option<Instant>,
    attempt: impl Fn() -> F,
) -> Result<Answer<T>, Refused>
where
    F: Future<Output = Result<T, Error>>,
{
    let in_place = pin!(None);
    let mut race = Race::new(in_place);
    let (mut attempts, mut failures, mut refreshes) = (0, 0, 0);
    let mut doubtful = false;
    let mut last = None;
    let refused = |verdict, error, doubtful| Refused {
        verdict,
        error,
        doubtful,
    };
    let mut next = Instant::now();
    let mut timer = pin!(sleep_until(next));
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            let error = last.unwrap_or_else(silence);
            return Err(refused(classify(&error), error, true));
        }
        let given_up = race.give_up(now);
        if given_up {
            (doubtful, failures) = (true, failures + 1);
            last = Some(silence());
        }
        if next <= now {
            race.enter(now, attempt());
            attempts += 1;
            next = now + hedge.after(attempts);
        } else if given_up && race.is_empty() {
            next = now + hedge.pause(failures);
        }
        timer.as_mut().reset(race.wake_at(next, deadline));
        let (sent, ended) = tokio::select! {
            biased;
            ended = race.ended() => ended,
            () = &mut timer => continue,
        };
        let error = match ended {
            Ok(value) => {
                hedge.answered(sent.elapsed());
                let doubtful = doubtful || !race.is_empty();
                return Ok(Answer { value, doubtful });
            }
            Err(error) => error,
        };
        match classify(&error) {
            Verdict::Retry { doubtful: may } => doubtful |= may,
            Verdict::Refresh if refreshes < REFRESHES => {
                refreshes += 1;
                // Boxed, as it is rare and large.
                let token = Box::pin(timeout(ATTEMPT, etcd.refresh_token())).await;
                if let Ok(Err(e)) = token
                    && classify(&e) == Verdict::Fatal
                {
                    return Err(refused(Verdict::Fatal, e, doubtful));
                }
            }
            Verdict::Refresh => return Err(refused(Verdict::Fatal, error, doubtful)),
            verdict => {
                let doubtful = doubtful || !race.is_empty();
                return Err(refused(verdict, error, doubtful));
            }
        }
        tracing::debug!(%error, attempts, "a request to etcd is tried again");
        last = Some(error);
        failures += 1;
        if race.is_empty() {
            next = Instant::now() + hedge.pause(failures);
        }
    }
}

/// The attempts under way and when each was sent.
struct Race<'a, F> {
    /// One in place, for the most that there ever is: the future of a request takes 2 KB, and
    /// the allocator is slow with chunks of that size.
    in_place: Pin<&'a mut Option<F>>,
    sent: Instant,
    company: Vec<(Instant, Pin<Box<F>>)>,
}

impl<'a, F: Future> Race<'a, F> {
    fn new(in_place: Pin<&'a mut Option<F>>) -> Self {
        Self {
            in_place,
            sent: Instant::now(),
            company: Vec::new(),
        }
    }

    fn enter(&mut self, now: Instant, attempt: F) {
        if self.in_place.is_none() {
            self.in_place.set(Some(attempt));
            self.sent = now;
        } else {
            self.company.push((now, Box::pin(attempt)));
        }
    }

    fn sent(&self) -> impl Iterator<Item = Instant> {
        let in_place = self.in_place.is_some().then_some(self.sent);
        let company = self.company.iter().map(|(sent, _)| *sent);
        in_place.into_iter().chain(company)
    }

    fn is_empty(&self) -> bool {
        self.sent().next().is_none()
    }

    /// Drops attempts that have had their time; tells whether there were any.
    fn give_up(&mut self, now: Instant) -> bool {
        let is_late = |sent: Instant| sent + ATTEMPT <= now;
        if !self.sent().any(is_late) {
            return false;
        }
        if is_late(self.sent) {
            self.in_place.set(None);
        }
        self.company.retain(|(sent, _)| !is_late(*sent));
        true
    }

    /// When there is something to do unless one ends before.
    fn wake_at(&self, next: Instant, deadline: Option<Instant>) -> Instant {
        let expires = self.sent().map(|sent| sent + ATTEMPT);
        expires.chain(deadline).fold(next, Instant::min)
    }

    /// Waits until one ends, whichever; for ever if there is none.
    async fn ended(&mut self) -> (Instant, F::Output) {
        poll_fn(|cx| {
            let in_place = self.in_place.as_mut().as_pin_mut();
            if let Some(Poll::Ready(output)) = in_place.map(|attempt| attempt.poll(cx)) {
                self.in_place.set(None);
                return Poll::Ready((self.sent, output));
            }
            for (i, (sent, attempt)) in self.company.iter_mut().enumerate() {
                if let Poll::Ready(output) = attempt.as_mut().poll(cx) {
                    let sent = *sent;
                    drop(self.company.swap_remove(i));
                    return Poll::Ready((sent, output));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The pause after so many failures in a row: quick at first, since the next call lands on
/// another member; with jitter, so that the clients of a cluster that comes back do not come
/// all at once.
pub(crate) fn backoff(failures: u32) -> Duration {
    let full = FIRST_PAUSE * (1 << (failures.saturating_sub(1)).min(8));
    full.min(LONGEST_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
}
