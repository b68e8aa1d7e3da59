//! - What etcd does not take comes back as an error that says what to do, and nothing is carried out.
//! - Nor is a value put into the lock's own line, where it would be taken for a waiter.
//! - The hold is held as before.

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};
use etcd_lock::{Error, TxnOutcome};

use super::{committed, stored};
use crate::support::{Etcd, keys, mutex, session};

fn puts(count: usize) -> Vec<TxnOp> {
    (0..count)
        .map(|n| TxnOp::put(format!("x/{n}"), "", None))
        .collect()
}

#[track_caller]
fn text(outcome: Result<TxnOutcome, Error>) -> String {
    match outcome {
        Err(error @ Error::Etcd { .. }) => error.to_string(),
        other => panic!("not refused by etcd: {other:?}"),
    }
}

#[tokio::test]
async fn what_etcd_does_not_take_is_refused_with_advice_and_not_carried_out() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let there = Compare::version("a", CompareOp::Equal, 0);
    let no_lease = PutOptions::new().with_lease(4711);
    let bad = [
        (guard.txn().and_then(puts(129)), "etcd takes 128 operations"),
        (guard.txn().or_else(puts(129)), "etcd takes 128 operations"),
        (
            guard.txn().when(vec![there; 129]),
            "etcd takes 128 operations",
        ),
        (
            guard.txn().and_then(puts(1)).and_then(puts(1)),
            "a key can be put only once",
        ),
        (
            guard.txn().and_then([TxnOp::put("", "", None)]),
            "key is not provided",
        ),
        (
            guard
                .txn()
                .and_then([TxnOp::put("x/1", "", Some(no_lease))]),
            "lease not found",
        ),
        (
            guard
                .txn()
                .and_then([TxnOp::put("x/1", vec![0; 2_000_000], None)]),
            "give a shorter name or value",
        ),
    ];
    for (txn, advice) in bad {
        let text = text(txn.commit().await);
        assert!(
            text.starts_with("carry out a transaction: ") && text.contains(advice),
            "{text}"
        );
        assert!(guard.is_held(), "{text}");
    }
    assert_eq!(keys(&client, "x/").await, [""; 0]);
    assert!(matches!(guard.put("", "").await, Err(Error::Etcd { .. })));
}

#[tokio::test]
async fn as_many_operations_as_the_documentation_says_are_taken() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let (a, b) = (
        mutex(&session, "a").lock().await.unwrap(),
        mutex(&session, "b").lock().await.unwrap(),
    );
    // Two of etcd's 128 are for a hold: what is read of it if it is lost.
    let done = committed(a.txn().and_then(puts(126)).commit().await.unwrap());
    assert_eq!(done.responses.len(), 126);
    text(a.txn().and_then(puts(127)).commit().await);
    let both = || a.txn().holding(&b);
    committed(both().and_then(puts(124)).commit().await.unwrap());
    text(both().and_then(puts(125)).commit().await);
    assert_eq!(stored(&client, "x/0").await.unwrap().version(), 2);
}

#[tokio::test]
async fn an_answer_too_large_to_read_is_not_taken_for_a_refusal() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    for n in 0..4 {
        let large = vec![b'x'; 1_400_000];
        client
            .kv_client()
            .put(format!("large/{n}"), large, None)
            .await
            .unwrap();
    }
    let all = etcd_client::GetOptions::new().with_prefix();
    let txn = guard
        .txn()
        .and_then([TxnOp::put("x/1", "", None), TxnOp::get("large/", Some(all))]);
    let outcome = txn.commit().await;
    assert!(
        matches!(outcome, Err(Error::Unknown { settled: true, .. })),
        "{outcome:?}"
    );
    // It was carried out, and only nobody could read what it said.
    assert_eq!(stored(&client, "x/1").await.unwrap().version(), 1);
}

#[tokio::test]
async fn a_value_is_not_put_into_the_line_of_its_lock() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 60).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let put = guard.put("a/state", "").await;
    let set = guard.compare_and_set("a/state", None, "").await.map(drop);
    for outcome in [put, set] {
        match outcome {
            Err(error @ Error::Invalid { .. }) => {
                let text = error.to_string();
                assert!(text.starts_with("key \"a/state\" would stand"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
    guard.put("a", "").await.unwrap();
    guard.put("a/state/of", "").await.unwrap();
    guard.release().await.unwrap();
    let next = mutex(&session, "a").lock().await.unwrap();
    assert!(next.is_held());
}
