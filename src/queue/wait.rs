//! Waiting for the turn.
//!
//! Create revisions only grow, so the set of keys ahead of ours only shrinks. It is our turn
//! when it is empty, at a revision at which our own key exists.
//!
//! *Near*, with fewer than [`NEAR`] keys ahead, all known: watch the deletes of the whole prefix
//! and strike them off. The last one struck off is the turn: no read follows, a hand-over costs
//! one commit and one push. Our own key's delete comes on the same watch, in order.
//!
//! *Far*, with [`NEAR`] or more ahead: watch the key that is [`NEAR`] places ahead, and our own.
//! When that one goes, look again; the near window opens [`NEAR`] hand-overs before the turn.
//! So a release wakes at most `NEAR` + 1 waiters, however long the line is.
//!
//! The order of watching: order the watch, wait until etcd has confirmed it, look (one
//! linearizable read), then follow. After a gap: wait until confirmed again, look. Besides, one
//! look per TTL, for servers and members that lose events.

use super::place::{NEAR, Place};
use crate::error::{Lost, Result};
use crate::etcd::{Look, Range, Standing};
use crate::key::Name;
use crate::session::{Change, Core, Gone, Watch};
use std::time::Duration;
use tokio::time::sleep;

/// The keys ahead of one of ours, youngest first, at some revision.
pub(super) struct Ahead {
    keys: Vec<Standing>,
}

