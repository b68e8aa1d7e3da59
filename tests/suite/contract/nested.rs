//! `a` and `a/b` are different locks, although the keys of `a/b` stand behind the prefix of `a`: for a lock, a try, a
//! wait and the queue, and also where so many keys are nested that they fill the near window.

use std::time::Duration;

use etcd_lock::{LockGuard, Session};
use tokio::time::timeout;

use crate::support::{Etcd, keys, mutex, session, soon, waiter};

/// More than the near window, which reads 4 or 5 keys.
const MANY: usize = 12;

async fn hold(session: &Session, name: &str) -> LockGuard {
    let locked = mutex(session, name)
        .lock_within(Duration::from_secs(10))
        .await;
    locked.unwrap()
}

/// Holds of `a/b/0`, `a/b/1` and so on, and one of `a/b`.
async fn nested(session: &Session, many: usize) -> Vec<LockGuard> {
    let mut guards = vec![hold(session, "a/b").await];
    for n in 0..many {
        guards.push(hold(session, &format!("a/b/{n}")).await);
    }
    guards
}

#[tokio::test]
async fn a_lock_is_free_while_those_below_its_name_are_held() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    for many in [0, MANY] {
        let nested = nested(&theirs, many).await;
        hold(&ours, "a").await.release().await.unwrap();
        let tried = mutex(&ours, "a").try_lock().await.unwrap();
        let guard = tried.unwrap_or_else(|busy| panic!("{many} nested: {busy}"));
        guard.release().await.unwrap();
        for guard in nested {
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn locks_below_a_name_are_free_while_it_is_held() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let _above = hold(&ours, "a").await;
    let _below = hold(&theirs, "a/b").await;
    let tried = mutex(&ours, "a/b/c").try_lock().await.unwrap();
    assert!(tried.is_ok(), "{tried:?}");
    let _sibling = hold(&ours, "a/bb").await;
}

#[tokio::test]
async fn a_try_that_fails_among_nested_keys_names_the_holder_and_leaves_nothing() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    // Older and younger than the holder's key.
    let _nested = nested(&theirs, MANY).await;
    let holder = hold(&theirs, "a").await;
    let _younger = hold(&theirs, "a/c").await;
    let before = keys(&client, "a/").await;
    let busy = mutex(&ours, "a").try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.holder().key, holder.key());
    assert_eq!(busy.holder().token, holder.token());
    assert_eq!(keys(&client, "a/").await, before);
}

#[tokio::test]
async fn of_two_tries_among_nested_keys_at_most_one_gets_in() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let _nested = nested(&theirs, 1).await;
    let (mut won, mut tries) = (0, 0);
    while won < 10 {
        let (one, other) =
            tokio::join!(mutex(&ours, "a").try_lock(), mutex(&theirs, "a").try_lock());
        let guards: Vec<_> = [one.unwrap(), other.unwrap()]
            .into_iter()
            .flatten()
            .collect();
        assert!(guards.len() < 2, "{guards:?}");
        for guard in guards {
            guard.release().await.unwrap();
            won += 1;
        }
        // The loser has put a key for a moment; it is taken back before the try returns.
        let left = keys(&client, "a/").await;
        assert_eq!(left.len(), 2, "{left:?}");
        tries += 1;
        assert!(tries < 1_000, "nobody ever wins");
    }
}

#[tokio::test]
async fn a_wait_ends_with_its_own_line_whatever_is_nested() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    for many in [1, MANY] {
        let mut below = nested(&theirs, many).await;
        let holder = hold(&theirs, "a").await;
        below.push(hold(&theirs, "a/c").await);
        let mut waiting = waiter(&mutex(&ours, "a")).await;
        // Deletes behind its prefix that are none of its business.
        for guard in below.drain(..2) {
            guard.release().await.unwrap();
        }
        let early = timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(early.is_err(), "{early:?}");
        holder.release().await.unwrap();
        let guard = soon("the waiter gets in", async || {
            timeout(Duration::from_secs(15), &mut waiting)
                .await
                .map_err(|_| "it waits for nested keys".to_owned())
        })
        .await;
        guard.unwrap().release().await.unwrap();
        for guard in below {
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_queue_shows_its_own_line_only() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (
        session(etcd.client().await, 2).await,
        session(etcd.client().await, 2).await,
    );
    let nested = nested(&theirs, MANY).await;
    let holder = hold(&ours, "a").await;
    let _waiting = waiter(&mutex(&theirs, "a")).await;
    let _younger = hold(&theirs, "a/c").await;
    let line = mutex(&ours, "a").queue().await.unwrap();
    assert_eq!(line.len(), 2, "{line:?}");
    assert_eq!(line[0].key, holder.key());
    assert_eq!(line[1].lease, theirs.lease_id());
    let below = mutex(&ours, "a/b").queue().await.unwrap();
    let below: Vec<_> = below.iter().map(|waiter| waiter.key.as_str()).collect();
    assert_eq!(below, [nested[0].key()]);
}
