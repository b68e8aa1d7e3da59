//! - A process that was stopped beyond the TTL in the middle of its writes changes nothing any more (8).
//! - A request that arrives when somebody else holds is refused, and its sender was told in time that nothing is known.
//! - No commit waits longer than its session is certain.

use std::env::var;
use std::time::{Duration, Instant};

use etcd_client::TxnOp;
use etcd_lock::{Error, Lost};
use futures_util::future::join_all;

use super::{committed, lost_hold, stored, value};
use crate::support::{
    Etcd, Proxy, Puppet, connect, ensure, mutex, role, say, session, soon, unique, wait_in_line,
};

#[tokio::test]
async fn a_process_stopped_in_the_middle_of_its_writes_changes_nothing_any_more() {
    if role().is_some() {
        return writer_that_will_be_stopped().await;
    }
    let etcd = Etcd::start().await;
    let name = unique("stopped");
    let envs = [("ENDPOINT", &*etcd.endpoint()), ("NAME", &name)];
    let mut puppet = Puppet::rerun(
        a_process_stopped_in_the_middle_of_its_writes_changes_nothing_any_more,
        "writer",
        &envs,
    );
    let client = etcd.client().await;
    soon("it writes", async || {
        let version = stored(&client, "x")
            .await
            .map_or(0, |found| found.version());
        ensure(version > 10, version)
    })
    .await;
    puppet.process.stop();
    let session = session(client.clone(), 2).await;
    let next = mutex(&session, &name).lock().await.unwrap();
    next.put("x", "theirs").await.unwrap();
    let written = stored(&client, "x").await.unwrap().mod_revision();
    puppet.process.cont();
    assert_eq!(puppet.line().await, "lost: Expired");
    let found = stored(&client, "x").await.unwrap();
    assert_eq!(
        (found.value(), found.mod_revision()),
        (&b"theirs"[..], written)
    );
    next.put("x", "theirs, too").await.unwrap();
}

/// Writes and never asks whether it holds.
async fn writer_that_will_be_stopped() {
    let session = session(connect(&[var("ENDPOINT").unwrap()]).await, 2).await;
    let guard = mutex(&session, &var("NAME").unwrap());
    let guard = guard.lock().await.unwrap();
    loop {
        match guard.put("x", "ours").await {
            // The latter of one that was under way when it was stopped.
            Ok(()) | Err(Error::Unknown { settled: false, .. }) => {}
            Err(Error::Lost(lost)) => return say(format!("lost: {lost:?}")),
            Err(error) => return say(error),
        }
    }
}

#[tokio::test]
async fn a_request_that_arrives_when_somebody_else_holds_is_refused() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session(connect(&[proxy.endpoint()]).await, 3).await;
    let theirs = session(etcd.client().await, 3).await;
    let guard = mutex(&ours, "a").lock().await.unwrap();
    guard.put("x", "ours").await.unwrap();
    let next = wait_in_line(&theirs, "a").await;
    proxy.hold();
    let (until, asked) = (guard.certain_until().unwrap(), Instant::now());
    // Many, as each is given up in the end: when the line is healed, that comes right behind, and
    // the server need not look at one that is given up already.
    let late = || {
        let put = || [TxnOp::put("x", "late", None)];
        guard.txn().and_then(put()).or_else(put()).commit()
    };
    for outcome in join_all((0..50).map(|_| late())).await {
        assert!(
            matches!(outcome, Err(Error::Unknown { settled: false, .. })),
            "{outcome:?}"
        );
    }
    let late_by = Instant::now().saturating_duration_since(until.into_std());
    assert!(late_by < Duration::from_secs(1), "{late_by:?} late");
    assert!(asked.elapsed() > Duration::from_secs(1), "it gave up early");
    // From here on it knows by itself.
    let outcome = guard.txn().and_then([TxnOp::put("x", "late", None)]);
    let lost = lost_hold(outcome.commit().await.unwrap());
    assert_eq!((lost.cause, lost.newer), (Lost::Expired, None));

    let (next, _) = next.await.unwrap().unwrap();
    next.put("x", "theirs").await.unwrap();
    let written = stored(&client, "x").await.unwrap().mod_revision();
    let calls = etcd.calls("Txn").await;
    proxy.heal();
    soon("late requests have come", async || {
        let now = etcd.calls("Txn").await;
        ensure(now > calls, now)
    })
    .await;
    // Behind them in line, if they were not judged yet.
    committed(next.txn().commit().await.unwrap());
    assert_eq!(stored(&client, "x").await.unwrap().mod_revision(), written);
    assert_eq!(value(&client, "x").await.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn a_commit_with_all_servers_gone_ends_with_its_session() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    etcd.kill();
    let until = guard.certain_until().unwrap();
    // Refused connections carry nothing out, so it is certain that nothing was written.
    let outcome = loop {
        match guard
            .txn()
            .and_then([TxnOp::put("x", "", None)])
            .commit()
            .await
        {
            // The connection that broke with the server may have carried something.
            Err(Error::Unknown { settled: false, .. }) => {}
            outcome => break outcome.unwrap(),
        }
    };
    assert_eq!(lost_hold(outcome).cause, Lost::Expired);
    let late_by = Instant::now().saturating_duration_since(until.into_std());
    assert!(late_by < Duration::from_secs(1), "{late_by:?} late");
}
