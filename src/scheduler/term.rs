//! What the work of a leader is given.

use crate::election::Leadership;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::watch;

/// One term of leading, as given to the work that [`Leading`](super::Leading) runs.
///
/// Dereferences to the [`Leadership`] (and so to its [`Hold`](crate::Hold)): ask it for the
/// token, proclaim with it. The work is stopped on loss without asking; what it has spawned or
/// handed to other threads has to ask [`is_held`](crate::Hold::is_held) itself. Clones are of
/// the same term; one that outlives the term only ever says that it is lost.
#[derive(Clone, Debug)]
pub struct Term {
    leadership: Arc<Leadership>,
    stop: watch::Receiver<bool>,
}

impl Term {
    pub(super) fn new(leadership: Leadership, stop: watch::Receiver<bool>) -> Self {
        let leadership = Arc::new(leadership);
        Self { leadership, stop }
    }

    /// Reports that the work gets on; see [`Leading::progress_within`](super::Leading::progress_within).
    pub fn progress(&self) {
        self.core().progress();
    }

    /// Waits until the service is to shut down: the work should come to its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; it can be called again.
    pub async fn stopping(&self) {
        let mut stop = self.stop.clone();
        // A sender that is gone means that the whole run was dropped: that is an end, too.
        let _stopped = stop.wait_for(|stop| *stop).await;
    }
}

impl Deref for Term {
    type Target = Leadership;

    fn deref(&self) -> &Leadership {
        &self.leadership
    }
}
