//! What can go wrong, in words that say what to do.

use crate::key::Name;
use std::time::Duration;

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything a call of this crate can fail with.
///
/// What can be tried again *is* tried again inside the call, as long as its limit and the session
/// allow. A loop of your own is needed only to open a session: the next one, or the first while
/// etcd is away for longer than [`Session::open`](crate::Session::open) tries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, TTL, margin or key that cannot work; nothing was sent to etcd.
    #[error("{what} {why}")]
    #[non_exhaustive]
    Invalid {
        /// Which argument it is.
        what: &'static str,
        /// What is wrong with it and what to give instead.
        why: String,
    },

    /// The session, the place in line or the hold is gone. If
    /// [`Session::is_certain`](crate::Session::is_certain) is false it was the session: open a new
    /// one. If not, the key was deleted by hand: lock again.
    #[error("{0}")]
    Lost(#[from] Lost),

    /// The turn did not come in time: [`lock_within`](crate::Mutex::lock_within) left the line.
    #[error("no turn on {name:?} within {limit:?}; its queue shows who holds it")]
    #[non_exhaustive]
    TimedOut {
        /// The lock's name.
        name: String,
        /// The limit that was given.
        limit: Duration,
    },

    /// etcd refused, or did not answer within the limit of the call.
    #[error("{}{doing}: {source}{}", on(name.as_deref()), hint(source))]
    #[non_exhaustive]
    Etcd {
        /// The name of the lock or election that it is about, if it is about one.
        name: Option<String>,
        /// What was being done.
        doing: &'static str,
        /// What etcd-client said.
        source: etcd_client::Error,
    },

    /// A transaction under a hold was sent and its answer was lost: it was carried out, or it was
    /// not. See [`GuardedTxn::commit`](crate::GuardedTxn::commit).
    #[error("unknown whether the transaction was carried out ({source}); {}", advice(*settled))]
    #[non_exhaustive]
    Unknown {
        /// What etcd-client said last.
        source: etcd_client::Error,
        /// Whether that is settled. If so, what was not carried out never will be: read what it
        /// was to write, and repeat it if that is not there. If not, it may yet be carried out,
        /// for as long as the keys of its holds stand.
        settled: bool,
    },

    /// What was to be removed may still be there; the lease takes it away in time.
    #[error("{what} is not confirmed to be gone ({why}); it goes by itself within {within:?}")]
    #[non_exhaustive]
    Unconfirmed {
        /// The key or the lease.
        what: String,
        /// Why it is not confirmed.
        why: String,
        /// When etcd will have removed it at the latest, if its cluster works.
        within: Duration,
    },
}

impl Error {
    pub(crate) fn invalid(what: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Invalid { what, why }
    }

    pub(crate) fn etcd(doing: &'static str, source: etcd_client::Error) -> Self {
        let name = None;
        Self::Etcd {
            name,
            doing,
            source,
        }
    }

    /// Says which lock or election it is about.
    pub(crate) fn on(mut self, about: &Name) -> Self {
        if let Self::Etcd { name, .. } = &mut self {
            *name = Some(about.as_str().to_owned());
        }
        self
    }
}

fn on(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("on {name:?}: "))
}

/// What to do about a transaction of which nothing is known.
fn advice(settled: bool) -> &'static str {
    if settled {
        "it is not carried out any more: read what it was to write before repeating it"
    } else {
        "it may yet be, for as long as the keys of its holds stand"
    }
}

/// Advice for errors of etcd whose own words give none.
fn hint(source: &etcd_client::Error) -> &'static str {
    let text = source.to_string();
    match () {
        () if text.contains("user name is empty") => {
            "; etcd wants authentication: connect with ConnectOptions::with_user"
        }
        () if text.contains("authentication failed") => "; check the user and the password",
        () if text.contains("permission denied") => {
            "; the etcd user needs read and write on the lock's prefix, and on what a transaction is about"
        }
        () if [
            "tcp connect error",
            "dns error",
            "no member of the cluster answered",
        ]
        .iter()
        .any(|part| text.contains(part)) =>
        {
            "; is etcd running at the client's endpoints?"
        }
        // With TLS 1.3, a server refuses a client's certificate only when the connection stands.
        () if text.contains("connection closed") || text.contains("transport error") => {
            "; is it an etcd that listens at the client's endpoints, and does it want TLS or a client certificate?"
        }
        () if text.contains("request is too large") || text.contains("larger than max") => {
            "; give a shorter name or value"
        }
        () if text.contains("too many operations in txn") => {
            "; etcd takes 128 operations and conditions a transaction, those for its holds included"
        }
        () if text.contains("duplicate key given in txn") => {
            "; a key can be put only once in a transaction"
        }
        () if text.contains("database space exceeded") => {
            "; compact, defragment and disarm the alarm"
        }
        () => "",
    }
}

/// How a session, a place in line or a hold was lost.
///
/// Every session, place and hold has one cause, the first, and keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// No renewal was answered for so long that the lease may have expired: etcd could not be
    /// reached, or this process stood still.
    #[error("lost: no renewal of the lease was answered in time, it may have expired")]
    Expired,
    /// etcd says that the lease does not exist: revoked by somebody, or expired.
    #[error("lost: the lease is gone, it was revoked or has expired")]
    LeaseGone,
    /// The hold was broken by an operator ([`Mutex::break_if`](crate::Mutex::break_if)).
    #[error("lost: broken by an operator")]
    Broken,
    /// The key was deleted by somebody else while the lease lives.
    #[error("lost: the key was deleted by somebody else")]
    KeyDeleted,
    /// The work under it reported no progress within the budget that it was given.
    #[error("lost: the work reported no progress within its budget")]
    Stalled,
    /// The session was closed, by [`Session::close`](crate::Session::close).
    #[error("lost: the session was closed; open a new one")]
    Closed,
}
