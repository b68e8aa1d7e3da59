//! How the command ends: its own exit codes, and what it says with them.

use etcd_lock::etcd_client;
use std::fmt;

/// Not had: busy, or no turn in time; of `break`, that hold is over.
pub(crate) const NOT_HAD: u8 = 124;
/// Lost while it was held or waited for.
pub(crate) const LOST: u8 = 123;
/// Wrong usage, or etcd cannot be reached or refuses.
pub(crate) const FAILED: u8 = 125;
/// CMD was found and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// CMD was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// What is said at the end of every help text.
pub(crate) const HELP: &str = "\
Exit codes:
  that of CMD, if it was run and the lock was held all the time; 128 + N if signal N ended it
  123  lost: the lock, the leadership or the place in line; CMD was stopped
  124  not had: busy, or no turn in time; of `break`: that hold is over, nothing was done
  125  wrong usage, or etcd cannot be reached or refuses
  126  CMD was found and cannot be run
  127  CMD was not found
  128 + N  signal N ended the wait";

/// An end that is not a success.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// One line; empty if there is nothing to say.
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl fmt::Display) -> Self {
        let text = text.to_string().trim_end().replace('\n', " ");
        Self { code, text }
    }

    /// Usage, or something that etcd or this machine refuses.
    pub(crate) fn failed(text: impl fmt::Display) -> Self {
        Self::new(FAILED, text)
    }

    /// A signal ended the wait: as a shell would say it of us.
    pub(crate) fn by_signal(signal: i32) -> Self {
        Self::new(of_signal(signal), "")
    }
}

impl From<etcd_lock::Error> for Failure {
    fn from(error: etcd_lock::Error) -> Self {
        match error {
            etcd_lock::Error::Lost(_) => Self::new(LOST, error),
            etcd_lock::Error::TimedOut { .. } => Self::new(NOT_HAD, error),
            etcd_lock::Error::Etcd { ref source, .. } => {
                let text = error.to_string();
                let text = text.replacen(&source.to_string(), &plain(source), 1);
                Self::failed(in_flags(&text))
            }
            error => Self::failed(error),
        }
    }
}

/// What etcd or the line to it has said, without where in the code that was.
pub(crate) fn plain(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
        error => error.to_string(),
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}

pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The library's advice is for programmers; who types has flags.
fn in_flags(text: &str) -> String {
    text.replace(
        "connect with ConnectOptions::with_user",
        "give --user and --password",
    )
    .replace("at the client's endpoints", "at --endpoints")
    .replace(
        "; check the user and the password",
        "; check --user and --password",
    )
}
