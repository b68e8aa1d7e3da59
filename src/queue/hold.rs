//! Holding: from the turn to the release or the loss.

use super::place::{How, Joining, Place, join};
use super::view::list;
use super::wait::{ahead_of, any_gone, safety, until_first, why_gone};
use crate::clock::Moment;
use crate::error::{Lost, Result};
use crate::etcd::{Look, Range, Standing};
use crate::key::Name;
use crate::session::{Change, Core, Debt, Session};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio::time::sleep;

/// A place that has had its turn.
pub(crate) struct Hold {
    place: Place,
    fate: Owned,
}

/// The hold's end of its fate: nobody watches the key of a hold that was dropped.
struct Owned(Arc<Fate>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.end(End::Released);
    }
}

/// How a single hold ended, apart from its session.
#[derive(Default)]
struct Fate {
    ended: OnceLock<End>,
    news: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Given up by its owner.
    Released,
    Lost(Lost),
}

impl Fate {
    fn end(&self, end: End) {
        if self.ended.set(end).is_ok() {
            self.news.notify_waiters();
        }
    }

    async fn ended(&self) {
        let news = self.news.notified();
        tokio::pin!(news);
        // Registered before the question, so that no news falls in between.
        news.as_mut().enable();
        if self.ended.get().is_none() {
            news.await;
        }
    }
}

/// Joins the line of `name` and waits for the turn. Dropping this leaves the line.
pub(crate) async fn lock(session: Session, name: Name) -> Result<Hold> {
    match join(&session, &name, How::Line).await? {
        Joining::Stands(place, before) => {
            until_first(&place, before).await?;
            Hold::begin(place)
        }
        Joining::Busy(_) => unreachable!("only a try is refused a place"),
    }
}

/// Takes the lock if nobody stands in the line; else tells who is first.
pub(crate) async fn try_lock(session: Session, name: Name) -> Result<Result<Hold, Standing>> {
    match join(&session, &name, How::Try).await? {
        Joining::Stands(place, before) => {
            let first = first_of(&place, before).await?;
            first.map_or_else(|| Hold::begin(place).map(Ok), |first| Ok(Err(first)))
        }
        Joining::Busy(first) if name.is_in_line(&first.key) => Ok(Err(first)),
        Joining::Busy(_) => try_among_nested(&session, &name).await,
    }
}

/// A try where the oldest key belongs to another lock, below this name: there is no compare for
/// "nobody but those". If nobody is in line, joins, looks, and leaves if it is not first.
async fn try_among_nested(session: &Session, name: &Name) -> Result<Result<Hold, Standing>> {
    let core = session.core();
    if let Some(first) = list(core, name).await?.into_iter().next() {
        return Ok(Err(first));
    }
    let Joining::Stands(place, before) = join(session, name, How::Line).await? else {
        unreachable!("only a try is refused a place");
    };
    match first_of(&place, before).await? {
        None => Hold::begin(place).map(Ok),
        Some(first) => {
            place.leave().await?;
            Ok(Err(first))
        }
    }
}

/// Who is first in line, if it is not this place.
async fn first_of(place: &Place, before: Option<Look>) -> Result<Option<Standing>> {
    if ahead_of(place, before).await?.is_empty() {
        return Ok(None);
    }
    let all = list(place.session.core(), &place.name).await?;
    Ok(all
        .into_iter()
        .next()
        .filter(|first| first.key != place.key.as_bytes()))
}

impl Hold {
    /// A hold for a place that has had its turn, if the session is certain now.
    fn begin(place: Place) -> Result<Self> {
        let core = place.session.core().clone();
        core.certain()?;
        tracing::debug!(lock = place.name.as_str(), token = place.revision, "turn");
        let fate = Arc::<Fate>::default();
        let hold = Self {
            fate: Owned(fate.clone()),
            place,
        };
        let (key, revision) = (hold.place.key.clone(), hold.place.revision);
        core.clone().debts.later(move || {
            let lasts = fate.ended.get().is_none();
            lasts.then(|| -> Debt { Box::pin(watch_key(core, fate, key, revision)) })
        });
        Ok(hold)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Until when the hold is certain; an error once it is lost.
    pub(crate) fn certain(&self) -> Result<Moment, Lost> {
        match self.fate.0.ended.get() {
            Some(End::Lost(lost)) => Err(*lost),
            Some(End::Released) | None => self.place.session.core().certain(),
        }
    }

    /// Waits until the hold is lost.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            if let Some(End::Lost(lost)) = self.fate.0.ended.get() {
                return *lost;
            }
            tokio::select! {
                () = self.fate.0.ended() => {}
                lost = self.place.session.ended() => return lost,
            }
        }
    }

    /// Gives the hold up: from now on it is not held, then the key goes.
    pub(crate) async fn release(self) -> Result<()> {
        self.certain()?;
        let Self { place, fate } = self;
        drop(fate);
        let core = place.session.core().clone();
        let (lock, token) = (place.name.clone(), place.revision);
        if place.leave().await? == Some(false) {
            return Err(why_gone(&core).await.into());
        }
        tracing::debug!(lock = lock.as_str(), token, "released");
        Ok(())
    }
}

/// Watches the key of a hold that lasts, and tells its fate when the key goes. The lease is
/// the keeper's to watch; renewals that are answered do not prove that the key exists.
async fn watch_key(core: Arc<Core>, fate: Arc<Fate>, key: Arc<str>, revision: i64) {
    let gone = async {
        let watch = core.watch(Range::key(key.as_bytes()));
        loop {
            watch.ready().await;
            let found = core.ask("look at the key", || core.etcd.get(&key)).await;
            match found.map(|answer| answer.value) {
                Ok(Some(standing)) if standing.revision == revision => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, key = &*key, "cannot look at the key of a hold");
                    sleep(safety(&core)).await;
                    continue;
                }
            }
            tokio::select! {
                change = watch.changed() => match change {
                    Change::Gone(gone) if any_gone(&gone, key.as_bytes(), revision) => return,
                    // Of an earlier use of the key, or a gap: look.
                    Change::Gone(_) | Change::Gap => {}
                },
                () = sleep(safety(&core)) => {}
            }
        }
    };
    tokio::select! {
        () = fate.ended() => {}
        () = gone => {
            let lost = why_gone(&core).await;
            tracing::warn!(key = &*key, token = revision, cause = %lost, "hold lost");
            fate.end(End::Lost(lost));
        }
    }
}
