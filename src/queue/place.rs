//! One key in a line and who answers for it.
//!
//! From before its key can exist until it is certainly gone, a place has an owner: this value
//! while it lives; when it is dropped, the janitor, which gets the very request that is in
//! flight; and when the session ends, the lease.

use crate::error::{Error, Result};
use crate::etcd::{Join, Joined, Look, Standing, Tried, Write};
use crate::key::Name;
use crate::session::{Answer, Core, NEAR, Number, Session, remove};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

/// A place in the line of a name, on a key of its own.
pub(crate) struct Place {
    pub(crate) session: Session,
    pub(crate) name: Name,
    pub(crate) key: Arc<str>,
    /// The create revision of the key.
    pub(crate) revision: i64,
    /// Answers for the key; taken when nothing is left to answer for.
    number: Option<Number>,
}

/// What became of joining.
pub(super) enum Joining {
    /// The key stands; who stands before it, if the answer told.
    Stands(Place, Option<Look>),
    /// Somebody else stands there, or did a moment ago; no key was put.
    Busy(Option<Standing>),
}

/// How to join.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// Behind whoever is there.
    Line,
    /// Only if nobody is there.
    Try,
}

/// Puts a key of its own with `value` into the line of `name`. Dropping this leaves the line.
pub(super) async fn join(
    session: &Session,
    name: &Name,
    value: Vec<u8>,
    how: How,
) -> Result<Joining> {
    let core = session.core();
    core.certain()?;
    let number = Number::take(core, name);
    let join = Join {
        name: name.clone(),
        key: number.key().into(),
        value,
        lease: core.lease,
    };
    let key = join.key.clone();
    let request = InFlight {
        request: Some(Box::pin(send(core.clone(), number, join, how))),
        key: &key,
        core,
    };
    Ok(
        match request.answer().await.map_err(|error| error.on(name))? {
            (number, Sent::Stands { revision, before }) => {
                let place = Place {
                    session: session.clone(),
                    name: name.clone(),
                    key,
                    revision,
                    number: Some(number),
                };
                Joining::Stands(place, before)
            }
            (_, Sent::Busy(first)) => Joining::Busy(first),
        },
    )
}

/// The request of a join. Once something of it is sent, it is brought to its outcome, here or by
/// the janitor.
struct InFlight<'a> {
    request: Option<Sending>,
    key: &'a Arc<str>,
    core: &'a Arc<Core>,
}

type Sending = Pin<Box<dyn Future<Output = Result<(Number, Sent)>> + Send>>;

enum Sent {
    Stands { revision: i64, before: Option<Look> },
    Busy(Option<Standing>),
}

impl InFlight<'_> {
    /// Waits for the outcome. If a key stands then, the caller answers for it.
    async fn answer(mut self) -> Result<(Number, Sent)> {
        poll_fn(|cx| {
            // Taken out meanwhile: one that panics is not for the janitor to go on with.
            let Some(mut request) = self.request.take() else {
                unreachable!("it is put back until it is answered");
            };
            let answer = request.as_mut().poll(cx);
            if answer.is_pending() {
                self.request = Some(request);
            }
            answer
        })
        .await
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        if self.core.writes.withdraw(self.key) {
            return;
        }
        let core = self.core.clone();
        self.core.debts.owe(async move {
            if let Ok((number, Sent::Stands { revision, .. })) = request.await {
                remove(&core, number.key().into(), revision).await;
            }
        });
    }
}

