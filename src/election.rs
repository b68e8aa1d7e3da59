//! The door to an election.

use crate::error::Result;
use crate::etcd::{Guarded, Standing};
use crate::fencing::FencingToken;
use crate::key::Name;
use crate::observer::Observer;
use crate::queue::{self, Hold};
use crate::session::Session;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;

/// An election of at most one leader at a time, across processes, machines and languages.
///
/// Candidates stand in the same kind of line as those who wait for a
/// [`Mutex`](crate::Mutex), and the first in it leads; a lock and an election of one name share
/// one line. The value of a candidate's key is what it wants to be known by, an address for
/// example. The Go client's `concurrency.Election`, `etcdctl elect` and jetcd take part.
///
/// For a service that leads, stops on loss and campaigns again, there is
/// [`Leading`](crate::scheduler::Leading), which leaves no step to forget.
///
/// # Examples
///
/// ```no_run
/// use etcd_lock::{Election, Session};
///
/// # async fn example(session: Session) -> Result<(), Box<dyn std::error::Error>> {
/// let election = Election::new(&session, "services/billing")?;
/// let leadership = election.campaign("10.0.0.7:8080").await?;
/// leadership.run_until_lost(async { /* lead */ }).await?;
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Election {
    session: Session,
    name: Name,
}

/// Boxed, so that it borrows nothing of the value either.
type Campaign = Pin<Box<dyn Future<Output = Result<Leadership>> + Send>>;

impl Election {
    /// Names an election, to take part in through `session`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the name is empty or ends in `/`.
    pub fn new(session: &Session, name: &str) -> Result<Self> {
        let name = Name::new(name)?;
        let session = session.clone();
        Ok(Self { session, name })
    }

    /// Gives the election's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Stands as a candidate with `value` and waits to lead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the candidacy, even if its request is in flight or it has
    /// just won: the key is removed in the background.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub fn campaign(&self, value: impl Into<Vec<u8>>) -> Campaign {
        let value = value.into();
        Box::pin(campaign(self.session.clone(), self.name.clone(), value))
    }

    /// Tells who leads now, as of a linearizable read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the session ends,
    /// [`Error::Etcd`](crate::Error::Etcd) if etcd refuses.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let core = self.session.core();
        let first = || core.etcd.first(&self.name);
        let first = core.ask("read the leader", first).await?.value;
        Ok(first.map(Leader::from))
    }

    /// Follows who leads; see [`Observer`].
    ///
    /// It goes on when this session has ended.
    pub fn observe(&self) -> Observer {
        Observer::of(self.session.core().etcd.client(), self.name.clone())
    }
}

/// Who leads, by what is in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The key; what is not UTF-8 in it is replaced.
    pub key: String,
    /// What the leader campaigned with or proclaimed last.
    pub value: Vec<u8>,
    /// The token that the leadership is fenced with.
    pub token: FencingToken,
    /// The lease that the key hangs on.
    pub lease: i64,
}

impl From<Standing> for Leader {
    fn from(standing: Standing) -> Self {
        Self {
            key: String::from_utf8_lossy(&standing.key).into_owned(),
            value: standing.value,
            token: FencingToken::of(standing.revision),
            lease: standing.lease,
        }
    }
}

/// An election that is won, until this is resigned, dropped or lost.
///
/// Everything a hold can be asked is on [`Hold`], to which this dereferences: the
/// [token](Hold::token), whether it [is held](Hold::is_held), how it was [lost](Hold::lost), and
/// [work that stops on loss](Hold::run_until_lost).
///
/// Dropping it resigns in the background, in any place: it does not block, panic or need a
/// runtime. [`resign`](Self::resign) tells you when it is done.
#[must_use = "dropping a leadership at once resigns; bind it to a name, not to `_`"]
#[derive(Debug)]
pub struct Leadership {
    hold: Hold,
    /// The revision at which our key was last put, as far as we know; one proclaims at a time.
    modified: tokio::sync::Mutex<i64>,
}

impl Leadership {
    /// Changes the value that others see of this leader; observers are told.
    ///
    /// The order of two proclamations is kept, whatever is retried.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether the value was, or will be, changed; the next
    /// proclamation settles it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the leadership is lost: nothing was written.
    /// [`Error::Etcd`](crate::Error::Etcd) if etcd refuses.
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<()> {
        let value = value.into();
        let mut modified = self.modified.lock().await;
        loop {
            self.hold.certain()?;
            match self.hold.proclaim(*modified, &value).await? {
                Guarded::Written(revision) => {
                    *modified = revision;
                    return Ok(());
                }
                // An earlier attempt of this or of a dropped call, or somebody else's put.
                Guarded::Refused(Some(now)) if now.revision == self.hold.revision() => {
                    *modified = now.modified;
                    if now.value == value {
                        return Ok(());
                    }
                }
                Guarded::Refused(_) | Guarded::NoLease => {
                    return Err(self.hold.key_is_gone().await.into());
                }
            }
        }
    }

    /// Gives the leadership up and waits until etcd has confirmed it.
    ///
    /// It counts as not held *before* the request goes out.
    ///
    /// # Cancel safety
    ///
    /// It is given up with the first poll; if the future is dropped, the key is removed in the
    /// background.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    pub async fn resign(self) -> Result<()> {
        self.hold.release().await
    }
}

impl Deref for Leadership {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

pub(crate) async fn campaign(session: Session, name: Name, value: Vec<u8>) -> Result<Leadership> {
    let hold = queue::wait(session, name, value).await?;
    let modified = tokio::sync::Mutex::new(hold.revision());
    Ok(Leadership { hold, modified })
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .field("session", &self.session)
            .finish()
    }
}
