//! The channel: which member gets a request, and when it is the next one's turn.

use super::exchange::{Answer, Request};
use super::leader::{Word, ask_all, leader};
use super::member::Member;
use super::problem::{NOT_SENT, Problem};
use etcd_client::Client;
use http::{HeaderValue, Uri};
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

/// How long connecting waits for it, and looks how often.
const LOOK_FIRST: Duration = Duration::from_secs(1);
const BETWEEN_FIRST_LOOKS: Duration = Duration::from_millis(50);

/// The header in which etcd-client shows who asks.
pub(super) const TOKEN: &str = "token";

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
    /// Of the last request that had one: members tell nobody else who leads.
    token: Option<HeaderValue>,
}

impl Sticky {
    pub(super) fn new(changes: mpsc::Receiver<Change<Uri, Endpoint>>) -> Arc<Self> {
        let table = Table {
            members: Vec::new(),
            at: 0,
            changes,
            token: None,
        };
        Arc::new(Self {
            table: Mutex::new(table),
            runtime: Handle::current(),
            looking: AtomicBool::new(false),
        })
    }

    /// Sends a request to the member whose turn it is, and waits for the head of its answer. While
    /// it is certain that nothing was sent, the next one gets it, each once.
    pub(super) async fn exchange(
        self: Arc<Self>,
        mut request: Request,
    ) -> Result<Answer, BoxError> {
        let mut tried = Vec::new();
        let mut not_sent = None;
        while let Some((member, is_last)) = self.whose_turn(&request, &tried) {
            let problem = match member.exchange(request, is_last, &self.runtime).await {
                Ok(answer) => return Ok(answer),
                Err(problem) => problem,
            };
            if !matches!(problem, Problem::Unfit(_)) {
                tracing::debug!(member = %member.uri(), %problem, "the next member's turn");
                self.pass_on(&member);
            }
            match problem {
                Problem::NotSent(unsent, status) => {
                    tried.push(member);
                    not_sent = Some(status);
                    request = *unsent;
                }
                Problem::Broken(error) => return Err(error),
                Problem::Unfit(status) => return Err(status.into()),
                Problem::Answered(answer) => return Ok(*answer),
            }
        }
        let nobody = || Status::unavailable(format!("{NOT_SENT}: there is no endpoint any more"));
        Err(not_sent.unwrap_or_else(nobody).into())
    }

    /// The member to which a request goes now, if there is one that it has not been tried with, and
    /// whether it is the last of these.
    fn whose_turn(
        self: &Arc<Self>,
        request: &Request,
        tried: &[Arc<Member>],
    ) -> Option<(Arc<Member>, bool)> {
        let mut table = self.table();
        let changed = table.take_note();
        if let Some(token) = request.headers().get(TOKEN)
            && table.token.as_ref() != Some(token)
        {
            table.token = Some(token.clone());
        }
        let (from, count) = (table.at, table.members.len());
        let is_new = |member: &Arc<Member>| !tried.iter().any(|tried| Arc::ptr_eq(tried, member));
        let turns = || {
            (0..count)
                .map(|i| (from + i) % count)
                .filter(|at| is_new(&table.members[*at]))
        };
        let talks = |at: &usize| !table.members[*at].is_silent();
        let is_last = turns().nth(1).is_none();
        // With all of them silent, the one after, so that each is asked now and then.
        let at = turns()
            .find(talks)
            .or_else(|| turns().nth(1))
            .or_else(|| turns().next())?;
        table.at = at;
        let member = Arc::clone(&table.members[at]);
        drop(table);
        if at != from || changed {
            self.look_in_background();
        }
        Some((member, is_last))
    }

    /// Makes it the next one's turn, if it was this one's.
    fn pass_on(self: &Arc<Self>, member: &Arc<Member>) {
        let mut table = self.table();
        if table.is_at(member) {
            table.at = (table.at + 1) % table.members.len();
        }
        drop(table);
        self.look_in_background();
    }

    /// Looks for the raft leader once, and makes it its turn. Tells whether there is no use in
    /// looking again.
    async fn look(&self) -> bool {
        let (members, at, token) = {
            let mut table = self.table();
            table.take_note();
            (table.members.clone(), table.at, table.token.clone())
        };
        if members.len() < 2 {
            return true;
        }
        let endpoints = members.iter().map(|member| member.endpoint().clone());
        let words = ask_all(endpoints.collect(), token).await;
        // Who has answered there is not silent, whatever became of a request to it.
        for (member, _) in members
            .iter()
            .zip(&words)
            .filter(|(_, word)| word.is_some())
        {
            member.was_heard();
        }
        let Some(leader) = leader(&words) else {
            let for_good = |word: &_| matches!(word, Some(Word::Refused { for_good: true }));
            return words.iter().all(for_good);
        };
        let mut table = self.table();
        // Unless it has become somebody else's turn meanwhile, for reasons that are newer.
        if table.at == at
            && let Some(at) = table
                .members
                .iter()
                .position(|now| Arc::ptr_eq(now, &members[leader]))
        {
            table.at = at;
            return true;
        }
        false
    }

    /// Looks for the raft leader for a short time, and then in the background.
    pub(super) async fn look_first(self: &Arc<Self>, client: &Client) {
        let looks = async {
            while !self.look().await {
                // Shows us the token, if there is one, that looking again may need.
                client.maintenance_client().status().await.ok();
                tokio::time::sleep(BETWEEN_FIRST_LOOKS).await;
            }
        };
        if tokio::time::timeout(LOOK_FIRST, looks).await.is_err() {
            self.look_in_background();
        }
    }

    /// Looks for the raft leader until there is one, for some time, unless somebody does already.
    fn look_in_background(self: &Arc<Self>) {
        if self.looking.swap(true, Ordering::Relaxed) {
            return;
        }
        let sticky = Arc::downgrade(self);
        let looks = async move {
            for _ in 0..LOOKS {
                tokio::time::sleep(BETWEEN_LOOKS).await;
                // Nobody can ask any more: no need to know.
                let Some(sticky) = sticky.upgrade() else {
                    return;
                };
                if sticky.look().await {
                    break;
                }
            }
            if let Some(sticky) = sticky.upgrade() {
                sticky.looking.store(false, Ordering::Relaxed);
            }
        };
        drop(self.runtime.spawn(looks));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes note of endpoints that were added or removed; tells whether there were others before.
    fn take_note(&mut self) -> bool {
        let (at, had) = (self.members.get(self.at).cloned(), !self.members.is_empty());
        let mut changed = false;
        while let Ok(change) = self.changes.try_recv() {
            changed = true;
            match change {
                Change::Insert(uri, endpoint) => {
                    self.members.retain(|member| *member.uri() != uri);
                    self.members.push(Arc::new(Member::new(endpoint)));
                }
                Change::Remove(uri) => self.members.retain(|member| *member.uri() != uri),
            }
        }
        if changed {
            let still =
                |member: &Arc<Member>| at.as_ref().is_some_and(|at| Arc::ptr_eq(at, member));
            self.at = self.members.iter().position(still).unwrap_or(0);
        }
        changed && had
    }

    fn is_at(&self, member: &Arc<Member>) -> bool {
        let at = self.members.get(self.at);
        at.is_some_and(|at| Arc::ptr_eq(at, member))
    }
}
