//! - What is committed was carried out at the revision that is told; what is refused tells what `or_else` found.
//! - Conditions are about what was before the transaction, nested ones too; reads see what it has put before them.
//! - After a loss nothing is carried out, and the next holder's token is told; keys of nested names are not in the line.
//! - A hold that is known to be lost sends nothing.

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp, TxnOpResponse};
use etcd_lock::{Error, LockGuard, Lost, TxnOutcome};
use tokio::task::JoinSet;

use super::{committed, lost_hold, refused, stored, value};
use crate::support::{Etcd, mutex, session, wait_in_line};

fn is(key: &str, value: &str) -> Compare {
    Compare::value(key, CompareOp::Equal, value)
}

fn put(key: &str, value: &str) -> TxnOp {
    TxnOp::put(key, value, None)
}

fn read(responses: &[TxnOpResponse]) -> Vec<&[u8]> {
    let mut values = Vec::new();
    for answer in responses {
        if let TxnOpResponse::Get(found) = answer {
            values.extend(found.kvs().iter().map(KeyValue::value));
        }
    }
    values
}

#[tokio::test]
async fn a_true_condition_commits_and_a_false_one_is_refused() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    client.kv_client().put("x", "1", None).await.unwrap();
    let swap = |from, to| {
        let txn = guard.txn().when([is("x", from)]);
        let txn = txn.and_then([TxnOp::get("x", None), put("x", to), put("y", to)]);
        txn.or_else([TxnOp::get("x", None), put("refused", to)])
            .commit()
    };
    let done = committed(swap("1", "2").await.unwrap());
    assert_eq!(
        (done.responses.len(), read(&done.responses)),
        (3, vec![&b"1"[..]])
    );
    for key in ["x", "y"] {
        let found = stored(&client, key).await.unwrap();
        assert_eq!(
            (found.value(), found.mod_revision()),
            (&b"2"[..], done.revision)
        );
    }
    assert_eq!(value(&client, "refused").await, None);

    let done = refused(swap("1", "3").await.unwrap());
    assert_eq!(
        (done.responses.len(), read(&done.responses)),
        (2, vec![&b"2"[..]])
    );
    assert_eq!(value(&client, "x").await.as_deref(), Some("2"));
    let found = stored(&client, "refused").await.unwrap();
    assert_eq!(
        (found.value(), found.mod_revision()),
        (&b"3"[..], done.revision)
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn conditions_are_about_what_was_before_and_reads_about_what_was_put() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let inner = Txn::new()
        .when([is("x", "1")])
        .and_then([put("saw", "what was put")])
        .or_else([put("saw", "what was before")]);
    let txn = guard.txn().and_then([put("x", "1"), TxnOp::get("x", None)]);
    let done = committed(txn.and_then([TxnOp::txn(inner)]).commit().await.unwrap());
    assert_eq!(read(&done.responses), [b"1"]);
    assert!(
        matches!(&done.responses[..], [_, _, TxnOpResponse::Txn(inner)] if !inner.succeeded()),
        "{done:?}"
    );
    assert_eq!(
        value(&client, "saw").await.as_deref(),
        Some("what was before")
    );
}

#[tokio::test]
async fn the_parts_are_taken_in_any_order_and_more_than_once() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let txn = guard.txn().or_else([put("c", "")]).and_then([put("a", "")]);
    let txn = txn.when([Compare::version("a", CompareOp::Equal, 0)]);
    let txn = txn.and_then([put("b", "")]).or_else([put("d", "")]);
    let twice = txn.when([Compare::version("b", CompareOp::Equal, 0)]);
    assert_eq!(committed(twice.commit().await.unwrap()).responses.len(), 2);
    for (key, there) in [("a", true), ("b", true), ("c", false), ("d", false)] {
        assert_eq!(stored(&client, key).await.is_some(), there, "{key}");
    }
    // A transaction without any part asks etcd whether the hold stands.
    assert_eq!(
        committed(guard.txn().commit().await.unwrap())
            .responses
            .len(),
        0
    );
}

/// A write of a guard whose key was deleted a moment ago, so that only etcd knows.
async fn write_without_the_key(etcd: &Etcd, guard: &LockGuard) -> TxnOutcome {
    let client = etcd.client().await;
    let txn = guard.txn().and_then([put("x", "late")]);
    client.kv_client().delete(guard.key(), None).await.unwrap();
    txn.or_else([put("x", "late")]).commit().await.unwrap()
}

