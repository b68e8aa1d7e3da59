//! One connection to a member, and whether it talks.

use super::exchange::{Answer, Direct, Request};
use super::problem::{Problem, whole};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tower::{BoxError, Service, ServiceExt};

/// After this, silence means that another member should be asked: below the least after which
/// this crate sends an unanswered request again, so that the second one goes elsewhere.
pub(super) const SILENT: Duration = Duration::from_millis(200);

/// After this, it means that a new link should be tried, where there is nobody else to ask.
const DEAD: Duration = Duration::from_secs(1);

/// The gRPC code `Unavailable`, as it stands in the head of an answer: of who has no leader, is
/// stopping, or was not answered by the leader itself.
const UNAVAILABLE: &[u8] = b"14";

pub(super) struct Link {
    way: Way,
    talk: Mutex<Talk>,
}

#[derive(Clone)]
enum Way {
    Direct(Direct),
    /// With TLS, whose configuration only tonic can read.
    Tonic(Channel),
}

impl Way {
    async fn ready(&mut self) -> Result<(), BoxError> {
        match self {
            Self::Direct(direct) => Ok(direct.ready().await?),
            Self::Tonic(channel) => Ok(channel.ready().await.map(drop)?),
        }
    }

    async fn exchange(self, request: Request) -> Result<Answer, BoxError> {
        match self {
            Self::Direct(direct) => Ok(direct.exchange(request).await?),
            Self::Tonic(mut channel) => Ok(channel.call(request).await?),
        }
    }
}

#[derive(Default)]
struct Talk {
    unanswered: usize,
    /// Since when nothing was answered, though something was asked.
    silent_since: Option<Instant>,
}

impl Link {
    pub(super) async fn to(endpoint: &Endpoint) -> Result<Self, BoxError> {
        let way = if endpoint.uri().scheme_str() == Some("https") {
            Way::Tonic(endpoint.connect().await?)
        } else {
            Way::Direct(Direct::to(endpoint).await?)
        };
        Ok(Self {
            way,
            talk: Mutex::default(),
        })
    }

    /// Whether something was asked and, for a while now, nothing answered.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_for() >= SILENT
    }

    /// Whether that has lasted for so long that another connection may do better.
    pub(super) fn is_dead(&self) -> bool {
        self.silent_for() >= DEAD
    }

    fn silent_for(&self) -> Duration {
        let since = self.talk().silent_since;
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Sends a request, if the connection stands, and waits for the head of its answer.
    pub(super) async fn exchange(&self, request: Request) -> Result<Answer, Problem> {
        let mut way = self.way.clone();
        if let Err(why) = way.ready().await {
            return Err(Problem::not_sent(request, &whole(&*why)));
        }
        let mut asked = self.ask();
        let answered = way.exchange(request).await;
        asked.answered = true;
        let answer = answered.map_err(Problem::Broken)?;
        let status = answer.headers().get("grpc-status");
        if status.is_some_and(|status| status == UNAVAILABLE) {
            return Err(Problem::Answered(Box::new(answer)));
        }
        Ok(answer)
    }

    fn ask(&self) -> Asked<'_> {
        let now = Instant::now();
        let mut talk = self.talk();
        talk.unanswered += 1;
        talk.silent_since.get_or_insert(now);
        Asked {
            link: self,
            since: now,
            answered: false,
        }
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for its answer.
struct Asked<'a> {
    link: &'a Link,
    since: Instant,
    answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut talk = self.link.talk();
        talk.unanswered -= 1;
        if self.answered {
            talk.silent_since = (talk.unanswered > 0).then_some(now);
        } else if talk.unanswered == 0 && now - self.since < SILENT {
            // Nobody waited for long enough to tell.
            talk.silent_since = None;
        }
    }
}
