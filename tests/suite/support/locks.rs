//! Short forms of what most tests do with the crate.

use std::fmt::Debug;
use std::time::Duration;

use etcd_client::Client;
use etcd_lock::{Error, LockGuard, Lost, Mutex, Result, Session};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::wait::BOUND;

/// A session with a TTL in seconds.
pub async fn session(client: Client, ttl: u64) -> Session {
    let ttl = Duration::from_secs(ttl);
    let opened = Session::builder(client).ttl(ttl).open().await;
    opened.expect("the session opens")
}

/// A lock of that session.
pub fn mutex(session: &Session, name: &str) -> Mutex {
    Mutex::new(session, name).expect("a good name")
}

/// A guard that was had after a wait, and the instant at which it was.
pub type Turn = (LockGuard, Instant);

/// Waits in line in a task of its own, whose key stands on return.
pub async fn wait_in_line(session: &Session, name: &str) -> JoinHandle<Result<Turn>> {
    let mutex = mutex(session, name);
    let before = length(&mutex).await;
    let lock = mutex.lock();
    let waiting = tokio::spawn(async { lock.await.map(|guard| (guard, Instant::now())) });
    let stands = async {
        while length(&mutex).await <= before {
            sleep(Duration::from_millis(2)).await;
        }
    };
    // Not `soon`, whose futures cannot go into a task.
    let stands = timeout(BOUND, stands).await;
    stands.expect("the waiter stands in line soon");
    waiting
}

async fn length(mutex: &Mutex) -> usize {
    mutex.queue().await.expect("the queue can be read").len()
}

/// How it was lost, if that is how it ended.
#[track_caller]
pub fn lost<T: Debug>(result: Result<T>) -> Lost {
    match result {
        Err(Error::Lost(lost)) => lost,
        other => panic!("not a loss: {other:?}"),
    }
}
