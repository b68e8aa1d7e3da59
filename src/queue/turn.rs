//! Getting a turn: by waiting in line, or by trying once.

use super::breaking::why_gone;
use super::hold::Hold;
use super::place::{How, Joining, Place, join};
use super::sight::Waits;
use super::view::list;
use super::wait::{is_alone, look, until_first};
use crate::error::Result;
use crate::etcd::{Look, Standing};
use crate::key::Name;
use crate::session::Session;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

/// Joins the line of `name` with `value` and waits for the turn. Dropping this leaves the line.
pub(crate) async fn wait(session: Session, name: Name, value: Vec<u8>) -> Result<Hold> {
    let waits = Waits::begin(session.core(), &name);
    let stood = stand(session, name, value, &waits);
    let turn = stood.instrument(waits.span().clone()).await;
    waits.over(turn)
}

/// As [`wait()`], until `deadline`: nothing if it has passed.
pub(crate) async fn wait_until(
    deadline: Instant,
    session: Session,
    name: Name,
    value: Vec<u8>,
) -> Option<Result<Hold>> {
    let waits = Waits::begin(session.core(), &name);
    let stood = stand(session, name, value, &waits);
    let turn = timeout_at(deadline, stood.instrument(waits.span().clone())).await;
    if let Ok(turn) = turn {
        Some(waits.over(turn))
    } else {
        waits.timed_out();
        None
    }
}

async fn stand(session: Session, name: Name, value: Vec<u8>, waits: &Waits) -> Result<Place> {
    let Joining::Stands(place, before) = join(&session, &name, value, How::Line).await? else {
        unreachable!("only a try is refused a place");
    };
    waits.joined(&place);
    if !before.as_ref().is_some_and(|look| is_alone(look, &place)) {
        // Boxed, as it is large and most locks are free.
        Box::pin(until_first(&place, before, waits.span())).await?;
    }
    Ok(place)
}

/// Takes the turn if nobody stands in the line; else tells who is first.
pub(crate) async fn try_once(
    session: Session,
    name: Name,
    value: Vec<u8>,
) -> Result<Result<Hold, Standing>> {
    let waits = Waits::begin(session.core(), &name);
    let tried = attempt(session, name, value, &waits);
    match tried.instrument(waits.span().clone()).await {
        Ok(Ok(place)) => waits.over(Ok(place)).map(Ok),
        Ok(Err(first)) => {
            waits.busy(&first);
            Ok(Err(first))
        }
        Err(error) => {
            waits.failed(&error);
            Err(error)
        }
    }
}

type Tried = Result<Result<Place, Standing>>;

async fn attempt(session: Session, name: Name, value: Vec<u8>, waits: &Waits) -> Tried {
    match join(&session, &name, value.clone(), How::Try).await? {
        Joining::Stands(place, before) => {
            waits.joined(&place);
            let first = first_of(&place, before).await?;
            Ok(first.map_or(Ok(place), Err))
        }
        Joining::Busy(Some(first)) if name.is_in_line(&first.key) => Ok(Err(first)),
        Joining::Busy(_) => try_among_nested(&session, &name, value).await,
    }
}

/// A try where the oldest key belongs to another lock, below this name: there is no compare for
/// "nobody but those". If nobody is in line, joins, looks, and leaves if it is not first.
async fn try_among_nested(session: &Session, name: &Name, value: Vec<u8>) -> Tried {
    if let Some(first) = list(session.core(), name).await?.into_iter().next() {
        return Ok(Err(first));
    }
    let Joining::Stands(mut place, before) = join(session, name, value, How::Line).await? else {
        unreachable!("only a try is refused a place");
    };
    match first_of(&place, before).await? {
        None => Ok(Ok(place)),
        Some(first) => {
            place.leave().await?;
            Ok(Err(first))
        }
    }
}

/// Who is first in line, if it is not this place. An error if its key is gone: nobody has a turn
/// who has not seen it alive then.
async fn first_of(place: &Place, before: Option<Look>) -> Result<Option<Standing>> {
    let alone = match before {
        Some(before) if !before.more => is_alone(&before, place),
        _ => look(place).await?.is_empty(),
    };
    if alone {
        return Ok(None);
    }
    let core = place.session.core();
    let own = (place.revision, place.key.as_bytes());
    match list(core, &place.name).await?.into_iter().next() {
        Some(first) if (first.revision, &*first.key) == own => Ok(None),
        None => Err(why_gone(core, &place.key).await.into()),
        first => Ok(first),
    }
}
