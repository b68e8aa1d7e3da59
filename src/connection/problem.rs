//! Why a member did not serve a request.

use super::exchange::{Answer, Request};
use std::error::Error;
use std::fmt;
use tonic::Status;
use tower::BoxError;

/// What the text of an error has if the request was certainly not sent.
/// [`classify`](crate::etcd::classify) goes by it.
pub(crate) const NOT_SENT: &str = "not sent to etcd";

pub(super) enum Problem {
    /// Nothing was sent, nor will it be.
    NotSent(Box<Request>, Status),
    /// What was sent may have been carried out.
    Broken(BoxError),
    /// It is the request that is wrong, and not the member.
    Unfit(Status),
    /// An answer, to the effect that this member cannot serve now.
    Answered(Box<Answer>),
}

impl Problem {
    pub(super) fn not_sent(request: Request, why: &str) -> Self {
        let status = Status::unavailable(format!("{NOT_SENT}: {why}"));
        Self::NotSent(Box::new(request), status)
    }
}

/// An error with its causes, which etcd-client's errors do not show.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "broken off: {error}"),
            Self::NotSent(_, status) | Self::Unfit(status) => f.write_str(status.message()),
            Self::Answered(_) => f.write_str("it says that it is unavailable"),
        }
    }
}
