//! What the code of a process does: it opens sessions, and in tasks of its own it locks, tries,
//! campaigns, holds, lets go, gives up, and panics.

use super::holds::{Any, Holds};
use super::story::Story;
use super::{DOORS, giving_up};
use etcd_lock::etcd_client::Client;
use etcd_lock::{Election, Error, Lost, Mutex, Session};
use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use tokio_stream::StreamExt;

/// What a process and the world know of each other.
#[derive(Clone)]
pub struct Post {
    pub process: usize,
    pub holds: Holds,
    pub story: Story,
    /// No more faults: come to an end.
    pub calm: Arc<AtomicBool>,
    /// How many workers have not come to their end.
    pub at_work: Arc<AtomicUsize>,
    /// Everybody's work is done: close the sessions.
    pub closing: Arc<AtomicBool>,
    /// Leases of which the library has said that they are gone.
    pub gone: Arc<std::sync::Mutex<Vec<i64>>>,
}

impl Post {
    pub fn new(process: usize, holds: Holds, story: Story) -> Self {
        Self {
            process,
            holds,
            story,
            calm: Arc::default(),
            at_work: Arc::default(),
            closing: Arc::default(),
            gone: Arc::default(),
        }
    }

    /// The library says so of the session's lease.
    fn is_gone(&self, session: &Session) {
        self.gone.lock().unwrap().push(session.lease_id());
    }

    async fn close(&self, session: &Session) {
        let closed = session.close().await;
        let lease = session.lease_id();
        self.story.tell(
            format!("p{}", self.process),
            format!("closed {lease:x}: {closed:?}"),
        );
        if closed.is_ok() {
            self.is_gone(session);
        }
    }

    fn calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }
}

/// A session that is opened again when it is over, shared by some workers.
#[derive(Clone)]
struct Sessions {
    client: Client,
    ttl: Duration,
    open: Arc<tokio::sync::Mutex<Option<Session>>>,
}

impl Sessions {
    async fn get(&self) -> Result<Session, Error> {
        let mut open = self.open.lock().await;
        if let Some(session) = open.as_ref()
            && session.is_certain()
        {
            return Ok(session.clone());
        }
        drop(open.take());
        let builder = Session::builder(self.client.clone()).label("sim");
        let session = builder.ttl(self.ttl).open().await?;
        Ok(open.insert(session).clone())
    }
}

/// Starts all tasks of a process; in its runtime.
pub fn start(post: &Post, client: &Client, crowd: bool, rng: &mut Rng) {
    // Now and then a crowd at one door, from many sessions: there, lines are long.
    let (sessions, workers, doors) = if crowd {
        (4, 1, 1)
    } else {
        (rng.usize(1..=2), 3, DOORS.len())
    };
    for _ in 0..sessions {
        let sessions = Sessions {
            client: client.clone(),
            ttl: Duration::from_secs(rng.u64(2..=6)),
            open: Arc::default(),
        };
        for _ in 0..rng.usize(1..=workers) {
            post.at_work.fetch_add(1, Ordering::Relaxed);
            let worker = Worker {
                post: post.clone(),
                sessions: sessions.clone(),
                name: DOORS[rng.usize(..doors)],
                rng: rng.fork(),
                is: format!("p{}.{}", post.process, rng.u16(..)),
            };
            tokio::spawn(worker.run());
        }
        tokio::spawn(close(post.clone(), sessions, rng.bool()));
    }
    if rng.bool() {
        let name = DOORS[rng.usize(..DOORS.len())];
        tokio::spawn(observe(post.clone(), client.clone(), name));
    }
}

/// Ends a session when all is done: closes it, or just drops it.
async fn close(post: Post, sessions: Sessions, confirmed: bool) {
    while !post.closing.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50)).await;
    }
    let session = sessions.open.lock().await.take();
    if let Some(session) = session.filter(|_| confirmed) {
        post.close(&session).await;
    }
}

/// Follows an election: what is shown never goes back.
async fn observe(post: Post, client: Client, name: &str) {
    let mut leaders = etcd_lock::Observer::new(client, name).unwrap();
    let mut last = None;
    while !post.closing.load(Ordering::Relaxed) {
        let next = tokio::time::timeout(Duration::from_millis(200), leaders.next()).await;
        let Ok(Some(Ok(Some(leader)))) = next else {
            continue;
        };
        if last.is_some_and(|last| leader.token < last) {
            let process = post.process;
            post.story.wrong(format!(
                "p{process} was shown leader {} of {name} after {last:?}",
                leader.token
            ));
        }
        last = Some(leader.token);
    }
}

