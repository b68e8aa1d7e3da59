//! The watcher: carries all watches of a session on one gRPC stream.
//!
//! Watches have ids of our own and no start revision (see [`Etcd::watch`](crate::etcd::Etcd)).
//! Who watches the same range shares a watch. A stream that is silent is probed with progress
//! requests and given up after TTL/3; so is one that breaks. Then everybody is told of the gap
//! and has to look at the current state once the watch is ready again: nothing is resumed from
//! an old revision.

use super::book::{Refused, Say};
use super::core::Core;
use super::retry::{Hedge, backoff, until_answered};
use etcd_client::{Error, WatchRequestSender, WatchStream};
use std::sync::Arc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(super) async fn run(core: Arc<Core>) {
    tokio::select! {
        biased;
        () = carry(&core) => {}
        _lost = core.over() => {}
    }
}

async fn carry(core: &Core) {
    let watches = &core.watches;
    let mut failures = 0;
    loop {
        let first = watches.book().begin();
        let Some((id, range)) = first else {
            // Nothing to watch: no stream.
            watches.bell.notified().await;
            continue;
        };
        let attempt = || core.etcd.watch(&range, id);
        match until_answered(&core.etcd, Hedge::Late(&core.pace), None, attempt).await {
            Ok(answer) => {
                let opened = Instant::now();
                if let Err(Refused { stale_token: true }) = pump(core, answer.value).await {
                    // Told on the stream and not as an error, so that no retry has seen to it.
                    let answer = timeout(core.ttl, core.etcd.refresh_token()).await;
                    tracing::debug!(?answer, "authentication token refreshed for watches");
                }
                if opened.elapsed() > core.ttl {
                    failures = 0;
                }
            }
            Err(refused) => tracing::warn!(error = %refused.error, "etcd refuses a watch stream"),
        }
        watches.book().gap();
        failures += 1;
        sleep(backoff(failures)).await;
    }
}

/// Serves one stream until it breaks, has had nothing to watch for a TTL, or a watch is refused.
async fn pump(core: &Core, stream: WatchStream) -> Result<(), Refused> {
    let watches = &core.watches;
    let (mut speak, mut hear) = stream.split();
    let (probe_after, silent_after) = (core.ttl / 6, core.ttl / 3);
    let mut heard = Instant::now();
    let mut probed = false;
    let mut was_empty = false;
    loop {
        let (empty, say) = {
            let book = watches.book();
            (book.is_empty(), book.to_say())
        };
        if was_empty && !empty {
            // Silence counts from the first watch on.
            (heard, probed) = (Instant::now(), false);
        }
        was_empty = empty;
        let patience = match (empty, probed) {
            (true, _) => core.ttl,
            (false, false) => probe_after,
            (false, true) => silent_after,
        };
        tokio::select! {
            biased;
            said = tell(&mut speak, say.as_ref()), if say.is_some() => {
                if said.is_err() {
                    return Ok(());
                }
                watches.book().said();
            }
            message = hear.message() => match message {
                Ok(Some(message)) => {
                    (heard, probed) = (Instant::now(), false);
                    watches.book().dispatch(&message)?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::debug!(%error, "a watch stream broke");
                    return Ok(());
                }
            },
            () = watches.bell.notified() => {}
            () = sleep_until(heard + patience) => {
                if empty || probed {
                    return Ok(());
                }
                watches.book().probe();
                probed = true;
            }
        }
    }
}

/// Says one thing to etcd. Dropped before the end, nothing was said.
async fn tell(speak: &mut WatchRequestSender, say: Option<&Say>) -> Result<(), Error> {
    match say {
        Some(Say::Create(id, range)) => speak.watch(range.start(), Some(range.options(*id))).await,
        Some(Say::Cancel(id)) => speak.cancel(*id).await,
        Some(Say::Probe) => speak.request_progress().await,
        None => Ok(()),
    }
}
