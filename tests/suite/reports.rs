//! A loss is explained: its cause, when etcd was heard last, whether this process stood still, who holds now.

use std::env::var;
use std::thread;
use std::time::Duration;

use etcd_lock::{HeldNow, LossReport, Lost, Session};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use crate::support::{
    Etcd, Proxy, Puppet, connect, ensure, mutex, role, say, session, soon, unique, wait_in_line,
};

const SECOND: Duration = Duration::from_secs(1);

/// The label and token of who holds now.
#[track_caller]
fn holder(report: &LossReport) -> (&str, u64) {
    match &report.now {
        HeldNow::Held { label, token, .. } => (label, token.get()),
        other => panic!("nobody holds: {other:?}"),
    }
}

async fn named(etcd: &Etcd, label: &str, ttl: u64) -> Session {
    let session = Session::builder(etcd.client().await).ttl(Duration::from_secs(ttl));
    session.label(label).open().await.unwrap()
}

#[tokio::test]
async fn a_stopped_process_reports_that_it_stood_still() {
    if role().is_some() {
        return holder_that_will_be_stopped().await;
    }
    let etcd = Etcd::start().await;
    let name = unique("stopped");
    let envs = [("ENDPOINT", &*etcd.endpoint()), ("NAME", &name)];
    let mut puppet = Puppet::rerun(
        a_stopped_process_reports_that_it_stood_still,
        "holder",
        &envs,
    );
    assert_eq!(puppet.line().await, "holds");
    puppet.process.stop();
    let next = named(&etcd, "the next", 10).await;
    let next = mutex(&next, &name).lock().await.unwrap();
    puppet.process.cont();
    let token = next.token();
    let (line, numbers) = (puppet.line().await, puppet.line().await);
    assert!(
        line.ends_with(&format!("of that; the next holds now, with token {token}")),
        "{line}"
    );
    assert!(line.contains("this process stood still for "), "{line}");
    let (answered, stood_still) = numbers.split_once(' ').unwrap();
    let [answered, stood_still] = [answered, stood_still].map(|n| n.parse::<f64>().unwrap());
    assert!(answered > 2.0, "{numbers}");
    assert!(
        stood_still > 0.5 * answered && stood_still <= answered,
        "{numbers}"
    );
}

async fn holder_that_will_be_stopped() {
    let session = session(connect(&[var("ENDPOINT").unwrap()]).await, 3).await;
    let guard = mutex(&session, &var("NAME").unwrap());
    let guard = guard.lock().await.unwrap();
    say("holds");
    assert_eq!(guard.lost().await, Lost::Expired);
    let report = guard.loss_report().await.expect("it is lost");
    let own = session.loss_report().expect("so is the session");
    assert_eq!(
        (own.cause, own.stood_still, own.now),
        (Lost::Expired, report.stood_still, HeldNow::NotAsked)
    );
    say(&report);
    let [answered, stood_still] = [report.answered, report.stood_still].map(|d| d.as_secs_f64());
    say(format!("{answered} {stood_still}"));
}

#[test]
fn a_blocked_runtime_is_reported_as_standing_still() {
    let (outside, inside) = (
        Runtime::new().unwrap(),
        Builder::new_current_thread().enable_all().build().unwrap(),
    );
    let etcd = outside.block_on(Etcd::start());
    inside.block_on(async {
        let session = session(etcd.client().await, 2).await;
        let guard = mutex(&session, "a").lock().await.unwrap();
        thread::sleep(3 * SECOND);
        // The first to see it is not the session's own task.
        assert!(!guard.is_held());
        let report = guard.loss_report().await.unwrap();
        assert_eq!(report.cause, Lost::Expired);
        assert!(report.stood_still > 2 * SECOND, "{report}");
    });
}

#[tokio::test]
async fn behind_a_cut_line_a_process_reports_that_it_ran() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session(connect(&[proxy.endpoint()]).await, 3).await;
    let guard = mutex(&ours, "a").lock().await.unwrap();
    let theirs = named(&etcd, "the next", 10).await;
    let next = wait_in_line(&theirs, "a").await;
    proxy.hold();
    assert_eq!(guard.lost().await, Lost::Expired);
    let asked = Instant::now();
    let report = timeout(5 * SECOND, guard.loss_report()).await;
    let report = report.expect("it does not hang").unwrap();
    assert!(asked.elapsed() < 3 * SECOND, "{:?}", asked.elapsed());
    assert_eq!(
        (report.cause, &report.now),
        (Lost::Expired, &HeldNow::Unknown)
    );
    assert!(report.answered > SECOND, "{report}");
    // On a busy machine timers are late.
    assert!(report.stood_still < report.answered / 3, "{report}");
    let (next, _) = next.await.unwrap().unwrap();
    proxy.heal();
    soon("etcd says who holds", async || {
        let report = guard.loss_report().await.unwrap();
        let known = matches!(report.now, HeldNow::Held { .. });
        ensure(known, &report)?;
        assert_eq!(holder(&report), ("the next", next.token().get()));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_key_is_reported_with_who_holds_now() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (named(&etcd, "us", 30).await, named(&etcd, "them", 30).await);
    let guard = mutex(&ours, "a").lock().await.unwrap();
    assert_eq!(guard.loss_report().await, None);
    let next = wait_in_line(&theirs, "a").await;
    client.kv_client().delete(guard.key(), None).await.unwrap();
    let (next, _) = next.await.unwrap().unwrap();
    assert_eq!(guard.lost().await, Lost::KeyDeleted);
    let report = guard.loss_report().await.unwrap();
    assert_eq!(report.cause, Lost::KeyDeleted);
    assert_eq!(holder(&report), ("them", next.token().get()));
    assert_eq!(ours.loss_report(), None, "the session lives");
    next.release().await.unwrap();
    assert_eq!(guard.loss_report().await.unwrap().now, HeldNow::Nobody);
}

#[tokio::test]
async fn a_revoked_lease_is_reported_by_hold_and_session() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (named(&etcd, "us", 30).await, named(&etcd, "them", 30).await);
    let guard = mutex(&ours, "a").lock().await.unwrap();
    let next = wait_in_line(&theirs, "a").await;
    let mut client = etcd.client().await;
    client.lease_revoke(ours.lease_id()).await.unwrap();
    let (next, _) = next.await.unwrap().unwrap();
    assert_eq!(guard.lost().await, Lost::LeaseGone);
    let report = guard.loss_report().await.unwrap();
    assert_eq!(report.cause, Lost::LeaseGone);
    assert_eq!(holder(&report), ("them", next.token().get()));
    assert_eq!(ours.loss_report().unwrap().cause, Lost::LeaseGone);
    assert!(report.answered < 20 * SECOND, "{report}");
}

#[tokio::test]
async fn a_closed_session_is_reported_and_nobody_holds() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 30).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    session.close().await.unwrap();
    let report = guard.loss_report().await.unwrap();
    assert_eq!(
        (report.cause, &report.now),
        (Lost::Closed, &HeldNow::Nobody)
    );
    assert!(
        report
            .to_string()
            .starts_with("lost: the session was closed")
    );
}
