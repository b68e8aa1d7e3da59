//! - `lock()`, `try_lock()` and `release()` dropped after each poll that there is, and 1,000 times at random times:
//!   the prefix is empty soon, the next waiter gets in (scenario 15).
//! - Dropped at the very moment of winning: a guard with a live key, or no key (scenario 20).
//! - A waiter that is cancelled wakes whom it stood before.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use etcd_client::Client;
use etcd_lock::{LockGuard, Mutex};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{Etcd, mutex, session, soon_keys, soon_nothing, waiter};

/// Polls the future at most so many times, then drops it; its output if it was ready by then.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The next one gets in, and leaves nothing.
async fn next_gets_in(door: &Mutex, client: &Client) {
    let guard = door.lock_within(Duration::from_secs(20)).await;
    guard
        .expect("the next one gets in")
        .release()
        .await
        .unwrap();
    soon_keys(client, "a/", &[]).await;
}

#[tokio::test]
async fn a_lock_dropped_after_any_poll_leaves_no_key() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    // Long: nothing goes by expiry.
    let (ours, theirs) = (
        session(client.clone(), 600).await,
        session(etcd.client().await, 2).await,
    );
    let (door, next) = (mutex(&ours, "a"), mutex(&theirs, "a"));
    let mut polls = 0;
    while polled(door.lock(), polls).await.is_none() {
        soon_keys(&client, "a/", &[]).await;
        next_gets_in(&next, &client).await;
        polls += 1;
    }
    assert!(polls > 1, "a lock needs a round trip");
    next_gets_in(&next, &client).await;
    for polls in 0..=polls {
        drop(polled(door.try_lock(), polls).await);
        next_gets_in(&next, &client).await;
    }
}

#[tokio::test]
async fn a_wait_dropped_after_any_poll_leaves_the_line() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(client.clone(), 600).await,
        session(etcd.client().await, 2).await,
    );
    let (door, next) = (mutex(&ours, "a"), mutex(&theirs, "a"));
    // Near, and beyond the near window.
    for others in [0, 9] {
        let mut polls = 0;
        loop {
            let holder = next.lock().await.unwrap();
            let mut ahead = Vec::new();
            for _ in 0..others {
                ahead.push(waiter(&next).await);
            }
            // All of them leave while the wait is under way, so that it can come to its end.
            let leave = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                holder.release().await.unwrap();
                drop(ahead);
            };
            let (won, ()) = tokio::join!(polled(door.lock(), polls), leave);
            let over = won.is_some();
            drop(won);
            soon_keys(&client, "a/", &[]).await;
            next_gets_in(&next, &client).await;
            if over {
                break;
            }
            polls += 1;
            assert!(polls < 200, "the wait never comes to its end");
        }
        assert!(polls > 1, "a wait is for an answer, then for the turn");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_locks_dropped_at_random_times_leave_no_key() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut doors = Vec::new();
    for _ in 0..4 {
        let session = session(etcd.client().await, 600).await;
        doors.push(mutex(&session, "a"));
    }
    let holder = doors[0].lock().await.unwrap();
    let mut tasks = JoinSet::new();
    for n in 0..1_000 {
        let door = doors[n % doors.len()].clone();
        tasks.spawn(async move {
            let limit = Duration::from_micros(fastrand::u64(..20_000));
            timeout(limit, door.lock()).await.is_ok()
        });
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    while let Some(won) = tasks.join_next().await {
        assert!(!won.unwrap(), "a guard beside the holder");
    }
    soon_keys(&client, "a/", &[holder.key()]).await;
    let next = waiter(&doors[1]).await;
    holder.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    for door in &doors {
        next_gets_in(door, &client).await;
    }
    drop(doors);
    soon_nothing(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_short_holds_dropped_anywhere_keep_the_lock_usable() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut tasks = JoinSet::new();
    for worker in 0..10 {
        let session = session(etcd.client().await, 600).await;
        let door = mutex(&session, "a");
        tasks.spawn(async move {
            let (mut won, mut cut) = (0, 0);
            // Moves to where about every other wait comes to its turn, however slow the machine is.
            let mut given = 15_000;
            for _ in 0..100 {
                let limit = Duration::from_micros(fastrand::u64(..2 * given));
                let Ok(guard) = timeout(limit, door.lock()).await else {
                    cut += 1;
                    given += given / 8;
                    continue;
                };
                let guard = guard.unwrap();
                won += 1;
                given -= given / 8;
                if worker % 2 == 0 {
                    // Dropped somewhere in its request, too.
                    let limit = Duration::from_micros(fastrand::u64(..2_000));
                    let _maybe_cut_off = timeout(limit, guard.release()).await;
                }
            }
            (won, cut)
        });
    }
    let (mut won, mut cut) = (0, 0);
    while let Some(worker) = tasks.join_next().await {
        let worker = worker.unwrap();
        (won, cut) = (won + worker.0, cut + worker.1);
    }
    assert!(
        won > 100 && cut > 100,
        "tests nothing: {won} won, {cut} cut"
    );
    soon_keys(&client, "a/", &[]).await;
    soon_nothing(&client).await;
}

/// Whether the guard's key stands in etcd with its token.
async fn key_is_alive(client: &Client, guard: &LockGuard) -> bool {
    let found = client.kv_client().get(guard.key(), None).await.unwrap();
    let created = found
        .kvs()
        .first()
        .map(etcd_client::KeyValue::create_revision);
    created.map(i64::cast_unsigned) == Some(guard.token().get())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_moment_of_winning_there_is_a_guard_with_a_key_or_neither() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(client.clone(), 600).await,
        session(etcd.client().await, 2).await,
    );
    let (door, next) = (mutex(&ours, "a"), mutex(&theirs, "a"));
    // The time given to the waiter after the release moves to where it wins every other time.
    let mut given = Duration::from_micros(500);
    let (mut won, mut cut) = (0, 0);
    while won < 100 || cut < 100 {
        let holder = next.lock().await.unwrap();
        let mut waiting = Box::pin(door.lock());
        let early = timeout(Duration::from_millis(5), &mut waiting).await;
        assert!(early.is_err());
        let (outcome, released) = tokio::join!(
            async move { timeout(given, waiting).await.ok() },
            holder.release(),
        );
        released.unwrap();
        if let Some(guard) = outcome {
            let guard = guard.unwrap();
            assert!(guard.is_held() && key_is_alive(&client, &guard).await);
            guard.release().await.unwrap();
            won += 1;
            given = given.mul_f64(0.9);
        } else {
            cut += 1;
            given = given.mul_f64(1.1);
        }
        next_gets_in(&next, &client).await;
    }
}

#[tokio::test]
async fn a_release_dropped_after_any_poll_is_carried_out() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 600).await;
    let door = mutex(&session, "a");
    let mut polls = 0;
    loop {
        let guard = door.lock().await.unwrap();
        let released = polled(guard.release(), polls).await;
        soon_keys(&client, "a/", &[]).await;
        if let Some(released) = released {
            released.unwrap();
            break;
        }
        polls += 1;
    }
    assert!(polls > 0);
    assert!(session.is_certain(), "the keys went one by one");
}

#[tokio::test]
async fn cancelled_waiters_wake_whom_they_stood_before() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let holder = door.lock().await.unwrap();
    let second = waiter(&door).await;
    let third = waiter(&door).await;
    holder.release().await.unwrap();
    // Its turn has come or is just coming.
    drop(second);
    assert!(third.await.unwrap().is_held());
}
