//! A loss is told with its cause, before anybody else can hold, and for good:
//! - work behind a silent cut is stopped before the next holds (1);
//! - all members dead: the session ends within its TTL, later calls fail at once, closing returns (2);
//! - the key deleted by an operator: at any moment, at the very turn, while the line is cut (3);
//! - the key gone while every renewal is answered (4);
//! - the lease revoked by hand: under a holder, a waiter, an idle session (5);
//! - a timeout around `lock` is none of renewal's business (6);
//! - a renewal that "succeeds" after the loss brings nothing back (10).

use std::time::Duration;

use etcd_client::PutOptions;
use etcd_lock::{Error, Lost};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    Cluster, Etcd, Member, Proxy, connect, ensure, leases, lost, mutex, session, soon, unique,
    wait_in_line,
};

const SECOND: Duration = Duration::from_secs(1);

/// Waits until the only holder has looked at its key, after its watch was confirmed.
async fn watches_its_key(etcd: &Etcd) {
    soon("the key is watched", async || {
        let looks = etcd.calls("Range").await;
        ensure(looks > 0.0, "no look at it yet")
    })
    .await;
}

#[tokio::test]
async fn work_behind_a_silent_cut_is_stopped_before_the_next_holds() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let name = unique("cut");
    let cut_off = session(connect(&[proxy.endpoint()]).await, 3).await;
    let guard = mutex(&cut_off, &name).lock().await.unwrap();
    let direct = session(etcd.client().await, 3).await;
    let next = wait_in_line(&direct, &name).await;
    proxy.hold();
    let mut last_step = Instant::now();
    let work = async {
        loop {
            last_step = Instant::now();
            sleep(Duration::from_millis(2)).await;
        }
    };
    let stopped: Result<(), Lost> = guard.run_until_lost(work).await;
    assert_eq!(stopped, Err(Lost::Expired));
    assert!(!next.is_finished() && !guard.is_held());
    let (next, since) = next.await.unwrap().unwrap();
    assert!(last_step < since);
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn with_all_members_dead_a_session_ends_within_its_ttl_and_nothing_hangs() {
    let cluster = Cluster::start(3).await;
    let session = session(cluster.client().await, 3).await;
    let mutex = mutex(&session, &unique("dead"));
    let guard = mutex.lock().await.unwrap();
    let waiter = wait_in_line(&session, mutex.name()).await;
    cluster.members.iter().for_each(Member::kill);
    let killed = Instant::now();
    assert_eq!(session.ended().await, Lost::Expired);
    assert!(killed.elapsed() < session.ttl(), "{:?}", killed.elapsed());
    assert_eq!(lost(waiter.await.unwrap()), Lost::Expired);
    assert_eq!(guard.lost().await, Lost::Expired);
    let later = async {
        assert_eq!(lost(mutex.lock().await), Lost::Expired);
        assert_eq!(lost(mutex.try_lock().await), Lost::Expired);
        assert_eq!(lost(mutex.lock_within(60 * SECOND).await), Lost::Expired);
        assert_eq!(lost(mutex.queue().await), Lost::Expired);
        assert_eq!(lost(guard.release().await), Lost::Expired);
    };
    timeout(SECOND, later)
        .await
        .expect("later calls fail at once");
    let closed = timeout(session.ttl() + SECOND, session.close()).await;
    let closed = closed.expect("closing returns").unwrap_err();
    assert!(matches!(closed, Error::Unconfirmed { .. }), "{closed}");
}

#[tokio::test]
async fn a_key_deleted_under_a_holder_is_told_within_a_second() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 30).await;
    let mutex = mutex(&session, &unique("deleted"));
    let guard = mutex.lock().await.unwrap();
    watches_its_key(&etcd).await;
    client.kv_client().delete(guard.key(), None).await.unwrap();
    let told = timeout(SECOND, guard.lost()).await;
    assert_eq!(told.expect("told within a second"), Lost::KeyDeleted);
    assert!(!guard.is_held() && guard.certain_until().is_none());
    assert!(session.is_certain(), "the session lost nothing");
    let again = mutex.lock().await.unwrap();
    assert!(again.token() > guard.token() && again.is_held() && !guard.is_held());
}

#[tokio::test]
async fn a_key_deleted_at_the_very_turn_is_told_within_a_second() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 30).await;
    let mut rounds = JoinSet::new();
    for pause in (0..300).step_by(10) {
        let client = etcd.client().await;
        let lock = mutex(&session, &unique("turn")).lock();
        rounds.spawn(async move {
            let guard = lock.await.unwrap();
            sleep(Duration::from_millis(pause)).await;
            client.kv_client().delete(guard.key(), None).await.unwrap();
            let told = timeout(SECOND, guard.lost()).await;
            assert_eq!(told, Ok(Lost::KeyDeleted), "deleted after {pause} ms");
        });
    }
    while let Some(round) = rounds.join_next().await {
        round.unwrap();
    }
}

