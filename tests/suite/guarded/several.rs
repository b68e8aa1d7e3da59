//! - Under several holds, all have to stand; the one that is lost is named.
//! - They may be of different sessions on one etcd; of another etcd they are refused, and not taken for lost.

use etcd_client::TxnOp;
use etcd_lock::{Error, LockGuard, Lost};

use super::{committed, lost_hold, value};
use crate::support::{Etcd, mutex, session, wait_in_line};

async fn guard(etcd: &Etcd, name: &str) -> LockGuard {
    let session = session(etcd.client().await, 60).await;
    mutex(&session, name).lock().await.unwrap()
}

fn write(value: &str) -> [TxnOp; 1] {
    [TxnOp::put("x", value, None)]
}

#[tokio::test]
async fn a_transaction_under_several_holds_needs_all_of_them() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let one = session(etcd.client().await, 60).await;
    let (a, b) = (
        mutex(&one, "a").lock().await.unwrap(),
        mutex(&one, "b").lock().await.unwrap(),
    );
    let c = guard(&etcd, "c").await;
    let txn = a.txn().holding(&b).holding(&c).and_then(write("1"));
    committed(txn.commit().await.unwrap());
    assert_eq!(value(&client, "x").await.as_deref(), Some("1"));

    // The last of them goes, and somebody waits for it.
    let next = wait_in_line(&one, "c").await;
    let txn = a.txn().holding(&b).holding(&c).and_then(write("2"));
    client.kv_client().delete(c.key(), None).await.unwrap();
    let lost = lost_hold(txn.or_else(write("2")).commit().await.unwrap());
    let (next, _) = next.await.unwrap().unwrap();
    assert_eq!((lost.hold, lost.cause), (c.named_token(), Lost::KeyDeleted));
    assert_eq!(lost.newer, Some(next.token()));
    // The others stand, alone and with the next one.
    assert!(a.is_held() && b.is_held() && !c.is_held());
    let txn = b.txn().holding(&a).holding(&next).and_then(write("3"));
    committed(txn.commit().await.unwrap());
    assert_eq!(value(&client, "x").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_session_that_has_ended_is_named_by_its_hold() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (a, b) = (guard(&etcd, "a").await, guard(&etcd, "b").await);
    let revoked = session(etcd.client().await, 60).await;
    let c = mutex(&revoked, "c").lock().await.unwrap();
    // By hand, so that the session does not know.
    let lease = revoked.lease_id();
    client.lease_client().revoke(lease).await.unwrap();
    let txn = a.txn().holding(&b).holding(&c).and_then(write("1"));
    let lost = lost_hold(txn.commit().await.unwrap());
    assert_eq!((lost.hold, lost.cause), (c.named_token(), Lost::LeaseGone));
    let txn = c.txn().holding(&a).and_then(write("1"));
    assert_eq!(lost_hold(txn.commit().await.unwrap()).hold, c.named_token());
    assert_eq!(value(&client, "x").await, None);
    committed(a.txn().holding(&b).commit().await.unwrap());
}

#[tokio::test]
async fn a_hold_of_another_etcd_is_refused_and_stays_held() {
    let (here, elsewhere) = (Etcd::start().await, Etcd::start().await);
    let client = here.client().await;
    let (a, b) = (guard(&here, "a").await, guard(&elsewhere, "b").await);
    let outcome = a.txn().holding(&b).and_then(write("1")).commit().await;
    match outcome {
        Err(error @ Error::Invalid { .. }) => {
            let text = error.to_string();
            assert!(
                text.contains("another etcd") && text.contains("\"b\""),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(a.is_held() && b.is_held());
    assert_eq!(value(&client, "x").await, None);
    a.put("x", "1").await.unwrap();
    b.put("x", "1").await.unwrap();
}

#[tokio::test]
async fn one_hold_given_twice_is_one_hold() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let a = guard(&etcd, "a").await;
    committed(
        a.txn()
            .holding(&a)
            .and_then(write("1"))
            .commit()
            .await
            .unwrap(),
    );
    client.kv_client().delete(a.key(), None).await.unwrap();
    let outcome = a
        .txn()
        .holding(&a)
        .and_then(write("2"))
        .commit()
        .await
        .unwrap();
    assert_eq!(lost_hold(outcome).hold, a.named_token());
    assert_eq!(value(&client, "x").await.as_deref(), Some("1"));
}
