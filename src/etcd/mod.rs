//! The wire: each request this crate makes, once, and no policy. Who calls decides about
//! retries and deadlines; [`classify()`] tells what an error means.

mod breaking;
mod classify;
mod guarded;
mod lease;
mod line;
mod read;
mod under;
mod write;

pub(crate) use breaking::note_about;
pub(crate) use classify::{
    Verdict, classify, classify_text, is_denied, is_not_carried_out, silence,
};
pub(crate) use guarded::Guarded;
pub(crate) use lease::Renewals;
pub(crate) use line::{Look, Standing};
pub(crate) use read::{Found, Read};
pub(crate) use under::{Proof, Seen, Under};
pub(crate) use write::{Join, Joined, Tried, Write, Written, is};

use etcd_client::{
    Client, Error, GetOptions, KvClient, LeaseClient, WatchClient, WatchFilterType, WatchOptions,
    WatchStream,
};
use std::sync::Arc;

/// A client taken apart, so that a request clones a sub-client (cheap) and not the whole.
pub(crate) struct Etcd {
    client: Client,
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
}

impl Etcd {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            kv: client.kv_client(),
            lease: client.lease_client(),
            watch: client.watch_client(),
            client,
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Asks for a new authentication token, for streams and for role changes under JWT,
    /// which etcd-client's own refresh misses.
    pub(crate) async fn refresh_token(&self) -> Result<(), Error> {
        self.client.refresh_token().await
    }

    /// Opens a watch stream on everything behind a prefix, puts and deletes.
    pub(crate) async fn follow(&self, prefix: &str) -> Result<WatchStream, Error> {
        let options = WatchOptions::new().with_prefix();
        self.watch.clone().watch(prefix, Some(options)).await
    }

    /// Asks for a key, for the sake of an answer: etcd grants a lease to anybody, and refuses
    /// what matters only later. That this key is forbidden to somebody it knows is an answer.
    pub(crate) async fn knock(&self) -> Result<(), Error> {
        let options = GetOptions::new().with_count_only().with_serializable();
        match self.kv.clone().get("\0", Some(options)).await {
            Err(error) if !is_denied(&error) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Opens a watch stream with a first watch on it. It has no start revision: etcd serves
    /// a watch from the past in a loop of 100 ms, one from now on at once.
    pub(crate) async fn watch(&self, range: &Range, id: i64) -> Result<WatchStream, Error> {
        let options = range.options(id);
        self.watch.clone().watch(&*range.start, Some(options)).await
    }
}

/// What a watch covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    start: Arc<[u8]>,
    covers: Covers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Covers {
    /// Deletes of one key.
    Key,
    /// Puts and deletes of all keys behind a prefix.
    Line,
}

impl Range {
    pub(crate) fn key(key: impl Into<Arc<[u8]>>) -> Self {
        Self::new(key, Covers::Key)
    }

    pub(crate) fn line(prefix: impl Into<Arc<[u8]>>) -> Self {
        Self::new(prefix, Covers::Line)
    }

    fn new(start: impl Into<Arc<[u8]>>, covers: Covers) -> Self {
        let start = start.into();
        Self { start, covers }
    }

    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    pub(crate) fn options(&self, id: i64) -> WatchOptions {
        let options = WatchOptions::new().with_watch_id(id);
        match self.covers {
            Covers::Key => options.with_filters([WatchFilterType::NoPut]),
            Covers::Line => options.with_prefix(),
        }
    }
}
