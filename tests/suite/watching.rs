//! What is counted, as a real exporter shows it over HTTP after real events.
//!
//! Without the feature `metrics` there is nothing to count, and these tests are left out.

use std::thread;
use std::time::Duration;

use etcd_lock::scheduler::{Tick, TickOutcome};
use etcd_lock::{Election, Error, Hold, Lost, Session};
use tokio::time::sleep;

use crate::support::{
    Etcd, Exporter, Proxy, connect, ensure, lost, mutex, session, soon, soon_keys, wait_in_line,
    waiter,
};
use crate::watching_files::swept;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn every_way_to_a_turn_and_every_way_without_one_is_counted() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(client.clone(), 30).await,
        session(client.clone(), 30).await,
    );
    exporter.soon("etcd_lock_sessions", 2.0).await;
    let door = mutex(&ours, "a");
    let guard = mutex(&theirs, "a").lock().await.unwrap();
    exporter.soon(r#"etcd_lock_held{name="a"}"#, 1.0).await;
    // Busy, too late, cancelled, lost, refused.
    assert!(door.try_lock().await.unwrap().is_err());
    let late = door.lock_within(SECOND / 10).await;
    assert!(matches!(late, Err(Error::TimedOut { .. })));
    soon_keys(&client, "a/", &[guard.key()]).await;
    drop(waiter(&door).await);
    soon_keys(&client, "a/", &[guard.key()]).await;
    let waiting = wait_in_line(&ours, "a").await;
    exporter.soon(r#"etcd_lock_waiting{name="a"}"#, 1.0).await;
    let own = door.queue().await.unwrap().pop().unwrap().key;
    client.kv_client().delete(own, None).await.unwrap();
    assert_eq!(lost(waiting.await.unwrap()), Lost::KeyDeleted);
    let large = Election::new(&ours, "a")
        .unwrap()
        .campaign(vec![0; 3_000_000]);
    assert!(matches!(large.await, Err(Error::Etcd { .. })));
    for cause in ["busy", "timed_out", "cancelled", "lost", "refused"] {
        let id = format!(r#"etcd_lock_not_acquired_total{{name="a",cause="{cause}"}}"#);
        exporter.soon(&id, 1.0).await;
    }
    exporter.soon(r#"etcd_lock_waiting{name="a"}"#, 0.0).await;

    let waiting = wait_in_line(&ours, "a").await;
    sleep(SECOND / 5).await;
    guard.release().await.unwrap();
    let (next, _) = waiting.await.unwrap().unwrap();
    exporter
        .soon(r#"etcd_lock_acquired_total{name="a"}"#, 2.0)
        .await;
    exporter.soon(r#"etcd_lock_held{name="a"}"#, 1.0).await;
    for what in ["wait_seconds_count", "hold_seconds_count"] {
        let count = exporter
            .value(&format!(r#"etcd_lock_{what}{{name="a"}}"#))
            .await;
        let wanted = if what == "wait_seconds_count" {
            2.0
        } else {
            1.0
        };
        assert!((count - wanted).abs() < 1e-9, "{count} {what}");
    }
    let waited = exporter
        .value(r#"etcd_lock_wait_seconds_sum{name="a"}"#)
        .await;
    assert!(waited > 0.2, "{waited}");
    let held = exporter
        .value(r#"etcd_lock_hold_seconds_sum{name="a"}"#)
        .await;
    assert!(held > waited, "{held}");
    // Dropped, it is given up as well.
    drop(next);
    exporter.soon(r#"etcd_lock_held{name="a"}"#, 0.0).await;
    exporter
        .soon(r#"etcd_lock_hold_seconds_count{name="a"}"#, 2.0)
        .await;
    ours.close().await.unwrap();
    exporter.soon("etcd_lock_sessions", 1.0).await;
    exporter
        .soon(r#"etcd_lock_sessions_ended_total{cause="closed"}"#, 1.0)
        .await;
    drop(theirs);
    exporter.soon("etcd_lock_sessions", 0.0).await;
    let losses = exporter.scrape().await.into_iter();
    let losses: Vec<_> = losses
        .filter(|(id, value)| id.starts_with("etcd_lock_lost_total") && *value > 0.0)
        .collect();
    assert_eq!(losses, []);
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn every_loss_is_counted_by_its_cause_at_once() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let is_lost = async |cause: &str, n: f64| {
        let id = format!(r#"etcd_lock_lost_total{{name="a",cause="{cause}"}}"#);
        exporter.soon(&id, n).await;
        exporter.soon(r#"etcd_lock_held{name="a"}"#, 0.0).await;
    };
    let ended = async |cause: &str| {
        let id = format!(r#"etcd_lock_sessions_ended_total{{cause="{cause}"}}"#);
        exporter.soon(&id, 1.0).await;
    };
    let first = session(client.clone(), 30).await;
    let deleted = mutex(&first, "a").lock().await.unwrap();
    exporter
        .soon(r#"etcd_lock_lost_total{name="a",cause="key_deleted"}"#, 0.0)
        .await;
    client
        .kv_client()
        .delete(deleted.key(), None)
        .await
        .unwrap();
    is_lost("key_deleted", 1.0).await;
    let door = mutex(&first, "a");
    let broken = door.lock().await.unwrap();
    assert!(door.break_if(broken.token()).await.unwrap().is_some());
    is_lost("broken", 1.0).await;
    let revoked = mutex(&first, "a").lock().await.unwrap();
    client
        .lease_client()
        .revoke(first.lease_id())
        .await
        .unwrap();
    is_lost("lease_gone", 1.0).await;
    ended("lease_gone").await;

    // Nobody asks it, and nobody drops it: lost by its session, old or new.
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let cut_off = session(connect(&[proxy.endpoint()]).await, 2).await;
    let old = mutex(&cut_off, "a").lock().await.unwrap();
    proxy.hold();
    is_lost("expired", 1.0).await;
    ended("expired").await;
    proxy.heal();
    let closed = session(client.clone(), 30).await;
    soon("the lease is gone", async || {
        let line = mutex(&closed, "a").queue().await.unwrap().len();
        ensure(line == 0, line)
    })
    .await;
    let new = mutex(&closed, "a").lock().await.unwrap();
    closed.close().await.unwrap();
    is_lost("closed", 1.0).await;
    ended("closed").await;

    // What was counted as lost is not counted again when it goes.
    drop((deleted, broken, revoked, old, new));
    let holds = exporter
        .value(r#"etcd_lock_hold_seconds_count{name="a"}"#)
        .await;
    assert!((holds - 5.0).abs() < 1e-9, "{holds}");
    is_lost("expired", 1.0).await;
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn a_loss_that_its_holder_sees_first_is_no_release() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    thread::sleep(3 * SECOND);
    drop(guard);
    exporter
        .soon(r#"etcd_lock_lost_total{name="a",cause="expired"}"#, 1.0)
        .await;
    exporter.soon(r#"etcd_lock_held{name="a"}"#, 0.0).await;
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn how_near_it_was_is_seen_before_anything_is_lost() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session(connect(&[proxy.endpoint()]).await, 6).await;
    exporter.soon("etcd_lock_renewal_seconds_count", 1.0).await;
    let spare = "etcd_lock_renewal_spare_min_ratio";
    let normal = exporter.value(spare).await;
    assert!(normal > 0.6, "{normal}");
    // Of the 3.4 s that the next renewal has, 1.4 are left.
    let until = session.certain_until().unwrap();
    proxy.hold();
    tokio::time::sleep_until(until - SECOND * 14 / 10).await;
    proxy.heal();
    exporter.soon("etcd_lock_renewals_late_total", 1.0).await;
    let near = exporter.value(spare).await;
    assert!(near > 0.0 && near < 0.45, "{near}");
    // It is remembered when all is well again.
    exporter.soon("etcd_lock_renewal_seconds_count", 3.0).await;
    let later = exporter.value(spare).await;
    assert!((near - later).abs() < 1e-9, "{near} {later}");
    assert!(session.is_certain());
    proxy.hold();
    assert_eq!(session.ended().await, Lost::Expired);
    exporter.soon(spare, 0.0).await;
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn standing_still_is_counted_in_seconds() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 10).await;
    let before = exporter.value("etcd_lock_stood_still_seconds_sum").await;
    thread::sleep(2 * SECOND);
    soon("it is counted", async || {
        let sum = exporter.value("etcd_lock_stood_still_seconds_sum").await - before;
        ensure(sum > 1.5, sum)
    })
    .await;
    assert!(session.is_certain());
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn a_swept_key_is_counted() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    swept(&etcd).await;
    exporter.soon("etcd_lock_swept_keys_total", 1.0).await;
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn ticks_are_counted_as_their_job() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 10).await;
    for tick in ["1", "2"] {
        let tick = Tick::new(&session, "report", tick).unwrap();
        let ran = tick.run(async |_: &Hold| Ok::<_, Error>(String::new()));
        assert!(matches!(ran.await.unwrap(), TickOutcome::Ran(_)));
    }
    exporter
        .soon(r#"etcd_lock_acquired_total{name="report/run"}"#, 2.0)
        .await;
    exporter
        .soon(r#"etcd_lock_hold_seconds_count{name="report/run"}"#, 2.0)
        .await;
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn names_can_be_left_out() {
    let exporter = Exporter::install();
    let etcd = Etcd::start().await;
    let sessions = Session::builder(etcd.client().await);
    #[cfg(feature = "metrics")]
    let sessions = sessions.names_in_metrics(false);
    let session = sessions.open().await.unwrap();
    for name in ["a", "b"] {
        mutex(&session, name)
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    exporter.soon("etcd_lock_acquired_total", 2.0).await;
    let all = exporter.scrape().await;
    assert!(all.keys().all(|id| !id.contains("name=")), "{all:#?}");
}
