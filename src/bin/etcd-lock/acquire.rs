//! From the arguments to a hold: a session, and the wait for the turn.

use crate::args;
use crate::exit::{self, Failure};
use crate::print;
use crate::signals::Signals;
use etcd_lock::etcd_client::{self, Client};
use etcd_lock::{
    Election, Error, Hold, Leadership, LockGuard, Lost, Mutex, Session, SessionBuilder,
};
use std::ops::Deref;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Between two tries to open a session again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long it takes at most to say who is in the way, and to clean up after a wait or a loss:
/// what is left then goes with the lease.
const BRIEFLY: Duration = Duration::from_secs(2);

/// A lock or a leadership.
pub(crate) enum Turn {
    Lock(LockGuard),
    Lead(Leadership),
}

impl Deref for Turn {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard,
            Self::Lead(leadership) => leadership,
        }
    }
}

impl Turn {
    pub(crate) async fn give_up(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Lead(leadership) => leadership.resign().await,
        }
    }
}

/// How long to wait for the turn.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    Any,
    Until(Instant, Duration),
    None,
}

impl Patience {
    pub(crate) fn new(wait: Option<Duration>, skip: bool) -> Self {
        match wait {
            _ if skip => Self::None,
            Some(wait) => Self::Until(Instant::now() + wait.min(A_LIFETIME), wait),
            None => Self::Any,
        }
    }
}

/// A limit that nobody lives to see.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What is wanted.
pub(crate) struct Wish<'a> {
    pub(crate) name: &'a str,
    /// Of a candidate; none for a lock.
    pub(crate) value: Option<String>,
    pub(crate) patience: Patience,
}

/// How sessions are to be.
pub(crate) struct Sessions {
    client: Client,
    label: Option<String>,
    ttl: Duration,
    pub(crate) grace: Duration,
}

impl Sessions {
    pub(crate) fn new(
        client: Client,
        lease: &args::Lease,
        label: Option<String>,
    ) -> Result<Self, Failure> {
        let ttl = lease.ttl;
        let grace = lease.grace.unwrap_or(ttl / 5);
        if grace > ttl * 2 / 5 {
            let text = format!(
                "--grace {grace:?} does not suit --ttl {ttl:?}; give at most {:?}, or a longer --ttl",
                ttl * 2 / 5
            );
            return Err(Failure::failed(text));
        }
        Ok(Self {
            client,
            label,
            ttl,
            grace,
        })
    }

    /// Opens one that gives itself up so early that there is time for TERM and KILL.
    async fn open(&self) -> Result<Session, Error> {
        let session = self.builder(self.ttl).open().await?;
        if session.ttl() <= self.ttl {
            return Ok(session);
        }
        // etcd grants more than that at least; the margin has to suit what it grants.
        let ttl = session.ttl();
        session.close().await?;
        self.builder(ttl).open().await
    }

    fn builder(&self, ttl: Duration) -> SessionBuilder {
        let sessions = Session::builder(self.client.clone());
        let sessions = sessions.ttl(ttl).margin(ttl / 10 + self.grace);
        match &self.label {
            Some(label) => sessions.label(label),
            None => sessions,
        }
    }
}

/// Waits for the turn.
pub(crate) async fn acquire(
    sessions: &Sessions,
    wish: &Wish<'_>,
    signals: &mut Signals,
) -> Result<(Session, Turn), Failure> {
    let mut session = tokio::select! {
        biased;
        signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
        opened = sessions.open() => opened?,
    };
    loop {
        let got = tokio::select! {
            biased;
            signal = signals.next() => Err(Failure::by_signal(signal.as_raw())),
            got = once(&session, wish) => got,
        };
        let failure = match got {
            Ok(Ok(turn)) => return Ok((session, turn)),
            // Nothing was held yet, so nothing is lost but the place in line.
            Ok(Err(Lost::Expired | Lost::LeaseGone))
                if !matches!(wish.patience, Patience::None) =>
            {
                tracing::warn!(name = wish.name, "the place in line is lost; waiting anew");
                session = reopen(sessions, wish, signals).await?;
                continue;
            }
            Ok(Err(lost)) => Failure::from(Error::Lost(lost)),
            Err(failure) => failure,
        };
        // The key of the wait goes with it.
        end(&session).await;
        return Err(failure);
    }
}