struct Worker {
    post: Post,
    sessions: Sessions,
    name: &'static str,
    rng: Rng,
    is: String,
}

impl Worker {
    fn tell(&self, what: impl std::fmt::Display) {
        self.post.story.tell(&self.is, what);
    }

    async fn run(mut self) {
        while !self.post.calm() {
            if let Err(error) = self.once().await {
                self.tell(error);
                self.pause(300).await;
            }
            self.pause(100).await;
        }
        while let Err(error) = self.last().await {
            self.tell(error);
            self.pause(300).await;
        }
        self.tell("is done");
        self.post.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.rng.u64(1..=most))).await;
    }

    /// With no more faults, whoever waits gets in.
    async fn last(&mut self) -> Result<(), Error> {
        let session = self.sessions.get().await?;
        let guard = Mutex::new(&session, self.name)?.lock().await?;
        let hold = self.post.holds.lock(self.post.process, guard);
        self.tell(format!("holds {} at last", self.name));
        self.pause(50).await;
        hold.release().await
    }

    async fn once(&mut self) -> Result<(), Error> {
        let session = self.sessions.get().await?;
        let done = self.through(&session).await;
        if matches!(done, Err(Error::Lost(Lost::LeaseGone))) {
            self.post.is_gone(&session);
        }
        done
    }

    async fn through(&mut self, session: &Session) -> Result<(), Error> {
        let mutex = Mutex::new(session, self.name)?;
        let (holds, process) = (self.post.holds.clone(), self.post.process);
        let hold = match self.rng.u8(..100) {
            ..30 => Some(holds.lock(process, mutex.lock().await?)),
            30..45 => {
                let tried = mutex.try_lock().await?;
                tried.ok().map(|guard| holds.lock(process, guard))
            }
            45..60 => {
                let limit = Duration::from_millis(self.rng.u64(..3_000));
                Some(holds.lock(process, mutex.lock_within(limit).await?))
            }
            60..75 => {
                let polls = self.rng.u32(1..12);
                let guard = giving_up(polls, mutex.lock()).await.transpose()?;
                guard.map(|guard| holds.lock(process, guard))
            }
            75..80 => {
                let polls = self.rng.u32(1..6);
                let tried = giving_up(polls, mutex.try_lock()).await.transpose()?;
                let guard = tried.and_then(Result::ok);
                guard.map(|guard| holds.lock(process, guard))
            }
            80..97 => {
                let election = Election::new(session, self.name)?;
                Some(holds.lead(process, election.campaign("me").await?))
            }
            97 => {
                self.tell("closes its session");
                self.post.close(session).await;
                None
            }
            _ => {
                let queue = mutex.queue().await?;
                self.tell(format!("sees {} in line", queue.len()));
                None
            }
        };
        match hold {
            Some(hold) => self.hold(hold).await,
            None => Ok(()),
        }
    }

    async fn hold(&mut self, hold: Any) -> Result<(), Error> {
        let (key, token) = (hold.key().to_owned(), hold.token());
        self.tell(format!("holds {key} with token {token}"));
        let most = [1, 50, 300, 6_000][self.rng.usize(..4)];
        let time = Duration::from_millis(self.rng.u64(..=most));
        if let Any::Lead(lead) = &hold
            && self.rng.bool()
        {
            lead.proclaim(format!("value {}", self.rng.u8(..))).await?;
        }
        if self.rng.bool() {
            sleep(time).await;
        } else {
            hold.run_until_lost(sleep(time)).await?;
        }
        match self.rng.u8(..10) {
            ..6 => {
                let released = hold.release().await;
                self.tell(format!("released {key}: {released:?}"));
            }
            6..8 => {
                self.tell(format!("drops {key}"));
                drop(hold);
            }
            8 => {
                self.tell(format!("panics with {key}"));
                let panics = tokio::spawn(async move {
                    let _hold = hold;
                    std::panic::resume_unwind(Box::new("a bug in the work"));
                });
                assert!(panics.await.is_err());
            }
            _ => {
                let polls = self.rng.u32(1..4);
                let released = giving_up(polls, hold.release()).await;
                self.tell(format!("began to release {key}: {released:?}"));
            }
        }
        Ok(())
    }
}
