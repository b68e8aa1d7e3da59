//! Waiting for the turn.
//!
//! Create revisions only grow, so the set of keys ahead of ours only shrinks. It is our turn
//! when it is empty, at a revision at which our own key exists.
//!
//! *Near*: the session follows the whole line in memory ([`Lines`]). It does so for lines in
//! which it has at least one waiter in [`NEAR`], so that few sessions do it for one line.
//!
//! *Far*: a lonely waiter in a long line watches the key that is [`NEAR`] places ahead, and its
//! own. When that one goes, it looks again; so it is near [`NEAR`] hand-overs before its turn,
//! and a release wakes few, however long the line is.
//!
//! The order of watching, both ways: order the watch, wait until etcd has confirmed it, look (one
//! linearizable read), then follow. After a gap: wait until confirmed again, look. Besides, one
//! look per TTL, for servers and members that lose events.

use super::breaking::why_gone;
use super::place::{NEAR, Place};
use crate::error::{Error, Result};
use crate::etcd::{Look, Range, Read, Standing, is_denied};
use crate::session::{Ahead, Change, Event, Lines, News, Number};
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
            loop {
                let found = look_again(place).await?;
                show(&mut ahead, found.iter());
                let Some(far) = far_ahead(found) else { break };
                until_gone(place, &far).await?;
            }
        }
        loop {
            let own = (&*place.key, place.revision);
            match Lines::wait(core, &place.name, own, ahead.clone()).await {
                News::Turn => return Ok(()),
                News::Gone => return Err(why_gone(core, &place.key).await.into()),
                // The look tells why, or that it was a passing trouble.
                News::Unreadable => drop(look_again(place).await?),
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
    !core.lines.follows(&place.name)
        && look.count > usize::from(NEAR) * Number::in_use(core, &place.name)
}

/// Of those ahead, youngest first, the one to watch while it is far.
fn far_ahead(mut ahead: Vec<Standing>) -> Option<Standing> {
    let near = usize::from(NEAR);
    (ahead.len() >= near).then(|| ahead.swap_remove(near - 1))
}

/// Waits while the key that is far ahead stands.
async fn until_gone(place: &Place, far: &Standing) -> Result<()> {
    let core = place.session.core();
    let ahead = core.watches.watch(Range::key(far.key.as_slice()));
    let own = core.watches.watch(Range::key(place.key.clone()));
    loop {
        tokio::join!(ahead.ready(), own.ready());
        if far_ahead(look_again(place).await?).as_ref() != Some(far) {
            return Ok(());
        }
        loop {
            tokio::select! {
                biased;
                change = ahead.changed() => match change {
                    Change::Events(events) if takes(&events, &far.key, far.revision) => return Ok(()),
                    Change::Events(_) => {}
                    Change::Gap => break,
                },
                change = own.changed() => match change {
                    Change::Events(events) if takes(&events, place.key.as_bytes(), place.revision) => {
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

/// As [`look`], for who stands in the line already: a permission that is taken away may be given
/// back, and the place is worth waiting for. The session bounds it.
async fn look_again(place: &Place) -> Result<Vec<Standing>> {
    loop {
        match look(place).await {
            Err(Error::Etcd { source, .. }) if is_denied(&source) => {
                let name = place.name.as_str();
                tracing::warn!(name, error = %source, "etcd refuses to show a line; waiting on");
                sleep(DENIED_PAUSE).await;
            }
            looked => return looked,
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
