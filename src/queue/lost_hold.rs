//! Holds that turn out to be lost when something is to be done under them.

use super::hold::Hold;
use crate::error::{Error, Lost, Result};
use crate::etcd::{Read, Seen};
use crate::fencing::{FencingToken, NamedToken};
use std::sync::Arc;

/// A hold under which nothing can be done any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hold with token {hold} is {cause}{}", by(*newer))]
#[non_exhaustive]
pub struct LostHold {
    /// Its name and token.
    pub hold: NamedToken,
    /// How it was lost.
    pub cause: Lost,
    /// The token of the holder now, as of etcd's answer: `None` if nobody holds, and if nothing
    /// was sent, as the loss was known before.
    pub newer: Option<FencingToken>,
}

fn by(newer: Option<FencingToken>) -> String {
    newer.map_or_else(String::new, |newer| format!("; token {newer} holds now"))
}

/// The first of them that is known to be lost, without asking etcd.
pub(super) fn known_to_be_lost(holds: &[&Hold]) -> Option<LostHold> {
    holds.iter().find_map(|hold| {
        let cause = hold.certain().err()?;
        Some(hold.lost_by(cause, None))
    })
}

impl Hold {
    pub(super) fn lost_by(&self, cause: Lost, newer: Option<FencingToken>) -> LostHold {
        let hold = self.named_token();
        LostHold { hold, cause, newer }
    }

    /// Learns from what `first`'s session has seen of this hold; tells if and how it is lost.
    pub(super) async fn lost_as_seen(&self, first: &Self, seen: Seen) -> Result<Option<LostHold>> {
        if let Some(own) = seen.own
            && own.revision == self.revision()
        {
            self.puts.note(own.modified);
            return Ok(None);
        }
        // That there is no such key in the first's etcd says nothing if ours is another.
        let core = self.core();
        if !Arc::ptr_eq(core, first.core()) && self.stands().await? {
            let why = format!(
                "on {:?} stands in another etcd than that on {:?}, or its key is hidden from there; \
                 use sessions on one etcd",
                self.name(),
                first.name()
            );
            return Err(Error::invalid("hold", why));
        }
        let cause = self.key_is_gone().await;
        let name = &self.place.name;
        let newer = match seen.oldest {
            // Of another line, below this name: the first of this one may be behind it.
            Some(other) if !name.is_in_line(&other.key) => {
                let first = || core.etcd.first(name);
                // The loss is certain, and who holds now is all that this could add.
                let asked = core.ask("read who holds", first).await;
                asked.ok().and_then(|answer| answer.value)
            }
            oldest => oldest,
        };
        let newer = newer.map(|newer| FencingToken::of(newer.revision));
        Ok(Some(self.lost_by(cause, newer)))
    }

    /// Whether its key stands, as its own session sees it; not if that is lost.
    async fn stands(&self) -> Result<bool> {
        let core = self.core();
        let read = Read::Key(self.place.key.clone());
        let found = core.read("look at the key of a hold", read, |found| found.key());
        match found.await {
            Ok(own) => Ok(own.is_some_and(|own| own.revision == self.revision())),
            Err(Error::Lost(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
