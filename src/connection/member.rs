//! One member: the link to it, made when it is needed and again after it broke.

use super::exchange::{Answer, Request};
use super::link::{Link, SILENT};
use super::problem::{Problem, with_causes};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::Uri;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tower::BoxError;

/// How long making a link takes at the most, where the user has not said.
const CONNECT: Duration = Duration::from_secs(2);

/// What etcd-client's channel says, too, when the runtime on which it lives is gone.
const RUNTIME_GONE: &str = "Service was not ready: the runtime that connected is gone";

pub(super) struct Member {
    endpoint: Endpoint,
    state: Mutex<State>,
}

enum State {
    None,
    /// And since when.
    Coming(Coming, Instant),
    There(Arc<Link>),
}

/// A link that is being made, for all who wait for it; or why there is none.
type Coming = Shared<BoxFuture<'static, Result<Arc<Link>, Arc<str>>>>;

enum Linked {
    Now(Arc<Link>),
    Soon(Coming),
}

impl Member {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            state: Mutex::new(State::None),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn uri(&self) -> &Uri {
        self.endpoint.uri()
    }

    /// Whether something is due from it for a while now: an answer, or the link.
    pub(super) fn is_silent(&self) -> bool {
        match &*self.state() {
            State::None => false,
            State::Coming(_, since) => since.elapsed() >= SILENT,
            State::There(link) => link.is_silent(),
        }
    }

    /// Takes note that it has answered, if not on our link: a silent one is not used any more.
    pub(super) fn was_heard(&self) {
        let mut state = self.state();
        if matches!(&*state, State::There(link) if link.is_silent()) {
            *state = State::None;
        }
    }

    /// Sends a request, if there is a link or one can be made, and waits for the head of its answer.
    /// For a link it waits for long only if this `is_last` who can be asked.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        mut request: Request,
        is_last: bool,
        runtime: &Handle,
    ) -> Result<Answer, Problem> {
        // The one that is there may have ended since it was used last.
        if let Linked::Now(link) = self.linked(runtime) {
            request = match self.exchange_on(&link, request).await {
                Err(Problem::NotSent(request, _)) => *request,
                exchanged => return exchanged,
            };
        }
        let made = match self.linked(runtime) {
            Linked::Now(link) => Ok(link),
            Linked::Soon(coming) if is_last => coming.await,
            Linked::Soon(coming) => match timeout(SILENT, coming).await {
                Ok(made) => made,
                Err(_) => Err(format!("{}: no connection yet", self.uri()).into()),
            },
        };
        match made {
            Ok(link) => self.exchange_on(&link, request).await,
            Err(why) => Err(Problem::not_sent(request, &why)),
        }
    }

    async fn exchange_on(&self, link: &Arc<Link>, request: Request) -> Result<Answer, Problem> {
        let exchanged = link.exchange(request).await;
        match &exchanged {
            Err(Problem::NotSent(..)) => self.forget(link),
            Err(Problem::Broken(error)) if !is_of_one_stream(error) => self.forget(link),
            Ok(_) | Err(Problem::Broken(_) | Problem::Unfit(_) | Problem::Answered(_)) => {}
        }
        exchanged
    }

    fn linked(self: &Arc<Self>, runtime: &Handle) -> Linked {
        let mut state = self.state();
        match &*state {
            State::There(link) if !link.is_dead() => return Linked::Now(Arc::clone(link)),
            State::Coming(link, _) => return Linked::Soon(link.clone()),
            State::None | State::There(_) => {}
        }
        let member = Arc::clone(self);
        // A task, so that it is made even if those who need it do not wait for so long.
        let made = runtime.spawn(async move {
            let made = member.make_link().await;
            *member.state() = match &made {
                Ok(link) => State::There(Arc::clone(link)),
                Err(_) => State::None,
            };
            made
        });
        let made = made.map(|made| made.unwrap_or_else(|_| Err(RUNTIME_GONE.into())));
        let coming = made.boxed().shared();
        *state = State::Coming(coming.clone(), Instant::now());
        Linked::Soon(coming)
    }

    async fn make_link(&self) -> Result<Arc<Link>, Arc<str>> {
        let limit = self.endpoint.get_connect_timeout().unwrap_or(CONNECT);
        let why = match timeout(limit, Link::to(&self.endpoint, limit)).await {
            Ok(Ok(link)) => return Ok(Arc::new(link)),
            Ok(Err(error)) => with_causes(&*error),
            Err(_) => format!("no connection within {limit:?}"),
        };
        Err(format!("{}: {why}", self.uri()).into())
    }

    fn forget(&self, broken: &Arc<Link>) {
        let mut state = self.state();
        if matches!(&*state, State::There(link) if Arc::ptr_eq(link, broken)) {
            *state = State::None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error is that of one request, and the connection stands.
fn is_of_one_stream(error: &BoxError) -> bool {
    let error = error.downcast_ref::<h2::Error>();
    error.is_some_and(h2::Error::is_reset)
}
