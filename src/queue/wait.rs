//! Waiting for the turn.
//!
//! Create revisions only grow, so the set of keys ahead of ours only shrinks. It is our turn
//! when it is empty, at a revision at which our own key exists.
//!
//! *Near*: the session follows the whole line in memory ([`Lines`]). It does so while one of its
//! waiters is among the first [`NEAR`], or at least one in [`NEAR`] of the line is its own; so few
//! sessions do it for one line. (One that follows already, goes on in a line that is not too long.)
//!
//! *Far*: any other waiter watches the key that is [`NEAR`] places ahead, and its own. When that one
//! goes, it is near, [`NEAR`] hand-overs before its turn, unless that one did not wait for its own; so
//! a release wakes few, however long the line is.
//!
//! Either watch is opened after the join and not beside it. To open the near one beside it brought nothing: from a
//! release right after the join, or up to 3 ms later, to the turn it took as long (370 us at the median, both), as a
//! release takes longer than to open the watch. And the first lock of a free name took 1.2 to 2 times as long.
//!
//! The order of watching, both ways: order the watch, wait until etcd has confirmed it, look (one
//! linearizable read), then follow. After a gap: wait until confirmed again, look. Besides, one
//! look per TTL, for servers and members that lose events.

use super::breaking::why_gone;
use super::place::Place;
use crate::error::{Error, Result};
use crate::etcd::{Look, Range, Read, Standing, is_denied};
use crate::session::{Ahead, Change, Event, Lines, NEAR, News};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tracing::Span;

/// How often a look is tried that etcd refuses.
const DENIED_PAUSE: Duration = Duration::from_secs(1);

/// Waits until nobody is ahead of `place`; `before` is what the join found, if it looked. The
/// span of the wait names who is directly ahead.
pub(super) async fn until_first(place: &Place, before: Option<Look>, span: &Span) -> Result<()> {
    let core = place.session.core();
    let mut ahead = Ahead::of(span);
    let first = async {
        if let Some(all) = before.as_ref().filter(|look| !look.more) {
            show(
                &mut ahead,
                all.keys.iter().filter(|other| is_ahead(other, place)),
            );
        }
        if before.is_some_and(|look| is_far(&look, place)) {
            Box::pin(until_near(place, &mut ahead)).await?;
        }
        loop {
            let own = (&place.key, place.revision);
            match Lines::wait(core, &place.name, own, ahead.clone()).await {
                News::Turn => return Ok(()),
                News::Far => Box::pin(until_near(place, &mut ahead)).await?,
                News::Gone => return Err(why_gone(core, &place.key).await.into()),
                // The look tells why, or that it was a passing trouble.
                News::Unreadable => drop(Box::pin(patiently(place, || look(place))).await?),
            }
        }
    };
    tokio::select! {
        biased;
        first = first => first,
        lost = core.over() => Err(lost.into()),
    }
}

/// Shows the youngest of those who are ahead.
fn show<'a>(ahead: &mut Ahead, others: impl Iterator<Item = &'a Standing>) {
    if ahead.is_seen()
        && let Some(youngest) = others.max_by_key(|other| (other.revision, &other.key))
    {
        ahead.is(&youngest.key);
    }
}

/// Whether a look says that nobody is ahead.
pub(super) fn is_alone(look: &Look, place: &Place) -> bool {
    !look.more && !look.keys.iter().any(|other| is_ahead(other, place))
}

/// Keys put in one transaction share a create revision; then the smaller key is first.
fn is_ahead(other: &Standing, place: &Place) -> bool {
    let ours = (place.revision, place.key.as_bytes());
    place.name.is_in_line(&other.key) && (other.revision, other.key.as_slice()) < ours
}

/// Whether the line is too long to be followed for those few of us who wait in it.
fn is_far(look: &Look, place: &Place) -> bool {
    let core = place.session.core();
    !core.lines.follows(&place.name) && look.count > Lines::long(core, &place.name)
}

