//! Waiting in line, for as long as it takes and not longer:
//! - a waiter whose lease or key goes is told within a second, though the holder stays (13);
//! - a release at any moment of the waiter's joining, looking and watching wakes it (14);
//! - `lock_within` keeps its limit with all members dead or frozen, and behind a holder (19);
//! - however the one ahead goes, the next is woken (26);
//! - after a long wait the hold is certain for long (27);
//! - a holder of many TTLs keeps the line as it is (28).

use std::time::Duration;

use etcd_client::DeleteOptions;
use etcd_lock::{Error, Lost};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Etcd, Proxy, connect, keys, lost, mutex, session, unique, wait_in_line};

const SECOND: Duration = Duration::from_secs(1);

/// A TTL so long that neither a renewal nor the slow look, which comes once in it, can be what wakes a waiter.
const LONG: u64 = 60;

#[tokio::test]
async fn a_waiter_whose_lease_or_key_goes_is_told_within_a_second_near_and_far() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    for length in [1, 12] {
        let name = unique("line");
        let ahead = session(client.clone(), LONG).await;
        let mut line = Vec::new();
        for _ in 0..length {
            line.push(wait_in_line(&ahead, &name).await);
        }
        let revoked = session(client.clone(), LONG).await;
        let deleted = session(client.clone(), LONG).await;
        let first = wait_in_line(&revoked, &name).await;
        let second = wait_in_line(&deleted, &name).await;

        client.lease_revoke(revoked.lease_id()).await.unwrap();
        let told = timeout(SECOND, first).await.expect("told").unwrap();
        assert_eq!(lost(told), Lost::LeaseGone, "behind {length}");

        let all = keys(&client, &name).await;
        client
            .delete(all.last().unwrap().as_str(), None)
            .await
            .unwrap();
        let told = timeout(SECOND, second).await.expect("told").unwrap();
        assert_eq!(lost(told), Lost::KeyDeleted, "behind {length}");
        assert!(deleted.is_certain() && !revoked.is_certain());
        assert_eq!(keys(&client, &name).await.len(), length);
    }
}

#[tokio::test]
async fn a_release_at_any_moment_of_the_next_ones_coming_wakes_it() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let direct = session(etcd.client().await, LONG).await;
    let late = session(connect(&[proxy.endpoint()]).await, LONG).await;
    // Joining, watching and looking take 100 ms each, and the release falls into each of their parts.
    proxy.delay(Duration::from_millis(50));
    let mut rounds = JoinSet::new();
    for pause in (0..500).step_by(10) {
        let name = unique("gap");
        let guard = mutex(&direct, &name).lock().await.unwrap();
        let next = mutex(&late, &name).lock();
        rounds.spawn(async move {
            let next = tokio::spawn(next);
            sleep(Duration::from_millis(pause)).await;
            guard.release().await.unwrap();
            let next = timeout(5 * SECOND, next).await;
            let next = next.unwrap_or_else(|_| panic!("not woken, released after {pause} ms"));
            assert!(next.unwrap().unwrap().is_held());
        });
    }
    while let Some(round) = rounds.join_next().await {
        round.unwrap();
    }
}

#[tokio::test]
async fn lock_within_keeps_its_limit_whatever_etcd_does() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, LONG).await;
    let (free, held) = (
        mutex(&session, &unique("free")),
        mutex(&session, &unique("held")),
    );
    let _guard = held.lock().await.unwrap();
    let both_time_out = async || {
        let limit = 2 * SECOND;
        let begun = Instant::now();
        let ends = tokio::join!(free.lock_within(limit), held.lock_within(limit));
        assert!(
            matches!(ends.0, Err(Error::TimedOut { .. })),
            "{:?}",
            ends.0
        );
        assert!(
            matches!(ends.1, Err(Error::TimedOut { .. })),
            "{:?}",
            ends.1
        );
        let took = begun.elapsed();
        assert!(took >= limit && took < limit + SECOND, "{took:?}");
    };
    etcd.stop();
    both_time_out().await;
    etcd.kill();
    both_time_out().await;
    etcd.restart().await;
    let timed_out = held.lock_within(SECOND / 2).await;
    assert!(
        matches!(timed_out, Err(Error::TimedOut { .. })),
        "{timed_out:?}"
    );
    let free = free.lock_within(20 * SECOND).await.unwrap();
    free.release().await.unwrap();
}