/// One wait in line, with one session.
async fn once(session: &Session, wish: &Wish<'_>) -> Result<Result<Turn, Lost>, Failure> {
    let got = match wish.patience {
        Patience::Any => wait(session, wish).await,
        Patience::Until(deadline, limit) => match timeout_at(deadline, wait(session, wish)).await {
            Ok(got) => got,
            Err(_elapsed) => return Err(too_late(session, wish.name, limit).await),
        },
        Patience::None => match Mutex::new(session, wish.name)?.try_lock().await {
            Ok(Ok(guard)) => Ok(Turn::Lock(guard)),
            Ok(Err(busy)) => {
                let text = format!("{:?} is {busy}", wish.name);
                return Err(Failure::new(exit::NOT_HAD, text));
            }
            Err(error) => Err(error),
        },
    };
    match got {
        Ok(turn) => Ok(Ok(turn)),
        Err(Error::Lost(lost)) => Ok(Err(lost)),
        Err(error) => Err(error.into()),
    }
}

async fn wait(session: &Session, wish: &Wish<'_>) -> Result<Turn, Error> {
    match &wish.value {
        None => Mutex::new(session, wish.name)?.lock().await.map(Turn::Lock),
        Some(value) => {
            let campaign = Election::new(session, wish.name)?.campaign(value.as_bytes());
            campaign.await.map(Turn::Lead)
        }
    }
}

async fn too_late(session: &Session, name: &str, limit: Duration) -> Failure {
    let mut text = format!("no turn on {name:?} within {limit:?}");
    if let Ok(mutex) = Mutex::new(session, name)
        && let Ok(Ok(line)) = timeout(BRIEFLY, mutex.queue()).await
        && let Some(holder) = line.first()
    {
        text = format!(
            "{text}; held by {} ({})",
            print::visible(&holder.label),
            holder.key
        );
    }
    Failure::new(exit::NOT_HAD, text)
}

/// Goes on trying: etcd was there before.
async fn reopen(
    sessions: &Sessions,
    wish: &Wish<'_>,
    signals: &mut Signals,
) -> Result<Session, Failure> {
    let opening = async {
        loop {
            match sessions.open().await {
                Ok(session) => return Ok(session),
                Err(error) if is_final(&error) => return Err(Failure::from(error)),
                Err(error) => tracing::warn!(%error, "trying again"),
            }
            sleep(PAUSE).await;
        }
    };
    let too_late = async {
        match wish.patience {
            Patience::Until(deadline, limit) => {
                tokio::time::sleep_until(deadline).await;
                limit
            }
            Patience::Any | Patience::None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        signal = signals.next() => Err(Failure::by_signal(signal.as_raw())),
        limit = too_late => {
            let text = format!("no turn on {:?} within {limit:?}; etcd does not answer", wish.name);
            Err(Failure::new(exit::NOT_HAD, text))
        }
        opened = opening => opened,
    }
}

/// Whether etcd refuses us, or the request.
fn is_final(error: &Error) -> bool {
    /// Invalid argument, permission denied, unauthenticated: as gRPC numbers them.
    const REFUSALS: [i32; 3] = [3, 7, 16];
    match error {
        Error::Etcd {
            source: etcd_client::Error::GRpcStatus(status),
            ..
        } => REFUSALS.contains(&(status.code() as i32)),
        Error::Invalid { .. } => true,
        _ => false,
    }
}

/// Ends a session that holds nothing any more; what is not confirmed in time goes with the lease.
pub(crate) async fn end(session: &Session) {
    if let Ok(Err(error)) = timeout(BRIEFLY, session.close()).await {
        tracing::warn!(%error, "not confirmed that the session is over");
    }
}