/// Of those ahead, youngest first, the one to watch while it is far.
fn far_ahead(mut ahead: Vec<Standing>) -> Option<Standing> {
    let near = usize::from(NEAR);
    (ahead.len() >= near).then(|| ahead.swap_remove(near - 1))
}

/// Waits until the key goes that is [`NEAR`] places ahead, if there is one: whoever is near then, the
/// line itself tells, and others come back here. Shows who is ahead. To be boxed, so that who is near
/// already takes less room.
async fn until_near(place: &Place, shown: &mut Ahead) -> Result<()> {
    let found = patiently(place, || look(place)).await?;
    show(shown, found.iter());
    match far_ahead(found) {
        Some(far) => until_gone(place, &far).await,
        None => Ok(()),
    }
}

/// Waits while the key that is far ahead stands.
async fn until_gone(place: &Place, far: &Standing) -> Result<()> {
    let core = place.session.core();
    let (far_key, own_key) = (
        Arc::<[u8]>::from(&*far.key),
        Arc::<[u8]>::from(place.key.clone()),
    );
    let ahead = core.watches.watch(Range::key(far_key.clone()));
    let own = core.watches.watch(Range::key(own_key.clone()));
    let look = || {
        let two = Read::Two([far_key.clone(), own_key.clone()]);
        core.read("look at a key ahead", two, |found| found.two())
    };
    let stands = |found: Option<Standing>, at| found.is_some_and(|found| found.revision == at);
    loop {
        tokio::join!(ahead.ready(), own.ready());
        let [far_found, own_found] = patiently(place, look).await?;
        if !stands(own_found, place.revision) {
            return Err(why_gone(core, &place.key).await.into());
        }
        if !stands(far_found, far.revision) {
            return Ok(());
        }
        loop {
            tokio::select! {
                biased;
                change = ahead.changed() => match change {
                    Change::Events(events) if takes(&events, &far_key, far.revision) => return Ok(()),
                    Change::Events(_) => {}
                    Change::Gap => break,
                },
                change = own.changed() => match change {
                    Change::Events(events) if takes(&events, &own_key, place.revision) => {
                        return Err(why_gone(core, &place.key).await.into());
                    }
                    Change::Events(_) => {}
                    Change::Gap => break,
                },
                () = sleep(core.about_a_ttl()) => break,
            }
        }
    }
}

/// Whether the key of that create revision goes by these events.
pub(super) fn takes(events: &[Event], key: &[u8], revision: i64) -> bool {
    events.iter().any(|event| event.takes(key, revision))
}

/// Reads for who stands in the line already: a permission that is taken away may be given back, and the
/// place is worth waiting for. The session bounds it.
async fn patiently<T, F>(place: &Place, read: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    loop {
        match read().await {
            Err(Error::Etcd { source, .. }) if is_denied(&source) => {
                let name = place.name.as_str();
                tracing::warn!(name, error = %source, "etcd refuses to show a line; waiting on");
                sleep(DENIED_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// The youngest of those who are ahead now, youngest first, at least [`NEAR`] if there are so
/// many. An error if our own key is gone.
pub(super) async fn look(place: &Place) -> Result<Vec<Standing>> {
    let core = place.session.core();
    // One more than the window, for our own key, which is among them.
    let mut limit = i64::from(NEAR) + 1;
    loop {
        let read = Read::Look {
            name: place.name.clone(),
            key: place.key.clone(),
            revision: place.revision,
            limit,
        };
        let found = core.read("look at the line", read, |found| found.look(place.revision));
        let (found, alive) = found.await.map_err(|error| error.on(&place.name))?;
        if !alive {
            return Err(why_gone(core, &place.key).await.into());
        }
        let Look { mut keys, more, .. } = found;
        keys.retain(|other| is_ahead(other, place));
        if !more || keys.len() >= usize::from(NEAR) {
            return Ok(keys);
        }
        // Keys of other locks below this name took the room: once more, without a limit.
        limit = 0;
    }
}