#[tokio::test]
async fn however_the_one_ahead_goes_the_next_is_woken() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let crashing = session(connect(&[proxy.endpoint()]).await, 2).await;
    let revoked = session(client.clone(), LONG).await;
    let ahead = session(client.clone(), LONG).await;
    let behind = session(client.clone(), LONG).await;
    let root = unique("gone");
    let mut waits = Vec::new();
    for (way, holder) in [
        ("expiry", &crashing),
        ("revoke", &revoked),
        ("delete", &ahead),
        ("range", &ahead),
    ] {
        let name = format!("{root}/{way}");
        let guard = mutex(holder, &name).lock().await.unwrap();
        waits.push((guard, wait_in_line(&behind, &name).await));
    }
    let mut next = async |way: &str, bound: Duration| {
        let (guard, next) = waits.pop().unwrap();
        assert!(guard.name().ends_with(way));
        let next = timeout(bound, next)
            .await
            .unwrap_or_else(|_| panic!("not woken after {way}"));
        assert!(next.unwrap().unwrap().0.token() > guard.token());
    };
    // Only the holder's keys: they all hang on its lease, whose id is part of them.
    let first = format!("{root}/range/{:x}", ahead.lease_id());
    let range = Some(DeleteOptions::new().with_prefix());
    assert_eq!(client.delete(first, range).await.unwrap().deleted(), 1);
    next("range", SECOND).await;
    let key = format!("{root}/delete/{:x}-0", ahead.lease_id());
    assert_eq!(client.delete(key, None).await.unwrap().deleted(), 1);
    next("delete", SECOND).await;
    client.lease_revoke(revoked.lease_id()).await.unwrap();
    next("revoke", SECOND).await;
    proxy.hold();
    // Looked for by etcd every half second.
    next("expiry", crashing.ttl() + SECOND).await;
}

#[tokio::test]
async fn after_a_long_wait_the_hold_is_certain_for_long() {
    let etcd = Etcd::start().await;
    let name = unique("long");
    let holder = session(etcd.client().await, LONG).await;
    let waiter = session(etcd.client().await, 4).await;
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let next = wait_in_line(&waiter, &name).await;
    sleep(waiter.ttl().mul_f64(1.5 + fastrand::f64() / 2.0)).await;
    guard.release().await.unwrap();
    let (next, since) = next.await.unwrap().unwrap();
    let certain = next.certain_until().unwrap() - since;
    // What is left at worst: a margin of a tenth and the time between two renewals, 0.37, have gone.
    assert!(certain > waiter.ttl() / 2, "{certain:?}");
}

#[tokio::test]
async fn a_holder_of_many_ttls_keeps_the_line_as_it_is() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let name = unique("many");
    let mut line = Vec::new();
    for _ in 0..12 {
        let session = session(client.clone(), 2).await;
        line.push((wait_in_line(&session, &name).await, session));
    }
    let order = keys(&client, &name).await;
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        assert_eq!(keys(&client, &name).await, order);
        sleep(SECOND / 10).await;
    }
    for ((waiter, _session), key) in line.into_iter().zip(order) {
        let (guard, _) = waiter.await.unwrap().unwrap();
        assert_eq!(guard.key(), key);
        assert_eq!(keys(&client, &name).await[0], key);
        guard.release().await.unwrap();
    }
    assert_eq!(keys(&client, &name).await, [""; 0]);
}
