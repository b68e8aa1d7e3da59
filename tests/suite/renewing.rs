//! Renewal goes on through what is no loss, and asks no more than it has to:
//! - the member that carries it frozen, two healthy (29);
//! - every connection reset once a second: renewals stay near one in TTL/3, streams near one a reset (32);
//! - a client with a request timeout of its own (34), or one that pings more often than etcd lets it;
//! - attempts that hang leave room for others within the smallest TTL; nonsense is refused (35);
//! - a session that was slow to open lives.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use etcd_lock::{Error, LockGuard, Session};
use tokio::time::{Instant, interval, sleep, timeout};

use crate::support::{
    BOUND, Cluster, Etcd, Proxy, connect, ensure, mutex, scattering, session, unique, wait_in_line,
    within,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_member_frozen_under_renewals_costs_no_lock_and_no_error() {
    // Two elections in a row, should the first end in a tie, fit into what is left after a renewal was due.
    const TTL: u64 = 8;
    let cluster = Cluster::start(3).await;
    let client = scattering(&cluster.endpoints()).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        let session = session(client.clone(), TTL).await;
        let guard = mutex(&session, &unique("held")).lock().await.unwrap();
        held.push(guard);
    }
    let other = session(client, 2 * TTL).await;
    // Each has renewed once then, and so has a stream with a member of the client's choice.
    sleep(Duration::from_secs(TTL) / 2).await;
    for frozen in &cluster.members {
        assert!(frozen.open_streams("LeaseKeepAlive").await > 0.0);
        frozen.stop();
        let until = Instant::now() + Duration::from_secs(TTL);
        while Instant::now() < until {
            assert!(held.iter().all(|guard| guard.is_held()));
            let guard = mutex(&other, &unique("other")).lock().await.unwrap();
            guard.release().await.unwrap();
            sleep(SECOND / 20).await;
        }
        // Back to life as if nothing had been, a leader would revoke the leases that it has not seen renewed (all
        // etcd 3.4 and 3.5 do, if there are many): so this one does not come back to that life.
        frozen.restart().await;
    }
    for guard in held {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn connections_reset_once_a_second_cost_no_session_and_few_renewals() {
    const RESETS: u32 = 12;
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let holder = session(connect(&[proxy.endpoint()]).await, 3).await;
    let name = unique("reset");
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let waiting = session(connect(&[proxy.endpoint()]).await, 3).await;
    let waiter = wait_in_line(&waiting, &name).await;
    let mut seconds = interval(SECOND);
    for _ in 0..RESETS {
        seconds.tick().await;
        proxy.reset_all();
        assert!(guard.is_held() && waiting.is_certain() && !waiter.is_finished());
    }
    let received = etcd
        .metric_sum(
            "grpc_server_msg_received_total",
            "grpc_method=\"LeaseKeepAlive\"",
        )
        .await;
    // For each session 12 s at one a second, or 0.9 s with the jitter; each may have to be said twice.
    assert!((16.0..=52.0).contains(&received), "{received} renewals");
    // For each reset and session one of each, tried twice.
    for method in ["LeaseKeepAlive", "Watch"] {
        let streams = etcd.calls(method).await;
        assert!(
            streams <= f64::from(2 * 2 * (RESETS + 1)),
            "{streams} streams of {method}"
        );
    }
    guard.release().await.unwrap();
    let next = timeout(5 * SECOND, waiter)
        .await
        .expect("its turn")
        .unwrap();
    assert!(next.unwrap().0.is_held());
}

#[tokio::test]
async fn a_request_timeout_of_the_client_harms_neither_waiting_nor_holding() {
    let etcd = Etcd::start().await;
    let options = ConnectOptions::new().with_timeout(SECOND);
    let client = Client::connect([etcd.endpoint()], Some(options))
        .await
        .unwrap();
    let name = unique("timeout");
    let holder = session(client.clone(), 3).await;
    let waiting = session(client, 3).await;
    let guard = mutex(&holder, &name).lock().await.unwrap();
    let waiter = wait_in_line(&waiting, &name).await;
    sleep(4 * SECOND).await;
    assert!(guard.is_held() && !waiter.is_finished());
    let streams = etcd.calls("Watch").await;
    // One each, and another where the first was slow; cut at every timeout there would be eight.
    assert!(streams <= 4.0, "{streams} streams of watches");
    guard.release().await.unwrap();
    let next = timeout(SECOND, waiter).await.expect("its turn").unwrap();
    let (next, _) = next.unwrap();
    sleep(4 * SECOND).await;
    assert!(next.is_held());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_client_that_pings_too_often_is_told_off_and_keeps_its_lock_and_place() {
    let etcd = Etcd::start().await;
    // etcd takes one in 5 s, and closes the connection at the third that comes too early, unless it has had something to
    // say in between: so renewals are seldom here.
    let options = ConnectOptions::new()
        .with_keep_alive(SECOND / 2, SECOND)
        .with_keep_alive_while_idle(true);
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = Client::connect([proxy.endpoint()], Some(options)).await;
    let (ours, theirs) = (
        session(client.unwrap(), 45).await,
        session(etcd.client().await, 45).await,
    );
    let name = unique("pings");
    let held = mutex(&ours, &unique("held")).lock().await.unwrap();
    let before = mutex(&theirs, &name).lock().await.unwrap();
    let waiter = wait_in_line(&ours, &name).await;
    within(4 * BOUND, "it was told off three times", async || {
        assert!(held.is_held() && ours.is_certain() && !waiter.is_finished());
        ensure(proxy.opened() > 3, proxy.opened())
    })
    .await;
    before.release().await.unwrap();
    let next = timeout(5 * SECOND, waiter)
        .await
        .expect("its turn")
        .unwrap();
    next.unwrap().0.release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn renewals_that_hang_leave_room_for_others_within_the_smallest_ttl() {
    let etcd = Etcd::start().await;
    let (silent, sound) = (
        Proxy::to(&etcd.endpoint()).await,
        Proxy::to(&etcd.endpoint()).await,
    );
    let client = connect(&[silent.endpoint(), sound.endpoint()]).await;
    let mut guards: Vec<LockGuard> = Vec::new();
    for _ in 0..20 {
        let session = session(client.clone(), 2).await;
        guards.push(mutex(&session, &unique("room")).lock().await.unwrap());
    }
    silent.hold();
    let until = Instant::now() + 3 * 2 * SECOND;
    while Instant::now() < until {
        assert!(guards.iter().all(|guard| guard.is_held()));
        sleep(SECOND / 20).await;
    }
}

#[tokio::test]
async fn a_ttl_or_margin_that_cannot_work_is_refused_before_anything_is_sent() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let milliseconds = Duration::from_millis;
    let long = "ttl is longer than etcd grants; give less";
    let half =
        "margin of 1.501s does not suit a ttl of 3s; give more than 0 and at most half the ttl";
    let refused = [
        (
            Duration::ZERO,
            None,
            "ttl of 0ns is too short; give 1 s or more",
        ),
        (milliseconds(999), None, "ttl of 999ms is too short"),
        (milliseconds(9_000_000_000_001), None, long),
        (Duration::MAX, None, long),
        (
            3 * SECOND,
            Some(Duration::ZERO),
            "margin of 0ns does not suit a ttl of 3s",
        ),
        (3 * SECOND, Some(milliseconds(1501)), half),
        (
            3 * SECOND,
            Some(3 * SECOND),
            "margin of 3s does not suit a ttl of 3s",
        ),
        (3 * SECOND, Some(Duration::MAX), "margin of"),
    ];
    for (ttl, margin, why) in refused {
        let mut builder = Session::builder(client.clone()).ttl(ttl);
        if let Some(margin) = margin {
            builder = builder.margin(margin);
        }
        let error = builder.open().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert!(error.to_string().starts_with(why), "{error}");
    }
    assert!(etcd.calls("LeaseGrant").await < 1.0);
    let odd = Session::builder(client)
        .ttl(milliseconds(2001))
        .margin(SECOND);
    assert_eq!(odd.open().await.unwrap().ttl(), 3 * SECOND);
}

#[tokio::test]
async fn a_session_that_was_slow_to_open_lives() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    proxy.hold();
    let opening = tokio::spawn(session(connect(&[proxy.endpoint()]).await, 2));
    sleep(3 * SECOND).await;
    assert!(!opening.is_finished());
    proxy.heal();
    let session = opening.await.unwrap();
    let certain = session.certain_until().expect("alive");
    assert!(
        certain > Instant::now() + SECOND,
        "{:?}",
        certain - Instant::now()
    );
    let guard = mutex(&session, &unique("slow")).lock().await.unwrap();
    sleep(2 * session.ttl()).await;
    assert!(guard.is_held());
}
