//! Waiting while the line to etcd breaks or its members fail:
//! - compaction while the waiter's watch is broken costs no place (21);
//! - a member restarted under 50 waiters: order kept, all get their turn (22);
//! - the member that a waiter's watch hangs on is frozen: a release through another wakes it (23);
//! - a client cut off from etcd stops waiting with its session (24);
//! - a release in the gap between a cut and the new watch is not missed (25).

use std::time::Duration;

use etcd_client::CompactionOptions;
use etcd_lock::Lost;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::support::{
    Cluster, Etcd, Member, Proxy, connect, ensure, keys, lost, mutex, scattering, session, soon,
    unique, wait_in_line,
};

const SECOND: Duration = Duration::from_secs(1);

async fn watchers(member: &Member) -> f64 {
    member.metric("etcd_debugging_mvcc_watcher_total").await
}

/// Waits until that many watches are open on the member.
async fn watched(member: &Member, at_least: f64) {
    soon("the watches are open", async || {
        let open = watchers(member).await;
        ensure(open >= at_least, open)
    })
    .await;
}

#[tokio::test]
async fn a_compaction_while_its_watch_is_broken_costs_a_waiter_no_place() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let name = unique("compacted");
    let ahead = session(client.clone(), 30).await;
    let cut_off = session(connect(&[proxy.endpoint()]).await, 30).await;
    let behind = session(client.clone(), 30).await;
    let guard = mutex(&ahead, &name).lock().await.unwrap();
    let waiter = wait_in_line(&cut_off, &name).await;
    let third = wait_in_line(&behind, &name).await;
    watched(&etcd, 3.0).await;
    proxy.cut();
    let mut revision = 0;
    for _ in 0..10 {
        let put = client.put("other", "", None).await.unwrap();
        revision = put.header().unwrap().revision();
    }
    let physical = Some(CompactionOptions::new().with_physical());
    client.compact(revision, physical).await.unwrap();
    proxy.heal();
    watched(&etcd, 3.0).await;
    assert!(!waiter.is_finished());
    let place = keys(&client, &name).await[1].clone();
    guard.release().await.unwrap();
    let (next, _) = timeout(5 * SECOND, waiter)
        .await
        .expect("woken")
        .unwrap()
        .unwrap();
    assert_eq!(next.key(), place);
    assert!(!third.is_finished());
    next.release().await.unwrap();
    let third = timeout(SECOND, third).await.expect("woken").unwrap();
    assert!(third.unwrap().0.is_held());
}

#[tokio::test]
async fn a_member_restarted_under_fifty_waiters_keeps_their_order_and_all_get_their_turn() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let name = unique("restart");
    let holder = session(client.clone(), 10).await;
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let mut line = Vec::new();
    for _ in 0..10 {
        let session = session(etcd.client().await, 10).await;
        for _ in 0..5 {
            line.push(wait_in_line(&session, &name).await);
        }
    }
    let order = keys(&client, &name).await.split_off(1);
    assert_eq!(order.len(), 50);
    etcd.kill();
    etcd.restart().await;
    guard.release().await.unwrap();
    for (i, (waiter, key)) in line.into_iter().zip(order).enumerate() {
        let turn = timeout(10 * SECOND, waiter).await;
        let (next, _) = turn
            .unwrap_or_else(|_| panic!("{i} gets no turn"))
            .unwrap()
            .unwrap();
        assert_eq!(next.key(), key);
        // Once more, while they take their turns.
        if i == 20 {
            etcd.kill();
            etcd.restart().await;
        }
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_whose_watch_hangs_on_a_frozen_member_is_woken_by_a_release_through_another() {
    let cluster = Cluster::start(3).await;
    for (i, frozen) in cluster.members.iter().enumerate() {
        let healthy = &cluster.members[(i + 1) % 3];
        let holder = session(healthy.client().await, 12).await;
        let before = watchers(frozen).await;
        // The client chooses the member, so as many wait as it takes.
        let mut waiters = Vec::new();
        while watchers(frozen).await <= before {
            let name = unique("frozen");
            let guard = mutex(&holder, &name).lock().await.unwrap();
            let session = session(scattering(&cluster.endpoints()).await, 12).await;
            waiters.push((guard, wait_in_line(&session, &name).await));
        }
        frozen.stop();
        // By then a silent stream has been given up, and the slow look, once in a TTL, has not come.
        let bound = Instant::now() + 8 * SECOND;
        let (guards, waiters): (Vec<_>, Vec<_>) = waiters.into_iter().unzip();
        for guard in guards {
            guard.release().await.unwrap();
        }
        for waiter in waiters {
            let next = timeout_at(bound, waiter).await.expect("woken in time");
            assert!(next.unwrap().unwrap().0.is_held());
        }
        frozen.restart().await;
    }
}

#[tokio::test]
async fn a_waiter_cut_off_from_etcd_stops_waiting_with_its_session() {
    let etcd = Etcd::start().await;
    let (silent, refusing) = (
        Proxy::to(&etcd.endpoint()).await,
        Proxy::to(&etcd.endpoint()).await,
    );
    let name = unique("cut");
    let holder = session(etcd.client().await, 30).await;
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let mut waiters = Vec::new();
    for proxy in [&silent, &refusing] {
        let session = session(connect(&[proxy.endpoint()]).await, 3).await;
        waiters.push(wait_in_line(&session, &name).await);
    }
    silent.hold();
    refusing.cut();
    let cut = Instant::now();
    for waiter in waiters {
        let told = timeout_at(cut + 3 * SECOND, waiter).await;
        assert_eq!(
            lost(told.expect("told within a TTL").unwrap()),
            Lost::Expired
        );
    }
    let client = etcd.client().await;
    soon("only the holder stands there", async || {
        let left = keys(&client, &name).await;
        ensure(left == [guard.key()], format!("{left:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_release_at_any_moment_of_a_cut_and_its_healing_is_not_missed() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let holder = session(etcd.client().await, 60).await;
    // One watch stream carries all of them.
    let cut_off = session(connect(&[proxy.endpoint()]).await, 60).await;
    let mut line = Vec::new();
    for pause in (0..1500).step_by(25) {
        let name = unique("gap");
        let guard = mutex(&holder, &name).lock().await.unwrap();
        let waiter = wait_in_line(&cut_off, &name).await;
        line.push((Duration::from_millis(pause), guard, waiter));
    }
    // Each waiter's, and each hold's own.
    watched(&etcd, 2.0 * 60.0).await;
    proxy.cut();
    let cut = Instant::now();
    let mut ends = JoinSet::new();
    for (pause, guard, waiter) in line {
        ends.spawn(async move {
            sleep_until(cut + pause).await;
            guard.release().await.unwrap();
            let next = timeout(8 * SECOND, waiter).await;
            let next =
                next.unwrap_or_else(|_| panic!("not woken, released {pause:?} after the cut"));
            assert!(next.unwrap().unwrap().0.is_held());
        });
    }
    sleep_until(cut + SECOND / 2).await;
    proxy.heal();
    // New watches and looks take their time.
    proxy.delay(SECOND / 10);
    while let Some(end) = ends.join_next().await {
        end.unwrap();
    }
}
