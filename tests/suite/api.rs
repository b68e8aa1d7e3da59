//! The shape of the API (R14).
//!
//! - Everything public is `Send + Sync + 'static` and `Debug`; tokens are small, ordered and shown as numbers.
//! - The futures are `Send`; those of `lock`, `try_lock` and `lock_within` borrow nothing, can be made without a
//!   runtime, and are small.
//! - What must not be dropped by mistake warns when it is.
//! - The errors' texts begin in lower case, have no full stop and say what to do; etcd's own error is their source.

use std::collections::HashSet;
use std::error::Error as _;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::str::FromStr;
use std::time::Duration;

use etcd_lock::{
    Busy, Done, Error, FencingGate, FencingToken, GuardedTxn, HeldNow, LockGuard, LossReport, Lost,
    LostHold, Mutex, NamedToken, Session, SessionBuilder, Stale, TxnOutcome, Waiter,
};

use crate::support::{Etcd, Proxy, connect, mutex, session};

const MOMENT: Duration = Duration::from_millis(10);

#[test]
fn every_type_goes_everywhere() {
    fn goes<T: Send + Sync + Debug + 'static>() {}
    fn is_cloned<T: Clone>() {}
    fn is_a_number<T: Copy + Ord + Hash + Display + Into<u64> + Into<i64> + FromStr>() {}
    fn is_an_error<T: std::error::Error>() {}
    goes::<Session>();
    goes::<SessionBuilder>();
    goes::<Mutex>();
    goes::<LockGuard>();
    goes::<FencingToken>();
    goes::<NamedToken>();
    goes::<FencingGate>();
    goes::<Stale>();
    goes::<GuardedTxn<'static>>();
    goes::<TxnOutcome>();
    goes::<Done>();
    goes::<LostHold>();
    goes::<LossReport>();
    goes::<HeldNow>();
    goes::<Waiter>();
    goes::<Busy>();
    goes::<Error>();
    goes::<Lost>();
    is_cloned::<Session>();
    is_cloned::<Mutex>();
    is_a_number::<FencingToken>();
    is_an_error::<Error>();
    is_an_error::<Lost>();
    is_an_error::<Busy>();
    is_an_error::<Stale>();
    is_an_error::<LostHold>();
    assert_eq!(size_of::<FencingToken>(), size_of::<u64>());
}

fn is_sent<T>(future: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
    future
}

/// As `is_sent`, and outlives what made it.
fn is_free<T>(future: impl Future<Output = T> + Send + 'static) -> impl Future<Output = T> {
    future
}

#[tokio::test]
async fn every_future_can_move_to_another_thread() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    is_free(Session::open(client.clone())).await.unwrap();
    let session = is_free(Session::builder(client).open()).await.unwrap();
    let locked = {
        let door = mutex(&session, "a");
        is_free(door.lock())
    };
    let guard = locked.await.unwrap();
    let (tried, limited) = {
        let door = mutex(&session, "a");
        (is_free(door.try_lock()), is_free(door.lock_within(MOMENT)))
    };
    assert!(tried.await.unwrap().is_err() && limited.await.is_err());
    let door = mutex(&session, "a");
    let queue = is_sent(door.queue()).await.unwrap();
    assert_eq!(queue[0].key, guard.key());
    assert!(is_sent(guard.run_until_lost(async {})).await.is_ok());
    drop(is_sent(guard.lost()));
    assert_eq!(is_sent(guard.loss_report()).await, None);
    is_sent(guard.put("x", "1")).await.unwrap();
    let set = is_sent(guard.compare_and_set("x", Some(b"1"), "2"));
    assert_eq!(set.await.unwrap(), Ok(()));
    assert!(is_sent(guard.get("x")).await.unwrap().is_some());
    assert!(is_sent(guard.delete("x")).await.unwrap());
    let outcome = is_sent(guard.txn().commit()).await.unwrap();
    assert!(matches!(outcome, TxnOutcome::Committed(_)), "{outcome:?}");
    is_free(guard.release()).await.unwrap();
    drop(is_sent(session.ended()));
    is_sent(session.close()).await.unwrap();
}

#[tokio::test]
async fn futures_are_made_without_a_runtime_and_run_in_one() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let made = std::thread::spawn(move || (door.lock(), door.try_lock(), door.lock_within(MOMENT)));
    let (lock, try_lock, lock_within) = made.join().expect("no panic");
    lock.await.unwrap().release().await.unwrap();
    let guard = try_lock.await.unwrap().unwrap();
    // Its limit counts from the call.
    tokio::time::sleep(2 * MOMENT).await;
    assert!(matches!(lock_within.await, Err(Error::TimedOut { .. })));
    assert!(guard.is_held());
}