#[tokio::test]
async fn a_key_deleted_while_the_line_is_cut_is_told_once_it_heals() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session(connect(&[proxy.endpoint()]).await, 30).await;
    let guard = mutex(&session, &unique("gap")).lock().await.unwrap();
    watches_its_key(&etcd).await;
    proxy.cut();
    let mut client = etcd.client().await;
    client.delete(guard.key(), None).await.unwrap();
    sleep(SECOND / 2).await;
    assert!(guard.is_held(), "nobody can have told it");
    proxy.heal();
    let told = timeout(5 * SECOND, guard.lost()).await;
    assert_eq!(told, Ok(Lost::KeyDeleted));
}

#[tokio::test]
async fn answered_renewals_do_not_keep_a_hold_whose_key_is_gone() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let session = session(client.clone(), 2).await;
    let guard = mutex(&session, &unique("renewed")).lock().await.unwrap();
    // The key moves to another lease and dies with it; ours stands, and is renewed.
    let other = client.lease_grant(60, None).await.unwrap().id();
    let moved = PutOptions::new().with_lease(other);
    client.put(guard.key(), "", Some(moved)).await.unwrap();
    sleep(SECOND / 2).await;
    assert!(guard.is_held(), "the key still is the one it created");
    client.lease_revoke(other).await.unwrap();
    let told = timeout(SECOND, guard.lost()).await;
    assert_eq!(told, Ok(Lost::KeyDeleted));
    let certain = session.certain_until().expect("the session lives");
    sleep(2 * session.ttl()).await;
    assert!(session.certain_until().expect("the session lives") > certain + session.ttl());
    assert!(!guard.is_held());
    assert_eq!(lost(guard.release().await), Lost::KeyDeleted);
}

#[tokio::test]
async fn a_lease_revoked_by_hand_is_told_to_holder_and_waiter_within_a_second() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let name = unique("revoked");
    let holder = session(client.clone(), 30).await;
    let waiter = session(client.clone(), 30).await;
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let waiting = wait_in_line(&waiter, &name).await;
    client.lease_revoke(waiter.lease_id()).await.unwrap();
    let told = timeout(SECOND, waiting).await;
    let told = told.expect("told within a second").unwrap();
    assert_eq!(lost(told), Lost::LeaseGone);
    assert!(guard.is_held() && !waiter.is_certain());
    client.lease_revoke(holder.lease_id()).await.unwrap();
    let told = timeout(SECOND, guard.lost()).await;
    assert_eq!(told, Ok(Lost::LeaseGone));
    assert!(!guard.is_held() && !holder.is_certain());
    assert_eq!(holder.ended().await, Lost::LeaseGone);
}

#[tokio::test]
async fn an_idle_session_learns_of_its_revoke_by_its_next_renewal_or_use() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let idle = session(client.clone(), 3).await;
    let used = session(client.clone(), 30).await;
    client.lease_revoke(idle.lease_id()).await.unwrap();
    client.lease_revoke(used.lease_id()).await.unwrap();
    let told = timeout(SECOND, mutex(&used, &unique("revoked")).lock()).await;
    assert_eq!(lost(told.expect("told at once")), Lost::LeaseGone);
    // A third of a TTL, with its jitter, and a second.
    let told = timeout((idle.ttl() / 3).mul_f64(1.1) + SECOND, idle.ended()).await;
    assert_eq!(told, Ok(Lost::LeaseGone));
}

#[tokio::test]
async fn a_timeout_around_lock_does_not_touch_renewal() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let (first, second) = (unique("timeout"), unique("within"));
    let (first, second) = (mutex(&session, &first), mutex(&session, &second));
    let guards = [
        timeout(SECOND / 2, first.lock()).await.unwrap().unwrap(),
        second.lock_within(SECOND / 2).await.unwrap(),
    ];
    let until = Instant::now() + 3 * session.ttl();
    while Instant::now() < until {
        assert!(guards.iter().all(|guard| guard.is_held()));
        sleep(Duration::from_millis(20)).await;
    }
    let [first, second] = guards;
    first.release().await.unwrap();
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_lost_guard_stays_lost_when_its_renewals_are_answered_late() {
    let etcd = Etcd::start().await;
    let direct = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let name = unique("late");
    let late = session(connect(&[proxy.endpoint()]).await, 2).await;
    let guard = mutex(&late, &name).lock().await.unwrap();
    // etcd gets every renewal and grants it.
    proxy.hold_answers();
    assert_eq!(guard.lost().await, Lost::Expired);
    let kept = proxy.bytes_down();
    proxy.heal();
    soon("the late answers arrive", async || {
        ensure(proxy.bytes_down() > kept, "not yet")
    })
    .await;
    soon("the lost lease is given back", async || {
        let left = leases(&direct).await;
        ensure(left.is_empty(), format!("{left:?}"))
    })
    .await;
    let fresh = session(connect(&[proxy.endpoint()]).await, 2).await;
    let next = mutex(&fresh, &name).lock().await.unwrap();
    assert!(next.token() > guard.token());
    let until = Instant::now() + 2 * fresh.ttl();
    while Instant::now() < until {
        assert!(next.is_held() && !guard.is_held() && !late.is_certain());
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(lost(mutex(&late, &name).lock().await), Lost::Expired);
}
