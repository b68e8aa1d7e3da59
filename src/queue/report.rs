//! Why a hold was lost, and who holds now.

use super::hold::Hold;
use super::view::Waiter;
use crate::loss::{HeldNow, LossReport};
use std::time::Duration;

/// How long who holds now is asked for: a report is wanted in time, with what is known.
const LONGEST: Duration = Duration::from_secs(2);

impl Hold {
    /// Tells why it was lost, for logs and for the people on call; nothing while it is held.
    ///
    /// What is known is that of the moment in which the loss was seen. Who holds *now* is asked
    /// of etcd, for 2 s at the most; without an answer the report says so. It can be asked for at
    /// any time before the hold is dropped or released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; it can be called again.
    ///
    /// # Panics
    ///
    /// If it is not polled in a tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: etcd_lock::LockGuard) {
    /// let worked = guard.run_until_lost(async { /* the work */ }).await;
    /// if worked.is_err()
    ///     && let Some(report) = guard.loss_report().await
    /// {
    ///     eprintln!("{}: {report}", guard.name());
    /// }
    /// # }
    /// ```
    pub async fn loss_report(&self) -> Option<LossReport> {
        let cause = self.certain().err()?;
        let core = self.core();
        let loss = self.known_loss().unwrap_or_else(|| core.loss_by(cause));
        let first = || core.etcd.first(&self.place.name);
        let now = match core.ask_anyway(LONGEST, first).await {
            None => HeldNow::Unknown,
            Some(None) => HeldNow::Nobody,
            // Its own key, until the lease ends.
            Some(Some(first)) if first.revision == self.revision() => HeldNow::Nobody,
            Some(Some(first)) => {
                let Waiter {
                    label, key, token, ..
                } = Waiter::new(0, &first);
                HeldNow::Held { label, key, token }
            }
        };
        Some(LossReport::new(loss, now))
    }
}