#[tokio::test]
async fn futures_are_small() {
    // Clippy warns of futures larger than this, and ten thousand waiters take ten thousand of them.
    const LARGE: usize = 16 * 1024;
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let guard = door.lock().await.unwrap();
    let borrowing = [
        ("open", size_of_val(&Session::open(etcd.client().await))),
        (
            "builder",
            size_of_val(&Session::builder(etcd.client().await).open()),
        ),
        ("close", size_of_val(&session.close())),
        ("ended", size_of_val(&session.ended())),
        ("lock", size_of_val(&door.lock())),
        ("try_lock", size_of_val(&door.try_lock())),
        ("lock_within", size_of_val(&door.lock_within(MOMENT))),
        ("queue", size_of_val(&door.queue())),
        ("lost", size_of_val(&guard.lost())),
        ("loss_report", size_of_val(&guard.loss_report())),
        (
            "run_until_lost",
            size_of_val(&guard.run_until_lost(async {})),
        ),
        ("commit", size_of_val(&guard.txn().commit())),
        ("get", size_of_val(&guard.get("x"))),
        ("put", size_of_val(&guard.put("x", ""))),
        ("delete", size_of_val(&guard.delete("x"))),
        (
            "compare_and_set",
            size_of_val(&guard.compare_and_set("x", None, "")),
        ),
    ];
    let sizes = borrowing
        .into_iter()
        .chain([("release", size_of_val(&guard.release()))]);
    for (name, size) in sizes {
        assert!(size < LARGE, "{name}: {size} bytes");
    }
}

/// Compiled with warnings as errors: each of these warns, or its expectation does.
#[tokio::test]
async fn what_is_dropped_by_mistake_warns() {
    async fn guard(door: &Mutex) -> LockGuard {
        door.lock().await.unwrap()
    }
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    #[expect(
        unused_must_use,
        reason = "a guard that is dropped at once holds nothing"
    )]
    {
        guard(&door).await;
    }
    #[expect(unused_must_use, reason = "a lock that is not awaited locks nothing")]
    {
        door.lock();
    }
    #[expect(unused_must_use, reason = "a builder that is not opened opens nothing")]
    {
        Session::builder(etcd.client().await);
    }
    let held = guard(&door).await;
    #[expect(unused_must_use, reason = "a transaction without commit is not sent")]
    {
        held.txn();
    }
    #[expect(
        unused_must_use,
        reason = "the hold may be lost, though there is no error"
    )]
    {
        held.txn().commit().await.unwrap();
    }
    drop(held);
    #[expect(let_underscore_drop, reason = "the one mistake that every lock knows")]
    let _ = guard(&door).await;
}

/// What all texts have in common.
#[track_caller]
fn reads_well(text: &str) {
    let first = text.chars().next().unwrap();
    assert!(first.is_lowercase(), "begins in upper case: {text}");
    assert!(!text.ends_with('.') && !text.contains('\n'), "{text:?}");
}

#[tokio::test]
async fn errors_read_well_and_keep_their_source() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let mut texts = HashSet::new();
    for lost in [
        Lost::Expired,
        Lost::LeaseGone,
        Lost::KeyDeleted,
        Lost::Closed,
    ] {
        let text = Error::from(lost).to_string();
        assert_eq!(text, lost.to_string());
        reads_well(&text);
        texts.insert(text);
    }
    assert_eq!(
        texts.len(),
        4,
        "each cause has a text of its own: {texts:?}"
    );
    let invalid = Mutex::new(&session, "").unwrap_err();
    reads_well(&invalid.to_string());
    assert!(invalid.source().is_none());
    let guard = door.lock().await.unwrap();
    reads_well(&door.lock_within(MOMENT).await.unwrap_err().to_string());
    reads_well(&door.try_lock().await.unwrap().unwrap_err().to_string());
    let refused = mutex(&session, &"x".repeat(2_000_000)).lock().await;
    let refused = refused.unwrap_err();
    reads_well(&refused.to_string());
    let source = refused.source().expect("etcd's own error");
    assert!(source.is::<etcd_lock::etcd_client::Error>(), "{source:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_is_not_confirmed_says_when_it_is_over() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session(connect(&[proxy.endpoint()]).await, 2).await;
    proxy.hold();
    let error = session.close().await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error:?}");
    let text = error.to_string();
    reads_well(&text);
    assert!(text.ends_with("it goes by itself within 2s"), "{text}");
}

#[tokio::test]
async fn debug_output_shows_what_one_looks_for() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let shown = format!("{session:?} {:?} {guard:?}", mutex(&session, "b"));
    for part in [
        format!("lease: {:x}", session.lease_id()),
        "name: \"b\"".to_owned(),
        format!("key: {:?}", guard.key()),
        format!("token: FencingToken({})", guard.token()),
        "is_held: true".to_owned(),
    ] {
        assert!(shown.contains(&part), "{part} in {shown}");
    }
}
