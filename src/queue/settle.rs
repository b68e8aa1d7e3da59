//! What is known of the last put of a hold's key, and how requests in doubt are settled by it.
//!
//! Every transaction under a hold demands that its key was last put at a certain revision. One
//! more put, and what was sent before and has not been carried out never will be.

use super::hold::Hold;
use crate::error::Result;
use crate::etcd::Guarded;
use std::sync::atomic::{AtomicI64, Ordering};

#[derive(Debug)]
pub(super) struct Puts {
    /// The revision of the key's last put, as far as we know: it only grows.
    last: AtomicI64,
    /// The youngest put that is demanded, if any, by transactions of which nothing is known and
    /// which may yet be carried out; 0 if there are none.
    doubt: AtomicI64,
}

impl Puts {
    pub(super) fn begin(revision: i64) -> Self {
        let (last, doubt) = (AtomicI64::new(revision), AtomicI64::new(0));
        Self { last, doubt }
    }

    pub(super) fn last(&self) -> i64 {
        self.last.load(Ordering::Acquire)
    }

    /// Takes note of a put of the key.
    pub(super) fn note(&self, modified: i64) {
        self.last.fetch_max(modified, Ordering::AcqRel);
    }
}

impl Hold {
    /// Sees to it that no transaction is carried out after this that demands the put at `sent`,
    /// or an older one.
    pub(super) async fn settle(&self, sent: i64) -> Result<()> {
        let (core, last) = (self.core(), self.puts.last());
        if last > sent {
            return Ok(());
        }
        let settle = || core.etcd.settle(self.key(), last);
        match core.ask("settle a transaction", settle).await?.value {
            Guarded::Written(revision) => self.puts.note(revision),
            // Put by an earlier attempt, or by others.
            Guarded::Refused(Some(now)) if now.revision == self.revision() => {
                self.puts.note(now.modified);
            }
            // The key is gone, and what was to be done on its condition with it.
            Guarded::Refused(_) | Guarded::NoLease => {}
        }
        Ok(())
    }
}

/// Transactions under these holds are under way: whoever goes away without being sure how they
/// ended leaves a doubt, which is settled before the next one is sent.
pub(super) struct UnderWay<'a> {
    holds: &'a [&'a Hold],
    in_doubt: bool,
}

impl<'a> UnderWay<'a> {
    /// Settles what is in doubt.
    pub(super) async fn begin(holds: &'a [&'a Hold]) -> Result<Self> {
        for hold in holds {
            let doubt = &hold.puts.doubt;
            let sent = doubt.load(Ordering::Acquire);
            if sent > 0 {
                hold.settle(sent).await?;
                // A younger doubt stays; one of the same age was settled with this.
                let _younger = doubt.compare_exchange(sent, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        let in_doubt = true;
        Ok(Self { holds, in_doubt })
    }

    /// It is certain how they ended, or settled.
    pub(super) fn ended(mut self) {
        self.in_doubt = false;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        for hold in self.holds.iter().filter(|_| self.in_doubt) {
            hold.puts
                .doubt
                .fetch_max(hold.puts.last(), Ordering::AcqRel);
        }
    }
}
