//! The channel: which member gets a request, and when it is the next one's turn.

use super::exchange::{Answer, Request};
use super::leader::leader;
use super::member::Member;
use super::problem::Problem;
use http::Uri;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;
use tower::BoxError;

/// How often, and at which intervals, the raft leader is looked for after trouble.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// All members, and the one that gets the requests.
pub(super) struct Sticky {
    table: Mutex<Table>,
    runtime: Handle,
    looking: AtomicBool,
}

struct Table {
    members: Vec<Arc<Member>>,
    at: usize,
    changes: mpsc::Receiver<Change<Uri, Endpoint>>,
}

impl Sticky {
    pub(super) fn new(changes: mpsc::Receiver<Change<Uri, Endpoint>>) -> Arc<Self> {
        let table = Table {
            members: Vec::new(),
            at: 0,
            changes,
        };
        Arc::new(Self {
            table: Mutex::new(table),
            runtime: Handle::current(),
            looking: AtomicBool::new(false),
        })
    }

    /// Sends a request to the member whose turn it is, and waits for the head of its answer. While
    /// it is certain that nothing was sent, the next one gets it.
    pub(super) async fn exchange(
        self: Arc<Self>,
        mut request: Request,
    ) -> Result<Answer, BoxError> {
        let mut tries = 0;
        loop {
            let (member, count) = self.whose_turn()?;
            let problem = match member.exchange(request, &self.runtime).await {
                Ok(answer) => return Ok(answer),
                Err(problem) => problem,
            };
            tracing::debug!(member = %member.uri(), %problem, "the next member's turn");
            self.pass_on(&member);
            tries += 1;
            request = match problem {
                Problem::NotSent(request, _) if tries < count => *request,
                Problem::NotSent(_, status) => return Err(status.into()),
                Problem::Broken(error) => return Err(error),
                Problem::Answered(answer) => return Ok(*answer),
            };
        }
    }

    /// The member to which a request goes now, and how many there are.
    fn whose_turn(self: &Arc<Self>) -> Result<(Arc<Member>, usize), Status> {
        let mut table = self.table();
        table.take_note();
        let count = table.members.len();
        if count == 0 {
            return Err(Status::unavailable("there is no endpoint any more"));
        }
        let from = table.at;
        let mut turns = (0..count).map(|i| (from + i) % count);
        let talks = turns.find(|at| !table.members[*at].is_silent());
        // With all of them silent, who was not asked for longest.
        table.at = talks.unwrap_or((from + 1) % count);
        let member = Arc::clone(&table.members[table.at]);
        drop(table);
        if talks != Some(from) {
            self.look_in_background();
        }
        Ok((member, count))
    }

    /// Makes it the next one's turn, if it was this one's.
    fn pass_on(self: &Arc<Self>, member: &Arc<Member>) {
        let mut table = self.table();
        let count = table.members.len();
        if table.is_at(member) {
            table.at = (table.at + 1) % count;
        }
        drop(table);
        self.look_in_background();
    }

    /// Looks for the raft leader once, and makes it its turn.
    pub(super) async fn look(&self) -> bool {
        let members = self.members();
        if members.len() < 2 {
            return true;
        }
        let endpoints = members.iter().map(|member| member.endpoint().clone());
        let Some(uri) = leader(endpoints.collect()).await else {
            return false;
        };
        let mut table = self.table();
        let at = table.members.iter().position(|member| *member.uri() == uri);
        table.at = at.unwrap_or(table.at);
        true
    }

    /// Looks for the raft leader until there is one, for some time, unless somebody does already.
    fn look_in_background(self: &Arc<Self>) {
        if self.looking.swap(true, Ordering::Relaxed) {
            return;
        }
        let whole = Arc::downgrade(self);
        let looks = async move {
            for _ in 0..LOOKS {
                tokio::time::sleep(BETWEEN_LOOKS).await;
                // Nobody can ask any more: no need to know.
                let Some(sticky) = whole.upgrade() else {
                    return;
                };
                if sticky.look().await {
                    break;
                }
            }
            if let Some(sticky) = whole.upgrade() {
                sticky.looking.store(false, Ordering::Relaxed);
            }
        };
        drop(self.runtime.spawn(looks));
    }

    fn members(&self) -> Vec<Arc<Member>> {
        let mut table = self.table();
        table.take_note();
        table.members.clone()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes note of endpoints that were added or removed.
    fn take_note(&mut self) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                Change::Insert(uri, endpoint) => {
                    self.members.retain(|member| *member.uri() != uri);
                    self.members.push(Arc::new(Member::new(endpoint)));
                }
                Change::Remove(uri) => self.members.retain(|member| *member.uri() != uri),
            }
            self.at = self.at.min(self.members.len().saturating_sub(1));
        }
    }

    fn is_at(&self, member: &Arc<Member>) -> bool {
        let at = self.members.get(self.at);
        at.is_some_and(|at| Arc::ptr_eq(at, member))
    }
}
