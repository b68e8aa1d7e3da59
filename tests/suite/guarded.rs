//! Transactions under holds: carried out only while they are held, never twice, and reported truly.
//!
//! - `outcomes`: committed, refused or lost; what is nested; single reads and writes.
//! - `leadership`: the same of an election.
//! - `several`: more than one hold, of one or more sessions.
//! - `input`: what etcd does not take is refused with advice; no order of the builder's parts panics.
//! - `late`: holders of the past, and requests that arrive late (8).
//! - `doubt`: answers that are lost, lines that are slow or shake; calls that are given up.
//! - `members`: members that die or freeze.

mod doubt;
mod input;
mod late;
mod leadership;
mod members;
mod outcomes;
mod several;

use etcd_client::{Client, KeyValue, TxnOp};
use etcd_lock::{Done, Error, GuardedTxn, LockGuard, LostHold, Result, TxnOutcome};

/// What stands behind a key, as nobody but etcd sees it.
async fn stored(client: &Client, key: &str) -> Option<KeyValue> {
    let found = client.kv_client().get(key, None).await;
    found.expect("the store can be read").kvs().first().cloned()
}

/// The value behind a key, as text.
async fn value(client: &Client, key: &str) -> Option<String> {
    let found = stored(client, key).await?;
    Some(found.value_str().expect("text").to_owned())
}

#[track_caller]
fn committed(outcome: TxnOutcome) -> Done {
    match outcome {
        TxnOutcome::Committed(done) => done,
        other => panic!("not committed: {other:?}"),
    }
}

#[track_caller]
fn refused(outcome: TxnOutcome) -> Done {
    match outcome {
        TxnOutcome::Refused(done) => done,
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
fn lost_hold(outcome: TxnOutcome) -> LostHold {
    match outcome {
        TxnOutcome::Lost(lost) => lost,
        other => panic!("not lost: {other:?}"),
    }
}

/// A transaction that puts one key.
fn put<'a>(guard: &'a LockGuard, key: &str) -> GuardedTxn<'a> {
    guard.txn().and_then([TxnOp::put(key, "1", None)])
}

#[track_caller]
fn is_settled(outcome: &Result<TxnOutcome>) {
    assert!(
        matches!(outcome, Err(Error::Unknown { settled: true, .. })),
        "{outcome:?}"
    );
}

/// How often the key was put.
async fn times(client: &Client, key: &str) -> i64 {
    stored(client, key).await.map_or(0, |found| found.version())
}
