//! What is told to those who trace: spans of waits and holds, events of what befalls them, and no more than that.

use std::time::Duration;

use etcd_lock::{Election, Error, Lost};
use tokio::time::sleep;

use crate::support::{
    Etcd, Log, Proxy, connect, ensure, mutex, session, soon, unique, wait_in_line, waiter,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_wait_names_whom_it_waits_for_and_a_hold_its_token() {
    let log = Log::of("etcd_lock=debug");
    let etcd = Etcd::start().await;
    let (ours, theirs) = (
        session(etcd.client().await, 30).await,
        session(etcd.client().await, 30).await,
    );
    let name = unique("line");
    let guard = mutex(&theirs, &name).lock().await.unwrap();
    let between = waiter(&mutex(&theirs, &name)).await;
    let line = mutex(&ours, &name).queue().await.unwrap();
    let within = mutex(&ours, &name).lock_within(3 * SECOND);
    let within = tokio::spawn(within);
    soon("it waits", async || {
        let length = mutex(&ours, &name).queue().await.unwrap().len();
        ensure(length == 3, length)
    })
    .await;
    sleep(SECOND / 2).await;
    drop(between);
    let error = within.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let said = log.line("no turn in time").await;
    let (first, second) = (&line[1].key, guard.key());
    // One after the other, as this subscriber keeps what is recorded.
    let ahead = format!("ahead=\"{first}\" ahead=\"{second}\"");
    assert!(said.contains(&ahead), "{said}");
    let who = format!(
        "wait{{name=\"{name}\" lease={:x} key=\"{name}/",
        ours.lease_id()
    );
    assert!(said.contains(&who), "{said}");

    let (key, token) = (guard.key().to_owned(), guard.token());
    guard.release().await.unwrap();
    let said = log.line("released").await;
    let lease = theirs.lease_id();
    let hold = format!("hold{{name=\"{name}\" key=\"{key}\" token={token} lease={lease:x}}}");
    assert!(said.contains(&hold), "{said}");
    for event in ["session opened", "joined", "turn", "released"] {
        assert!(!log.lines(event).is_empty(), "no {event}");
    }
    assert_eq!(log.lines(" WARN "), [""; 0]);
}

#[tokio::test]
async fn far_back_in_a_line_a_wait_names_whom_it_waits_for() {
    let log = Log::of("etcd_lock=debug");
    let etcd = Etcd::start().await;
    let theirs = session(etcd.client().await, 30).await;
    let door = mutex(&theirs, "a");
    let mut line = vec![];
    for _ in 0..12 {
        line.push(waiter(&door).await);
    }
    let last = door.queue().await.unwrap().pop().unwrap().key;
    let ours = session(etcd.client().await, 30).await;
    let waiting = mutex(&ours, "a").lock_within(2 * SECOND).await;
    assert!(matches!(waiting, Err(Error::TimedOut { .. })));
    let said = log.line("no turn in time").await;
    assert!(said.contains(&format!("ahead=\"{last}\"}}")), "{said}");
}

#[tokio::test]
async fn a_loss_is_a_warning_that_says_why() {
    let log = Log::of("etcd_lock=warn");
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 30).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    client.kv_client().delete(guard.key(), None).await.unwrap();
    assert_eq!(guard.lost().await, Lost::KeyDeleted);
    let other = mutex(&session, "b").lock().await.unwrap();
    client
        .lease_client()
        .revoke(session.lease_id())
        .await
        .unwrap();
    assert_eq!(other.lost().await, Lost::LeaseGone);
    let said = log.line("session lost").await;
    assert!(said.contains("cause=lost: the lease is gone"), "{said}");
    for (guard, cause) in [(&guard, Lost::KeyDeleted), (&other, Lost::LeaseGone)] {
        let said = log.line(&format!("key=\"{}\"", guard.key())).await;
        for part in [
            " WARN ".to_owned(),
            "hold lost".to_owned(),
            format!("name=\"{}\"", guard.name()),
            format!("token={}", guard.token()),
            format!("lease={:x}", session.lease_id()),
            format!("cause={cause}"),
            "answered_before=".to_owned(),
            "stood_still=".to_owned(),
        ] {
            assert!(said.contains(&part), "no {part}: {said}");
        }
    }
    assert_eq!(log.lines("hold lost").len(), 2);
}

#[tokio::test]
async fn a_renewal_that_comes_late_is_a_warning_before_anything_is_lost() {
    let log = Log::of("etcd_lock=warn");
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session(connect(&[proxy.endpoint()]).await, 6).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    // The next renewal is due 2 s after the last and has 3.4 s, of which 2 go by.
    let until = session.certain_until().unwrap();
    proxy.hold();
    tokio::time::sleep_until(until - SECOND * 14 / 10).await;
    assert_eq!(log.text(), "");
    proxy.heal();
    let said = log.line("renewed late").await;
    for part in ["lease=", "left=", "after=", "stood_still="] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(guard.is_held(), "{}", log.text());
}

#[tokio::test]
async fn values_are_never_told() {
    let log = Log::of("etcd_lock=trace");
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 30).await;
    let election = Election::new(&session, "a").unwrap();
    let leads = election.campaign("secret candidate").await.unwrap();
    leads.proclaim("secret proclamation").await.unwrap();
    leads.put("report", "secret report").await.unwrap();
    assert!(mutex(&session, "a").try_lock().await.unwrap().is_err());
    let waiting = wait_in_line(&session, "a").await;
    leads.resign().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    session.close().await.unwrap();
    log.line("busy").await;
    log.line("session closed").await;
    assert!(!log.text().contains("secret"), "{}", log.text());
}

#[tokio::test]
async fn work_is_told_apart_by_the_span_of_its_hold() {
    let log = Log::of("info");
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 30).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let work = async {
        tracing::info!("before");
        tokio::task::yield_now().await;
        tracing::info!("after");
    };
    guard.run_until_lost(work).await.unwrap();
    tracing::info!("beside");
    let within = format!("hold{{name=\"a\" key=\"{}\"", guard.key());
    for (event, is_within) in [("before", true), ("after", true), ("beside", false)] {
        let said = log.line(event).await;
        assert_eq!(said.contains(&within), is_within, "{said}");
    }
}
