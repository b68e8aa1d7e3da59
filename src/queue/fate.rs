//! How a single hold ends, apart from its session: given up, or its key deleted.

use super::breaking::why_gone;
use super::wait::takes;
use crate::error::Lost;
use crate::etcd::Range;
use crate::session::{Change, Core, Debt, Told};
use std::sync::Arc;
use tokio::time::sleep;

type Fate = Told<End>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Given up by its owner.
    Released,
    Lost(Lost),
}

/// The hold's own end of its fate: the key of a hold that was dropped is watched no more.
pub(super) struct Owned(Arc<Fate>);

impl Owned {
    /// For the hold of `key`, which is watched once the hold has lasted for a while: holds that
    /// are short cost nothing more.
    pub(super) fn begin(core: &Arc<Core>, key: Arc<str>, revision: i64) -> Self {
        let fate = Arc::<Fate>::default();
        let owned = Self(fate.clone());
        let session = core.clone();
        core.debts.later(move || {
            let lasts = fate.get().is_none();
            lasts.then(|| -> Debt { Box::pin(watch_key(session, fate, key, revision)) })
        });
        owned
    }

    /// How it was lost, if it was.
    pub(super) fn lost(&self) -> Option<Lost> {
        match self.0.get() {
            Some(End::Lost(lost)) => Some(lost),
            Some(End::Released) | None => None,
        }
    }

    /// Says how it was lost, as somebody has found out; gives the cause that counts.
    pub(super) fn lose(&self, lost: Lost) -> Lost {
        self.0.tell(End::Lost(lost));
        self.lost().unwrap_or(lost)
    }

    pub(super) async fn ended(&self) {
        self.0.told().await;
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.tell(End::Released);
    }
}

/// Watches the key of a hold that lasts, and tells its fate when the key goes. The lease is
/// the keeper's to watch; renewals that are answered do not prove that the key exists.
async fn watch_key(core: Arc<Core>, fate: Arc<Fate>, key: Arc<str>, revision: i64) {
    tokio::select! {
        biased;
        _ended = fate.told() => {}
        () = until_gone(&core, &key, revision) => {
            let lost = why_gone(&core, &key).await;
            tracing::warn!(key = &*key, token = revision, cause = %lost, "hold lost");
            fate.tell(End::Lost(lost));
        }
    }
}

async fn until_gone(core: &Core, key: &str, revision: i64) {
    let watch = core.watches.watch(Range::key(key));
    loop {
        watch.ready().await;
        let found = core.ask("look at the key", || core.etcd.get(key)).await;
        match found.map(|answer| answer.value) {
            Ok(Some(standing)) if standing.revision == revision => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, key, "cannot look at the key of a hold");
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