impl Ahead {
    /// What a look says about who is ahead; `None` if its limit hid some, because of keys that
    /// are not in this line or not ahead.
    pub(super) fn from_look(look: Look, name: &Name, key: &str, revision: i64) -> Option<Self> {
        let Look { mut keys, more } = look;
        keys.retain(|other| name.is_in_line(&other.key));
        // Keys put in one transaction share a create revision; then the smaller key is first.
        keys.retain(|other| (other.revision, other.key.as_slice()) < (revision, key.as_bytes()));
        (!more || keys.len() >= NEAR).then_some(Self { keys })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key to watch while it is far: the one [`NEAR`] places ahead.
    fn far(&self) -> Option<&Standing> {
        self.keys.get(NEAR - 1)
    }

    /// Strikes off what is gone. A key that was made anew under the same name stays.
    fn strike(&mut self, gone: &[Gone]) {
        self.keys.retain(|ahead| {
            !gone
                .iter()
                .any(|(key, at)| is_gone(&ahead.key, ahead.revision, key, *at))
        });
    }
}

fn is_gone(key: &[u8], revision: i64, gone: &[u8], at: i64) -> bool {
    key == gone && at > revision
}

/// Waits until nobody is ahead of `place`.
pub(super) async fn until_first(place: &Place, before: Option<Look>) -> Result<()> {
    let core = place.session.core();
    let mut ahead = ahead_of(place, before).await?;
    let mut warned = false;
    while !ahead.is_empty() {
        if !warned && let Some(foreign) = ahead.keys.iter().find(|key| key.lease == 0) {
            warned = true;
            tracing::warn!(
                lock = place.name.as_str(),
                key = %String::from_utf8_lossy(&foreign.key),
                "waiting behind a key without a lease: it goes only if somebody deletes it"
            );
        }
        let followed = async {
            match ahead.far().cloned() {
                Some(far) => follow_far(place, &far).await,
                None => follow_near(place).await,
            }
        };
        ahead = tokio::select! {
            followed = followed => followed?,
            lost = core.over() => return Err(lost.into()),
        };
    }
    Ok(())
}

/// Who is ahead: as the join found it if that tells, else by a look.
pub(super) async fn ahead_of(place: &Place, before: Option<Look>) -> Result<Ahead> {
    let known =
        before.and_then(|look| Ahead::from_look(look, &place.name, &place.key, place.revision));
    match known {
        Some(ahead) => Ok(ahead),
        None => look(place).await,
    }
}

/// Waits while the key that is far ahead stands; gives what a look says afterwards.
async fn follow_far(place: &Place, far: &Standing) -> Result<Ahead> {
    let core = place.session.core();
    let ahead_of_us = core.watch(Range::key(far.key.as_slice()));
    let own = core.watch(Range::prefix(place.name.session_prefix(core.lease)));
    loop {
        tokio::join!(ahead_of_us.ready(), own.ready());
        let ahead = look(place).await?;
        if ahead.far() != Some(far) {
            return Ok(ahead);
        }
        loop {
            tokio::select! {
                change = ahead_of_us.changed() => match change {
                    Change::Gone(gone) if any_gone(&gone, &far.key, far.revision) => return look(place).await,
                    Change::Gone(_) => {}
                    Change::Gap => break,
                },
                change = own.changed() => match change {
                    Change::Gone(gone) if any_gone(&gone, place.key.as_bytes(), place.revision) => {
                        return Err(why_gone(core).await.into());
                    }
                    Change::Gone(_) => {}
                    Change::Gap => break,
                },
                () = sleep(safety(core)) => break,
            }
        }
    }
}

/// Follows the deletes of the whole line until nobody is ahead, or until it is far again.
async fn follow_near(place: &Place) -> Result<Ahead> {
    let core = place.session.core();
    let line: Watch = core.watch(Range::prefix(place.name.prefix()));
    loop {
        line.ready().await;
        let mut ahead = look(place).await?;
        if ahead.far().is_some() {
            return Ok(ahead);
        }
        loop {
            if ahead.is_empty() {
                return Ok(ahead);
            }
            tokio::select! {
                change = line.changed() => match change {
                    Change::Gone(gone) => {
                        if any_gone(&gone, place.key.as_bytes(), place.revision) {
                            return Err(why_gone(core).await.into());
                        }
                        ahead.strike(&gone);
                    }
                    Change::Gap => break,
                },
                () = sleep(safety(core)) => break,
            }
        }
    }
}

/// Whether the key of that create revision is among these.
pub(super) fn any_gone(gone: &[Gone], key: &[u8], revision: i64) -> bool {
    gone.iter()
        .any(|(other, at)| is_gone(key, revision, other, *at))
}

/// The current state: who is ahead. An error if our own key is gone.
async fn look(place: &Place) -> Result<Ahead> {
    let core = place.session.core();
    let (prefix, key, revision) = (place.name.prefix(), &*place.key, place.revision);
    // One more than the window, for our own key, which is among them.
    let mut limit = i64::try_from(NEAR + 1).unwrap_or(i64::MAX);
    loop {
        let ask = || core.etcd.look(prefix, key, revision, limit);
        let (found, alive) = core.ask("look at the line", ask).await?.value;
        if !alive {
            return Err(why_gone(core).await.into());
        }
        if let Some(ahead) = Ahead::from_look(found, &place.name, key, revision) {
            return Ok(ahead);
        }
        // Keys of other locks below this name took the room: once more, without a limit.
        limit = 0;
    }
}

/// Why a key of ours is gone: with its lease, or by itself.
pub(super) async fn why_gone(core: &Core) -> Lost {
    match core.confirm_lease().await {
        Err(lost) => lost,
        Ok(()) => Lost::KeyDeleted,
    }
}

/// The pause of the slow look: about a TTL.
pub(super) fn safety(core: &Core) -> Duration {
    core.ttl.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn key(key: &str, revision: i64) -> Standing {
        Standing {
            key: key.into(),
            revision,
            modified: revision,
            lease: 1,
            value: Vec::new(),
        }
    }

    fn ahead(keys: Vec<Standing>, more: bool) -> Option<Ahead> {
        let look = Look { keys, more };
        Ahead::from_look(look, &Name::new("a").unwrap(), "a/me", 10)
    }

    #[test]
    fn only_older_keys_of_the_line_are_ahead() {
        let found = ahead(
            vec![key("a/young", 11), key("a/b/nested", 5), key("a/old", 4)],
            false,
        );
        assert_eq!(found.unwrap().keys, [key("a/old", 4)]);
    }

    #[test]
    fn of_keys_put_together_the_smaller_is_first() {
        let found = ahead(
            vec![key("a/mf", 10), key("a/md", 10), key("a/me", 10)],
            false,
        );
        assert_eq!(found.unwrap().keys, [key("a/md", 10)]);
    }

    #[test]
    fn nested_keys_in_a_limited_look_ask_for_a_full_one() {
        assert!(ahead(vec![key("a/b/nested", 5)], true).is_none());
        let window = (0..NEAR).map(|n| key(&format!("a/{n}"), 5)).collect();
        assert!(ahead(window, true).is_some());
    }

    #[test]
    fn a_delete_of_an_earlier_key_of_the_same_name_strikes_nothing() {
        let mut found = ahead(vec![key("a/again", 8)], false).unwrap();
        found.strike(&[(Arc::from(&b"a/again"[..]), 7)]);
        assert!(!found.is_empty());
        found.strike(&[(Arc::from(&b"a/again"[..]), 12)]);
        assert!(found.is_empty());
    }
}
