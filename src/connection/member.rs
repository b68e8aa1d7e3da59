//! One member: the link to it, made when it is needed and again after it broke.

use super::exchange::{Answer, Request};
use super::link::{Link, SILENT};
use super::problem::{Problem, whole};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::Uri;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tonic::transport::Endpoint;

/// How long making a link takes at the most, where the user has not said.
const CONNECT: Duration = Duration::from_secs(2);

/// What etcd-client's channel says, too, when the runtime on which it lives is gone.
const RUNTIME_GONE: &str = "Service was not ready: the runtime that connected is gone";

pub(super) struct Member {
    endpoint: Endpoint,
    link: Mutex<State>,
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
            link: Mutex::new(State::None),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn uri(&self) -> &Uri {
        self.endpoint.uri()
    }

    /// Whether requests have been waiting for a while, and nothing has come back.
    pub(super) fn is_silent(&self) -> bool {
        match &*self.link() {
            State::None => false,
            State::Coming(_, since) => since.elapsed() >= SILENT,
            State::There(link) => link.is_silent(),
        }
    }

    /// Sends a request, if there is a link or one can be made, and waits for the head of its answer.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        request: Request,
        runtime: &Handle,
    ) -> Result<Answer, Problem> {
        let link = match self.linked(runtime) {
            Linked::Now(link) => link,
            Linked::Soon(link) => match link.await {
                Ok(link) => link,
                Err(why) => return Err(Problem::not_sent(request, &why)),
            },
        };
        let answered = link.exchange(request).await;
        if matches!(answered, Err(Problem::NotSent(..) | Problem::Broken(_))) {
            self.forget(&link);
        }
        answered
    }

    fn linked(self: &Arc<Self>, runtime: &Handle) -> Linked {
        let mut state = self.link();
        match &*state {
            State::There(link) if !link.is_dead() => return Linked::Now(Arc::clone(link)),
            State::Coming(link, _) => return Linked::Soon(link.clone()),
            State::None | State::There(_) => {}
        }
        let member = Arc::clone(self);
        // A task, so that it is made even if those who need it do not wait for so long.
        let made = runtime.spawn(async move {
            let made = member.make_link().await;
            *member.link() = match &made {
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
        let why = match tokio::time::timeout(limit, Link::to(&self.endpoint)).await {
            Ok(Ok(link)) => return Ok(Arc::new(link)),
            Ok(Err(error)) => whole(&*error),
            Err(_) => format!("no connection within {limit:?}"),
        };
        Err(format!("{}: {why}", self.uri()).into())
    }

    fn forget(&self, broken: &Arc<Link>) {
        let mut state = self.link();
        if matches!(&*state, State::There(link) if Arc::ptr_eq(link, broken)) {
            *state = State::None;
        }
    }

    fn link(&self) -> MutexGuard<'_, State> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