impl Place {
    /// Deletes the key: `Some(false)` if it was gone before, `None` if that is not known, since
    /// an earlier attempt of the delete may have been carried out.
    ///
    /// What is left to do then, or if this is dropped before the answer, is done when the place is
    /// dropped: by the janitor.
    pub(crate) async fn leave(&mut self) -> Result<Option<bool>> {
        let core = self.session.core().clone();
        let (key, revision) = (self.key.clone(), self.revision);
        let leave = Write::Leave { key, revision };
        match core.write_within_ttl("delete the key", leave).await {
            Some(Ok(answer)) => {
                let left = answer.value.left();
                if left {
                    self.number = None;
                }
                let known = left || !answer.doubtful;
                Ok(known.then_some(left))
            }
            Some(Err(error)) => Err(error),
            None => Err(Error::Unconfirmed {
                what: format!("the end of key {:?}", self.key),
                why: "etcd does not answer; deleting goes on in the background".to_owned(),
                within: core.ttl,
            }),
        }
    }

    /// The key is gone, or was deleted along with other things: nothing is left to answer for.
    pub(crate) fn settle(mut self) {
        self.number = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(number) = self.number.take() else {
            return;
        };
        let (core, revision) = (self.session.core().clone(), self.revision);
        self.session.core().debts.owe(async move {
            remove(&core, number.key().into(), revision).await;
        });
    }
}

/// Sends the join until it is answered. After doubt the number is not used again.
///
/// There is one await for all that may be sent, which keeps the future below the kilobyte above which
/// allocating is slow.
async fn send(core: Arc<Core>, mut number: Number, join: Join, how: How) -> Result<(Number, Sent)> {
    // A session that follows the line learns who stands before it from its watch.
    let follows = core.lines.follows(&join.name);
    let (doing, mut tries) = match how {
        How::Line => ("join the line", !follows && core.quiet.take(&join.name)),
        How::Try => ("try to lock", true),
    };
    loop {
        let sends = join.clone();
        let write = if tries {
            let tells = matches!(how, How::Try);
            Write::Try { join: sends, tells }
        } else {
            let limit = (!follows).then_some(i64::from(NEAR));
            Write::Join { join: sends, limit }
        };
        let answer = known(&mut number, core.write(doing, write).await)?;
        let sent = if tries {
            tried(&core, &join, answer.tried())?
        } else {
            joined(&core, &join, answer.joined().map_err(odd(doing))?)?
        };
        match (how, sent) {
            (How::Line, Sent::Busy(_)) => tries = false,
            (_, sent) => return Ok((number, sent)),
        }
    }
}

fn joined(core: &Core, join: &Join, joined: Joined) -> Result<Sent> {
    match joined {
        Joined::Now { revision, before } => {
            if before.as_ref().is_some_and(Look::is_empty) {
                core.quiet.found(&join.name);
            }
            Ok(Sent::Stands { revision, before })
        }
        Joined::Earlier(standing) => ours(core, &join.key, &standing),
    }
}

fn tried(core: &Core, join: &Join, tried: Tried) -> Result<Sent> {
    match tried {
        Tried::Alone { revision } => {
            core.quiet.found(&join.name);
            let before = Some(Look::nobody());
            Ok(Sent::Stands { revision, before })
        }
        Tried::Busy(Some(first)) if first.key == join.key.as_bytes() => {
            ours(core, &join.key, &first)
        }
        Tried::Busy(first) => Ok(Sent::Busy(first)),
    }
}

/// An answer that no etcd gives.
fn odd(doing: &'static str) -> impl Fn(etcd_client::Error) -> Error {
    move |source| Error::etcd(doing, source)
}

/// Takes note if a put may be carried out later, or may have been without our knowing.
fn known<T>(number: &mut Number, answer: Result<Answer<T>>) -> Result<T> {
    if answer.as_ref().map_or(true, |answer| answer.doubtful) {
        number.doubt();
    }
    answer.map(|answer| answer.value)
}

/// A key under our very name: put by an earlier attempt, unless it is not on our lease.
fn ours(core: &Core, key: &str, standing: &Standing) -> Result<Sent> {
    if standing.lease == core.lease {
        return Ok(Sent::Stands {
            revision: standing.revision,
            before: None,
        });
    }
    let why = format!("{key:?} was put by somebody else, not on this session's lease; delete it");
    Err(Error::invalid("key", why))
}
