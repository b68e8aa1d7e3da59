//! Breaking a hold: by an operator, and how its owner learns of it.

use super::view::inscription;
use crate::error::{Lost, Result};
use crate::etcd::{Standing, note_about};
use crate::key::{self, Name};
use crate::session::Core;
use futures_util::future::BoxFuture;

/// Deletes the key of the hold that began at `revision`, if that is the one that is first in the
/// line; gives what it was then.
pub(crate) async fn break_if(core: &Core, name: &Name, revision: i64) -> Result<Option<Standing>> {
    // Those ahead of a key only ever become fewer: who is first now is first until it is gone.
    let first = || core.etcd.first(name);
    let first = core.ask_about(name, "read who holds", first).await?.value;
    let Some(first) = first.filter(|first| first.revision == revision) else {
        return Ok(None);
    };
    let by = String::from_utf8_lossy(&inscription(core)).into_owned();
    let note = key::of_session(&first.key, first.lease).map(|_| (&*by, first.lease));
    let deletes = || core.etcd.break_key(&first.key, revision, note);
    let broken = core.ask_about(name, "break a hold", deletes).await?;
    // In doubt an earlier attempt has done it, or it ended by itself: over is what it was to be.
    if !broken.value && !broken.doubtful {
        return Ok(None);
    }
    tracing::warn!(name = name.as_str(), token = revision, "broke a hold");
    Ok(Some(first))
}

/// Why a key of ours is gone: with its lease, broken by an operator, or deleted. Boxed, as it is
/// rare and large.
pub(crate) fn why_gone<'a>(core: &'a Core, key: &'a str) -> BoxFuture<'a, Lost> {
    Box::pin(find_out(core, key))
}

async fn find_out(core: &Core, key: &str) -> Lost {
    if let Err(lost) = core.confirm_lease().await {
        return lost;
    }
    let note = core.read("look why a key is gone", note_about(key), |found| {
        found.key()
    });
    match note.await {
        Ok(Some(note)) => {
            let by = String::from_utf8_lossy(&note.value);
            tracing::warn!(key, %by, "broken by an operator");
            Lost::Broken
        }
        Ok(None) | Err(_) => Lost::KeyDeleted,
    }
}
