//! Following an election from outside.
//!
//! One watch on everything behind the name tells *when* to look; *what* is shown is always the
//! answer of a linearizable read, so a candidate who is not first is never shown and tokens never
//! go back. After any trouble with the watch: open another, look again.

use crate::election::Leader;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::etcd::{Etcd, Standing};
use crate::key::Name;
use crate::session::{Hedge, Pace, backoff, until_answered};
use etcd_client::{Client, EventType, WatchResponse, WatchStream};
use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A silent stream is asked for a sign of life after this, and given up after as much again.
const SILENCE: Duration = Duration::from_secs(3);

/// One look at least so often, for members that are cut off and lose events.
const SAFETY: Duration = Duration::from_secs(10);

/// A [`Stream`] of who leads an election: first the present state, then every change of it.
///
/// `None` while nobody leads. It needs no session and takes no part in the election. It is the
/// `Stream` of `futures` and `tokio-stream`; use either crate's `StreamExt`.
///
/// # Promises
///
/// - Never shows a candidate who is not first; tokens never go back.
/// - Resumes after cuts, compactions and restarts of etcd, and shows the state it finds then.
/// - Never ends by itself. An error is an item: etcd refused (permissions, for example), and
///   it goes on trying after a pause; the next item that is none is the state it finds.
///
/// # Not promised
///
/// - Every change: leaders or values that came and went between two looks are not shown.
/// - That the leader shown still leads: that is news of the past, like everything seen from
///   outside. Only the leader's own [`Hold`](crate::Hold) knows.
///
/// # Examples
///
/// ```no_run
/// use etcd_lock::{Observer, etcd_client::Client};
/// use tokio_stream::StreamExt;
///
/// # async fn example(client: Client) -> Result<(), etcd_lock::Error> {
/// let mut leaders = Observer::new(client, "services/billing")?;
/// while let Some(leader) = leaders.next().await {
///     match leader? {
///         Some(leader) => println!("{} leads", String::from_utf8_lossy(&leader.value)),
///         None => println!("nobody leads"),
///     }
/// }
/// # Ok(()) }
/// ```
#[must_use = "a stream does nothing until polled"]
pub struct Observer {
    name: Name,
    leaders: BoxStream<'static, Result<Option<Leader>>>,
}

impl Observer {
    /// Observes the election of that name; nothing is sent until the first poll.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is empty or ends in `/`.
    pub fn new(client: Client, name: &str) -> Result<Self> {
        Ok(Self::of(client, Name::new(name)?))
    }

    pub(crate) fn of(client: Client, name: Name) -> Self {
        let follower = Follower {
            etcd: Etcd::new(client),
            name: name.clone(),
            watch: None,
            leader: None,
            shown: false,
            failures: 0,
            pace: Pace::default(),
        };
        let leaders = unfold(follower, async |mut follower| {
            let item = follower.next().await;
            Some((item, follower))
        });
        Self {
            name,
            leaders: leaders.boxed(),
        }
    }
}

impl Stream for Observer {
    type Item = Result<Option<Leader>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.leaders.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("name", &self.name.as_str())
            .finish_non_exhaustive()
    }
}

struct Follower {
    etcd: Etcd,
    name: Name,
    watch: Option<WatchStream>,
    /// Who led when it was looked last.
    leader: Option<Standing>,
    /// Whether the last item showed `leader`.
    shown: bool,
    failures: u32,
    pace: Pace,
}

/// The watch is of no more use.
struct Broken;

impl Follower {
    /// The next item to show.
    async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            let found = match self.look_when_needed().await {
                Ok(found) => found,
                Err(error) => {
                    self.watch = None;
                    self.failures += 1;
                    // Once it can be seen again, it is shown even if it is what it was.
                    self.shown = false;
                    return Err(error);
                }
            };
            self.failures = 0;
            let before = std::mem::replace(&mut self.leader, found.clone());
            let first = !std::mem::replace(&mut self.shown, true);
            if first || differs(before.as_ref(), found.as_ref()) {
                return Ok(found.map(Leader::from));
            }
        }
    }

    /// Waits until a look may show something else, and looks.
    async fn look_when_needed(&mut self) -> Result<Option<Standing>> {
        if self.watch.is_some() && self.until_news().await.is_err() {
            self.watch = None;
            self.failures += 1;
        }
        if self.watch.is_none() {
            if self.failures > 0 {
                sleep(backoff(self.failures)).await;
            }
            self.watch = Some(self.open().await?);
        }
        self.look().await
    }

    /// A watch that is confirmed: what happens from now on is seen.
    async fn open(&self) -> Result<WatchStream> {
        loop {
            let follow = || async {
                let mut watch = self.etcd.follow(self.name.prefix()).await?;
                let first = watch.message().await?;
                Ok((watch, first))
            };
            let opened = until_answered(&self.etcd, Hedge::Late(&self.pace), None, follow).await;
            let (watch, first) = opened
                .map_err(|refused| refused.into_error("observe"))?
                .value;
            match first {
                Some(first) if first.created() && !first.canceled() => return Ok(watch),
                // Refused without a gRPC error: a look tells why, if it is about permissions.
                Some(first) if first.canceled() => {
                    tracing::warn!(reason = first.cancel_reason(), "etcd refuses a watch");
                    self.look().await?;
                }
                Some(_) | None => {}
            }
            sleep(backoff(u32::MAX)).await;
        }
    }

    async fn look(&self) -> Result<Option<Standing>> {
        let first = || self.etcd.first(&self.name);
        let looked = until_answered(&self.etcd, Hedge::Late(&self.pace), None, first).await;
        let answer = looked.map_err(|refused| refused.into_error("read the leader"))?;
        Ok(answer.value)
    }

    /// Waits for an event that may change who leads or with what value, or for the time of the
    /// safety look.
    async fn until_news(&mut self) -> Result<(), Broken> {
        let look_at = Instant::now() + SAFETY;
        let mut probed = false;
        while Instant::now() < look_at {
            let watch = self.watch.as_mut().ok_or(Broken)?;
            match timeout(SILENCE, watch.message()).await {
                Ok(Ok(Some(message))) if message.canceled() => return Err(Broken),
                Ok(Ok(Some(message))) => {
                    probed = false;
                    if self.is_news(&message) {
                        return Ok(());
                    }
                }
                Ok(Ok(None) | Err(_)) => return Err(Broken),
                Err(_elapsed) if probed => return Err(Broken),
                Err(_elapsed) => {
                    probed = true;
                    match timeout(SILENCE, watch.request_progress()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) | Err(_) => return Err(Broken),
                    }
                }
            }
        }
        Ok(())
    }

    fn is_news(&self, message: &WatchResponse) -> bool {
        let leader = self.leader.as_ref();
        message
            .events()
            .iter()
            .any(|event| match (event.kv(), leader) {
                (Some(kv), Some(leader)) => {
                    kv.key() == leader.key && kv.mod_revision() > leader.modified
                }
                (Some(kv), None) => {
                    event.event_type() == EventType::Put && self.name.is_in_line(kv.key())
                }
                (None, _) => false,
            })
    }
}

/// Whether two findings are shown differently.
fn differs(a: Option<&Standing>, b: Option<&Standing>) -> bool {
    let shown = |found: &Standing| (found.key.clone(), found.revision, found.value.clone());
    a.map(shown) != b.map(shown)
}
