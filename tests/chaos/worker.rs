//! A process that locks and campaigns, writes under what it holds, and gives up, in all the ways there are.

use std::env::var;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::time::Duration;

use etcd_client::Client;
use etcd_lock::{Election, Error, Hold, Leadership, LockGuard, Lost, Mutex, Session};
use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use crate::book::clock;
use crate::support::connect;

/// What everybody wants.
pub const NAMES: [&str; 3] = ["chaos/lock", "chaos/other", "chaos/leader"];

pub const TTL: Duration = Duration::from_secs(6);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Works until the book says that it is over, then gets everything once more, and leaves nothing.
pub async fn work() {
    let mut worker = Worker::new().await;
    while worker.book.ask("next") == "on" {
        if let Err(error) = worker.once().await {
            worker.tell(&error);
            sleep(20 * MILLISECOND).await;
        }
    }
    for name in NAMES {
        while let Err(error) = worker.get_in(name).await {
            worker.tell(&error);
            sleep(20 * MILLISECOND).await;
        }
    }
    if let Some(session) = worker.session.take()
        && let Err(error) = session.close().await
    {
        worker.tell(&error);
    }
    worker.book.say("ended");
}

/// What is held, in either way.
enum Held {
    Lock(LockGuard),
    Lead(Leadership),
}

impl Deref for Held {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard,
            Self::Lead(leadership) => leadership,
        }
    }
}

struct Worker {
    client: Client,
    session: Option<Session>,
    book: Line,
    rng: Rng,
}

impl Worker {
    async fn new() -> Self {
        let endpoints: Vec<_> = var("ENDPOINTS")
            .unwrap()
            .split(',')
            .map(str::to_owned)
            .collect();
        Self {
            client: connect(&endpoints).await,
            session: None,
            book: Line::to(&var("BOOK").unwrap(), &var("WORKER").unwrap()),
            rng: Rng::new(),
        }
    }

    async fn session(&mut self) -> Result<Session, Error> {
        if let Some(session) = self.session.take_if(|session| session.is_certain()) {
            return Ok(self.session.insert(session).clone());
        }
        let opened = Session::builder(self.client.clone())
            .ttl(TTL)
            .open()
            .await?;
        Ok(self.session.insert(opened).clone())
    }

    async fn once(&mut self) -> Result<(), Error> {
        let session = self.session().await?;
        let name = NAMES[self.rng.usize(..NAMES.len())];
        let limit = self.rng.u32(..6_000) * MILLISECOND;
        let mutex = Mutex::new(&session, name)?;
        let held = match self.rng.u8(..10) {
            ..4 => timeout(limit, mutex.lock())
                .await
                .ok()
                .transpose()?
                .map(Held::Lock),
            4..6 => Some(Held::Lock(mutex.lock_within(limit).await?)),
            6 => mutex.try_lock().await?.ok().map(Held::Lock),
            _ => {
                let campaign = Election::new(&session, name)?.campaign("chaos");
                let led = timeout(limit, campaign).await.ok().transpose()?;
                led.map(Held::Lead)
            }
        };
        if let Some(held) = held {
            self.hold(&session, held).await?;
        }
        sleep(self.rng.u32(..20) * MILLISECOND).await;
        Ok(())
    }

    async fn hold(&mut self, session: &Session, held: Held) -> Result<(), Error> {
        let (longest, careless) = (
            [5, 50, 500, 5_000][self.rng.usize(..4)],
            self.rng.u8(..5) == 0,
        );
        let time = self.rng.u32(..=longest) * MILLISECOND;
        if careless {
            // It does not ask whether it still holds, as nobody can between asking and writing.
            self.write(session, &held, time).await;
        } else if let Err(lost) = held.run_until_lost(self.write(session, &held, time)).await {
            return Err(lost.into());
        }
        if self.rng.u8(..8) == 0 {
            // Dropped: given up in the background.
            return Ok(());
        }
        match held {
            Held::Lock(guard) => guard.release().await,
            Held::Lead(leadership) => leadership.resign().await,
        }
    }

    /// Adds one to what the resource holds, slowly.
    async fn write(&mut self, session: &Session, hold: &Hold, time: Duration) {
        let (name, token, lease) = (hold.name(), hold.token(), session.lease_id());
        let begun = Instant::now();
        let mut read = None;
        loop {
            let before = clock();
            if hold.is_held() {
                self.book
                    .say(format!("held {name} {token} {lease} {before}"));
            }
            if read.is_none() {
                let answer = self.book.ask(format!("read {name} {token}"));
                let Ok(value) = answer.parse::<u64>() else {
                    return;
                };
                read = Some(value);
            }
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(left.min(10 * MILLISECOND)).await;
        }
        let value = read.expect("it was read") + 1;
        self.book.ask(format!("write {name} {token} {value}"));
    }

    /// Nothing goes wrong any more: everybody has its turn.
    async fn get_in(&mut self, name: &str) -> Result<(), Error> {
        let session = self.session().await?;
        let guard = Mutex::new(&session, name)?.lock().await?;
        self.write(&session, &guard, MILLISECOND).await;
        guard.release().await
    }

    fn tell(&mut self, error: &Error) {
        let cause = match error {
            Error::TimedOut { .. } => return,
            Error::Lost(Lost::Expired) => "expired",
            Error::Lost(Lost::LeaseGone) => "lease-gone",
            Error::Lost(Lost::KeyDeleted) => "key-deleted",
            error => return self.book.say(error),
        };
        self.book.say(format!("lost {cause}"));
    }
}

/// The line to the book, on which nothing goes wrong. It blocks, so that dropped work leaves no half of a line.
struct Line {
    book: BufReader<TcpStream>,
}

impl Line {
    fn to(address: &str, worker: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the book listens");
        stream.set_nodelay(true).expect("a socket");
        let mut line = Self {
            book: BufReader::new(stream),
        };
        line.say(worker);
        line
    }

    fn say(&mut self, line: impl Display) {
        let line = format!("{line}\n");
        let written = self.book.get_mut().write_all(line.as_bytes());
        written.expect("the book is open");
    }

    fn ask(&mut self, line: impl Display) -> String {
        self.say(line);
        let mut answer = String::new();
        self.book.read_line(&mut answer).expect("the book answers");
        answer.trim_end().to_owned()
    }
}
