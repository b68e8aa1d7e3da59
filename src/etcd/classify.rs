//! What an error of etcd-client means to us. The codes mislead (a killed server is
//! `Unknown`, a client's timeout `Cancelled`), so some texts decide before the code does.

use crate::connection::NOT_SENT as NOT_SENT_TEXT;
use etcd_client::Error;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Try again. If `doubtful`, the request may have been carried out or may still be.
    Retry { doubtful: bool },
    /// The authentication token is too old: get another, then try again.
    Refresh,
    /// etcd does not know the lease; to be confirmed, old servers say so right after a grant.
    LeaseGone,
    /// The chosen lease id is in use: by an earlier attempt of ours, most likely.
    LeaseExists,
    /// A transaction of more operations than this etcd takes.
    TooManyOperations,
    /// Another try would say the same.
    Fatal,
}

const RETRY: Verdict = Verdict::Retry { doubtful: true };
const NOT_SENT: Verdict = Verdict::Retry { doubtful: false };

/// Texts that decide whatever the code is; the first that fits counts.
const BY_TEXT: [(&str, Verdict); 14] = [
    ("lease not found", Verdict::LeaseGone),
    ("lease already exists", Verdict::LeaseExists),
    ("revision of auth store is old", Verdict::Refresh),
    ("invalid auth token", Verdict::Refresh),
    ("too many requests", NOT_SENT),
    ("too many operations", Verdict::TooManyOperations),
    ("not a primary lessor", NOT_SENT),
    ("no leader", NOT_SENT),
    ("tcp connect error", NOT_SENT),
    // The runtime that made the client is gone.
    ("Service was not ready", Verdict::Fatal),
    (NOT_SENT_TEXT, NOT_SENT),
    ("database space exceeded", Verdict::Fatal),
    // By code it is like "too many requests": `ResourceExhausted`.
    ("message larger than max", Verdict::Fatal),
    // A stream answered that it was given up by the server, which may be just restarting.
    ("etcdserver: server stopped", RETRY),
];

/// gRPC codes that another try does not cure: `InvalidArgument`, `NotFound`, `AlreadyExists`,
/// `PermissionDenied`, `FailedPrecondition`, `OutOfRange`, `Unimplemented`, `DataLoss`,
/// `Unauthenticated`. tonic's `Code` cannot be named without depending on tonic.
const FATAL_CODES: [i32; 9] = [3, 5, 6, 7, 9, 11, 12, 15, 16];

/// As above: tonic's `Code` has no name here.
const PERMISSION_DENIED: i32 = 7;
const OUT_OF_RANGE: i32 = 11;

/// What a request that nobody answers ends with.
pub(crate) fn silence() -> Error {
    Error::IoError(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        "no member of the cluster answered in time",
    ))
}

pub(crate) fn classify(error: &Error) -> Verdict {
    if let Some(verdict) = classify_text(&error.to_string()) {
        return verdict;
    }
    match error {
        Error::GRpcStatus(status) if FATAL_CODES.contains(&i32::from(status.code())) => {
            Verdict::Fatal
        }
        Error::GRpcStatus(_)
        | Error::TransportError(_)
        | Error::IoError(_)
        | Error::WatchError(_)
        | Error::LeaseKeepAliveError(_) => RETRY,
        // Bad arguments, addresses and the like. (The enum's variants depend on features.)
        _ => Verdict::Fatal,
    }
}

/// The same of a text alone, if it tells: of the reason that etcd gives for refusing a watch.
pub(crate) fn classify_text(text: &str) -> Option<Verdict> {
    let known = BY_TEXT.iter().find(|(part, _)| text.contains(part));
    known.map(|(_, verdict)| *verdict)
}

/// Whether a request that ended so was certainly not carried out, and will not be.
pub(crate) fn is_not_carried_out(error: &Error) -> bool {
    match classify(error) {
        Verdict::Retry { doubtful } => !doubtful,
        Verdict::Fatal => !is_about_an_answer(error),
        Verdict::Refresh
        | Verdict::LeaseGone
        | Verdict::LeaseExists
        | Verdict::TooManyOperations => true,
    }
}

/// An answer that came and was too large for the client is no refusal by etcd, though it has the
/// code of one.
fn is_about_an_answer(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if i32::from(status.code()) == OUT_OF_RANGE && !status.message().starts_with("etcdserver"))
}

/// Whether the user is known and may not do this.
pub(crate) fn is_denied(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if i32::from(status.code()) == PERMISSION_DENIED)
}
