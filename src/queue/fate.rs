//! How a single hold ends, apart from its session: given up, or its key deleted.

use super::breaking::why_gone;
use super::sight::Holds;
use super::wait::takes;
use crate::error::Lost;
use crate::etcd::{Range, Read};
use crate::loss::Loss;
use crate::session::{Change, Core, Debt, Told};
use std::sync::Arc;
use tokio::time::sleep;
use tracing::{Instrument, Span};

struct Fate {
    told: Told<End>,
    seen: Holds,
}

#[derive(Clone, Copy)]
pub(super) enum End {
    /// Given up by its owner.
    Released,
    Lost(Loss),
}

impl Fate {
    /// The first that is told counts, and is seen.
    fn tell(&self, end: End) {
        if self.told.tell(end) {
            self.seen.ended(end);
        }
    }
}

/// The hold's own end of its fate: the key of a hold that was dropped is watched no more.
pub(super) struct Owned {
    fate: Arc<Fate>,
    core: Arc<Core>,
}

impl Owned {
    /// For a hold, whose key is watched once it has lasted for a while: holds that are short cost
    /// nothing more.
    pub(super) fn begin(core: &Arc<Core>, seen: Holds) -> Self {
        let told = Told::default();
        let fate = Arc::new(Fate { told, seen });
        let (watched, core) = (Watched(core.clone(), fate.clone()), core.clone());
        core.debts.later(move || {
            let lasts = watched.1.told.get().is_none();
            let span = watched.1.seen.span.clone();
            lasts.then(|| -> Debt { Box::pin(watch_key(watched).instrument(span)) })
        });
        Self { fate, core }
    }

    /// How it was lost, if it was.
    pub(super) fn lost(&self) -> Option<Lost> {
        self.loss().map(|loss| loss.cause)
    }

    /// What was known of its loss when it was seen, if it was.
    pub(super) fn loss(&self) -> Option<Loss> {
        match self.fate.told.get() {
            Some(End::Lost(loss)) => Some(loss),
            Some(End::Released) | None => None,
        }
    }

    /// Says how it was lost, as somebody has found out; gives the cause that counts.
    pub(super) fn lose(&self, lost: Lost) -> Lost {
        self.fate.tell(End::Lost(self.core.loss_by(lost)));
        self.lost().unwrap_or(lost)
    }

    pub(super) async fn ended(&self) {
        self.fate.told.told().await;
    }

    pub(super) fn span(&self) -> &Span {
        &self.fate.seen.span
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.fate.told.get().is_some() {
            return;
        }
        // What was lost with its session was not given up, whoever is the first to see it.
        self.fate.tell(match self.core.certain() {
            Ok(_) => End::Released,
            Err(lost) => End::Lost(self.core.loss_by(lost)),
        });
    }
}

/// The session's end of a fate. It goes with the session, if not before.
struct Watched(Arc<Core>, Arc<Fate>);

impl Drop for Watched {
    fn drop(&mut self) {
        let Self(core, fate) = self;
        if let Some(loss) = core.loss() {
            fate.tell(End::Lost(loss));
        }
    }
}

/// Watches the key of a hold that lasts, and tells its fate when the key goes. The lease is
/// the keeper's to watch; renewals that are answered do not prove that the key exists.
async fn watch_key(watched: Watched) {
    let Watched(core, fate) = &watched;
    let Holds { key, revision, .. } = &fate.seen;
    tokio::select! {
        biased;
        _ended = fate.told.told() => {}
        () = until_gone(core, key, *revision) => {
            let lost = why_gone(core, key).await;
            fate.tell(End::Lost(core.loss_by(lost)));
        }
    }
}

async fn until_gone(core: &Core, key: &Arc<str>, revision: i64) {
    let watch = core.watches.watch(Range::key(key.clone()));
    loop {
        watch.ready().await;
        let read = Read::Key(key.clone());
        let found = core.read("look at the key", read, |found| found.key());
        match found.await {
            Ok(Some(standing)) if standing.revision == revision => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, key = &**key, "cannot look at the key of a hold");
                sleep(core.about_a_ttl()).await;
                continue;
            }
        }
        tokio::select! {
            biased;
            change = watch.changed() => match change {
                Change::Events(events) if takes(&events, key.as_bytes(), revision) => return,
                // Of an earlier use of the key, or a gap: look.
                Change::Events(_) | Change::Gap => {}
            },
            () = sleep(core.about_a_ttl()) => {}
        }
    }
}
