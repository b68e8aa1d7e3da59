//! Something that is told once, for good.

use std::sync::OnceLock;
use tokio::sync::Notify;

/// What is told, and to whom: everybody who waits for it, in the order in which they came.
pub(crate) struct Told<T> {
    what: OnceLock<T>,
    news: Notify,
}

impl<T> Default for Told<T> {
    fn default() -> Self {
        Self {
            what: OnceLock::new(),
            news: Notify::new(),
        }
    }
}

impl<T: Copy> Told<T> {
    /// The first that is told counts; gives true if it was this.
    pub(crate) fn tell(&self, what: T) -> bool {
        let first = self.what.set(what).is_ok();
        if first {
            self.news.notify_waiters();
        }
        first
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.what.get().copied()
    }

    /// Waits until it is told.
    pub(crate) async fn told(&self) -> T {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Registered before the question, so that no news falls in between.
            news.as_mut().enable();
            if let Some(what) = self.get() {
                return what;
            }
            news.await;
        }
    }
}
