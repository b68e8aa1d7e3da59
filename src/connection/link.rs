//! One connection to a member, and whether it talks.

use super::exchange::{Answer, Direct, Failed, Request};
use super::problem::{Problem, with_causes};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tower::{BoxError, Service, ServiceExt};

/// After this, silence means that another member should be asked: below the least after which this
/// crate sends an unanswered request again (but for renewals), so that the second goes elsewhere.
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

    async fn exchange(self, request: Request) -> Result<Answer, Problem> {
        match self {
            Self::Direct(direct) => direct
                .exchange(request)
                .await
                .map_err(|failed| match failed {
                    Failed::Request(status) => Problem::Unfit(status),
                    Failed::Answer(error) => Problem::Broken(error.into()),
                }),
            Self::Tonic(mut channel) => {
                let answered = channel.call(request).await;
                answered.map_err(|error| Problem::Broken(error.into()))
            }
        }
    }
}

#[derive(Default)]
struct Talk {
    unanswered: usize,
    /// Since when nothing was answered, though something was asked, and waited for.
    silent_since: Option<Instant>,
}

impl Link {
    /// Connects within `limit` to one of the member's addresses.
    pub(super) async fn to(endpoint: &Endpoint, limit: Duration) -> Result<Self, BoxError> {
        let way = if endpoint.uri().scheme_str() == Some("https") {
            Way::Tonic(endpoint.clone().connect_timeout(limit).connect().await?)
        } else {
            Way::Direct(Direct::to(endpoint, limit).await?)
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
            return Err(Problem::not_sent(request, &with_causes(&*why)));
        }
        let mut asked = is_answered_soon(request.uri().path()).then(|| self.ask());
        let answered = way.exchange(request).await;
        if let Some(asked) = &mut asked {
            asked.answered = true;
        }
        let answer = answered?;
        let status = answer.headers().get("grpc-status");
        // Without a gRPC status, and not "OK", it is what stands before a member that speaks.
        let is_away = status.map_or(!answer.status().is_success(), |code| code == UNAVAILABLE);
        if is_away {
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

/// Whether silence after a request tells of a member. A lock of etcd's own or a campaign waits for
/// its turn, and what is done for maintenance takes its time.
fn is_answered_soon(path: &str) -> bool {
    path.starts_with("/etcdserverpb.") && !path.starts_with("/etcdserverpb.Maintenance/")
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
