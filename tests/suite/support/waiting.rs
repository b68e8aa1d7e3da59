//! Waiters, and what they leave behind.

use std::pin::Pin;
use std::task::{Context, Poll};

use etcd_client::Client;
use etcd_lock::{LockGuard, Mutex};
use tokio::task::JoinHandle;

use super::store::{keys, leases};
use super::wait::{ensure, soon};

/// A wait for a lock in a task of its own; dropping it cancels the wait, or gives up what it has won.
pub struct Waiting(JoinHandle<etcd_lock::Result<LockGuard>>);

impl Waiting {
    /// Whether the wait is over, in whatever way.
    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Future for Waiting {
    type Output = etcd_lock::Result<LockGuard>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|over| over.expect("nobody else aborts it"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts to wait for the lock; on return it stands in the line, behind whoever stood there.
pub async fn waiter(mutex: &Mutex) -> Waiting {
    let line = async || mutex.queue().await.expect("the queue is shown").len();
    let before = line().await;
    let waiting = Waiting(tokio::spawn(mutex.lock()));
    soon("the waiter stands in the line", async || {
        let now = line().await;
        ensure(now == before + 1, format!("{now} keys, {before} before"))
    })
    .await;
    waiting
}

/// Waits until exactly these keys stand behind the prefix, oldest first.
pub async fn soon_keys(client: &Client, prefix: &str, wanted: &[&str]) {
    soon("the line is as it should be", async || {
        let found = keys(client, prefix).await;
        ensure(
            found == wanted,
            format!("{found:?} instead of {wanted:?} behind {prefix:?}"),
        )
    })
    .await;
}

/// Waits until there is no key and no lease at all.
pub async fn soon_nothing(client: &Client) {
    soon("nothing is left", async || {
        let left = (keys(client, "").await, leases(client).await);
        ensure(left.0.is_empty() && left.1.is_empty(), format!("{left:?}"))
    })
    .await;
}