#[tokio::test]
async fn after_a_loss_nothing_is_written_and_the_next_holder_is_named() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(etcd.client().await, 60).await,
        session(etcd.client().await, 60).await,
    );
    // Older than the next in line, behind the same prefix, and not in the line.
    let below = mutex(&theirs, "a/below").lock().await.unwrap();
    for nested in [true, false] {
        let guard = mutex(&ours, if nested { "a" } else { "b" })
            .lock()
            .await
            .unwrap();
        let next = wait_in_line(&theirs, guard.name()).await;
        let lost = lost_hold(write_without_the_key(&etcd, &guard).await);
        let (next, _) = next.await.unwrap().unwrap();
        assert_eq!(
            (lost.cause, lost.newer),
            (Lost::KeyDeleted, Some(next.token()))
        );
        assert_eq!(lost.hold, guard.named_token());
        let text = lost.to_string();
        assert!(
            text.ends_with(&format!("; token {} holds now", next.token())),
            "{text}"
        );
        assert!(!guard.is_held() && next.is_held());
        assert_eq!(value(&client, "x").await, None);
    }
    assert!(below.is_held());
}

#[tokio::test]
async fn a_loss_to_nobody_names_no_holder() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let lost = lost_hold(write_without_the_key(&etcd, &guard).await);
    assert_eq!((lost.cause, lost.newer), (Lost::KeyDeleted, None));
    assert_eq!(value(&client, "x").await, None);
    // A later hold of the same session is another hold.
    let again = mutex(&session, "a").lock().await.unwrap();
    let outcome = guard
        .txn()
        .and_then([put("x", "late")])
        .commit()
        .await
        .unwrap();
    assert_eq!(lost_hold(outcome).cause, Lost::KeyDeleted);
    again.put("x", "1").await.unwrap();
    assert_eq!(value(&client, "x").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_hold_that_is_known_to_be_lost_sends_nothing() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    session.close().await.unwrap();
    let before = etcd.calls("Txn").await;
    let outcome = guard
        .txn()
        .and_then([put("x", "late")])
        .commit()
        .await
        .unwrap();
    let lost = lost_hold(outcome);
    assert_eq!((lost.cause, lost.newer), (Lost::Closed, None));
    for error in [
        guard.put("x", "late").await.unwrap_err(),
        guard.delete("x").await.unwrap_err(),
        guard.compare_and_set("x", None, "late").await.unwrap_err(),
        guard.get("x").await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Lost(Lost::Closed)), "{error}");
    }
    let more = etcd.calls("Txn").await - before;
    assert!(more < 0.5, "{more} were sent");
}

#[tokio::test]
async fn single_reads_and_writes_do_what_they_say() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    assert_eq!(guard.get("x").await.unwrap(), None);
    assert_eq!(
        guard.compare_and_set("x", Some(b""), "1").await.unwrap(),
        Err(None)
    );
    assert_eq!(guard.compare_and_set("x", None, "1").await.unwrap(), Ok(()));
    assert_eq!(guard.get("x").await.unwrap().as_deref(), Some(&b"1"[..]));
    let there = Err(Some(b"1".to_vec()));
    assert_eq!(guard.compare_and_set("x", None, "2").await.unwrap(), there);
    assert_eq!(
        guard.compare_and_set("x", Some(b"2"), "3").await.unwrap(),
        there
    );
    assert_eq!(
        guard.compare_and_set("x", Some(b"1"), "2").await.unwrap(),
        Ok(())
    );
    assert_eq!(value(&client, "x").await.as_deref(), Some("2"));
    guard.put("x", "3").await.unwrap();
    assert_eq!(value(&client, "x").await.as_deref(), Some("3"));
    assert!(guard.delete("x").await.unwrap());
    assert!(!guard.delete("x").await.unwrap());
    assert_eq!(value(&client, "x").await, None);
    // After the loss, told by etcd.
    client.kv_client().delete(guard.key(), None).await.unwrap();
    let late = guard.put("x", "late").await;
    assert!(
        matches!(late, Err(Error::Lost(Lost::KeyDeleted))),
        "{late:?}"
    );
    assert_eq!(value(&client, "x").await, None);
}

#[tokio::test]
async fn many_transactions_of_one_hold_at_once_are_all_carried_out() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let guard = std::sync::Arc::new(mutex(&session, "a").lock().await.unwrap());
    let mut tasks = JoinSet::new();
    for n in 0..100 {
        let guard = guard.clone();
        tasks.spawn(async move { guard.put(format!("x/{n}"), "1").await });
    }
    while let Some(written) = tasks.join_next().await {
        written.unwrap().unwrap();
    }
    for n in 0..100 {
        let found = stored(&client, &format!("x/{n}")).await.unwrap();
        assert_eq!(found.version(), 1, "{n}");
    }
}
