//! - A guard dropped in a panic, by `?`, in a thread without a runtime, after its runtime has shut down or while it
//!   does: no panic, and the key is gone at once, or with the lease where nobody is left to say so (scenario 39).
//! - A drop spawns nothing and waits for nothing (R9).
//! - A session whose runtime is gone is over: closing it says so and does not hang (R10).
//! - A holder killed with SIGKILL: the next one holds within TTL + 1 s, with a larger token (scenario 43).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use etcd_lock::{Error, LockGuard, Mutex, Session};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, timeout};

use crate::support::{
    Etcd, Puppet, connect, keys, mutex, role, say, session, soon_keys, soon_nothing, waiter,
};

#[tokio::test]
async fn a_guard_dropped_in_a_panic_gives_the_lock_up() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 600).await;
    let door = mutex(&session, "a");
    let task = tokio::spawn({
        let door = door.clone();
        async move {
            let _guard = door.lock().await.unwrap();
            panic!("the work's own panic");
        }
    });
    let panic = task.await.unwrap_err().into_panic();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "the work's own panic");
    soon_keys(&etcd.client().await, "a/", &[]).await;
    assert!(door.try_lock().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_guard_dropped_by_a_question_mark_gives_the_lock_up() {
    async fn work(door: &Mutex) -> Result<(), Box<dyn std::error::Error>> {
        let guard = door.lock().await?;
        let _number: u32 = "no number".parse()?;
        Ok(guard.release().await?)
    }
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 600).await;
    let door = mutex(&session, "a");
    let error = work(&door).await.unwrap_err().to_string();
    assert!(error.contains("invalid digit"), "{error}");
    soon_keys(&etcd.client().await, "a/", &[]).await;
    assert!(door.try_lock().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_drop_needs_no_runtime() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 600).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let second = mutex(&session, "b").lock().await.unwrap();
    let (release, wait) = (second.release(), mutex(&session, "b").lock());
    // Our own runtime has but this thread, which stands still until the others have ended.
    std::thread::spawn(move || drop(guard)).join().unwrap();
    std::thread::spawn(move || drop((release, wait)))
        .join()
        .unwrap();
    soon_keys(&client, "", &[]).await;
    assert!(session.is_certain());
    std::thread::spawn(move || drop(session)).join().unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_drop_spawns_nothing() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let mut waiting = Box::pin(mutex(&session, "a").lock());
    assert!(
        timeout(Duration::from_millis(100), &mut waiting)
            .await
            .is_err()
    );
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    drop(waiting);
    drop(guard);
    drop(session);
    assert_eq!(tasks(), before);
}

/// A runtime, on it a session with a TTL of 2 s and a lock held.
fn runtime_with_guard(etcd: &Etcd) -> (Runtime, Session, LockGuard) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let endpoint = etcd.endpoint();
    let (send, receive) = mpsc::channel();
    runtime.spawn(async move {
        let session = session(connect(&[endpoint]).await, 2).await;
        let guard = mutex(&session, "a").lock().await.unwrap();
        send.send((session, guard)).unwrap();
    });
    let (session, guard) = receive.recv().unwrap();
    (runtime, session, guard)
}

/// Drops its guard and says whether that went without a panic.
struct Dropped(Option<LockGuard>, mpsc::Sender<bool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let guard = self.0.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(guard)));
        self.1.send(dropped.is_ok()).unwrap();
    }
}

#[tokio::test]
async fn a_guard_dropped_while_its_runtime_shuts_down_leaves_with_the_lease() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (runtime, session, guard) = runtime_with_guard(&etcd);
    let (say, said) = mpsc::channel();
    let dropped = Dropped(Some(guard), say);
    runtime.spawn(async move {
        let _dropped = dropped;
        std::future::pending::<()>().await;
    });
    drop(session);
    runtime.shutdown_background();
    assert!(said.recv_timeout(Duration::from_secs(10)).unwrap());
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_guard_dropped_after_its_runtime_has_shut_down_leaves_with_the_lease() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (runtime, session, guard) = runtime_with_guard(&etcd);
    runtime.shutdown_background();
    drop(guard);
    drop(session);
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_session_whose_runtime_has_shut_down_ends_and_says_so() {
    let etcd = Etcd::start().await;
    let (runtime, session, guard) = runtime_with_guard(&etcd);
    runtime.shutdown_background();
    let ttl = session.ttl();
    let bounded = async |what: &str, call: &mut (dyn Future<Output = Option<Error>> + Unpin)| {
        let ended = timeout(2 * ttl, call).await;
        ended.unwrap_or_else(|_| panic!("{what} hangs"))
    };
    let door = mutex(&session, "b");
    let locked = bounded("lock", &mut Box::pin(async { door.lock().await.err() })).await;
    assert!(locked.is_some());
    let released = bounded(
        "release",
        &mut Box::pin(async { guard.release().await.err() }),
    )
    .await;
    assert!(released.is_some());
    let closed = bounded(
        "close",
        &mut Box::pin(async { session.close().await.err() }),
    )
    .await;
    let closed = closed
        .expect("nobody can have revoked the lease")
        .to_string();
    assert!(closed.contains("has shut down"), "{closed}");
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_free_within_the_ttl_and_a_second() {
    if role().is_some() {
        let endpoint = std::env::var("ENDPOINT").unwrap();
        let session = session(connect(&[endpoint]).await, 2).await;
        let guard = mutex(&session, "a").lock().await.unwrap();
        say(guard.token());
        guard.lost().await;
    }
    let etcd = Etcd::start().await;
    let mut holder = Puppet::rerun(
        the_lock_of_a_killed_process_is_free_within_the_ttl_and_a_second,
        "holder",
        &[("ENDPOINT", &etcd.endpoint())],
    );
    let token: u64 = holder.line().await.parse().unwrap();
    let session = session(etcd.client().await, 2).await;
    let next = waiter(&mutex(&session, "a")).await;
    // Somewhere in the course of its renewals.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..1_500))).await;
    assert!(!next.is_over(), "it was not renewed");
    let killed = Instant::now();
    holder.process.kill();
    let next = next.await.unwrap();
    let took = killed.elapsed();
    assert!(took < session.ttl() + Duration::from_secs(1), "{took:?}");
    assert!(next.token().get() > token && next.is_held());
    assert_eq!(keys(&etcd.client().await, "a/").await, [next.key()]);
}
