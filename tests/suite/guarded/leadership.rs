//! - A leadership's transactions and proclamations do not disturb each other, nor does somebody else's put of its key.
//! - Once it is lost nothing is carried out, and the next leader's token is told.

use etcd_client::{PutOptions, TxnOp};
use etcd_lock::{Election, Lost};

use super::{lost_hold, value};
use crate::support::{Etcd, ensure, mutex, session, soon};

#[tokio::test]
async fn a_leadership_writes_and_proclaims_until_it_is_lost() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (ours, theirs) = (
        session(etcd.client().await, 60).await,
        session(etcd.client().await, 60).await,
    );
    let leads = Election::new(&ours, "a")
        .unwrap()
        .campaign("1")
        .await
        .unwrap();
    for n in 0..10 {
        leads.put("x", format!("{n}")).await.unwrap();
        leads.proclaim(format!("{n}")).await.unwrap();
    }
    // Both at once, and somebody else's put of its key.
    let writes = async {
        for n in 0..50 {
            leads.put("x", format!("{n}")).await.unwrap();
        }
    };
    let proclaims = async {
        for n in 0..50 {
            leads.proclaim(format!("{n}")).await.unwrap();
        }
    };
    tokio::join!(writes, proclaims);
    let same_lease = PutOptions::new().with_ignore_lease();
    let by_hand = client
        .kv_client()
        .put(leads.key(), "by hand", Some(same_lease))
        .await;
    by_hand.unwrap();
    leads.put("x", "50").await.unwrap();
    leads.proclaim("50").await.unwrap();
    assert_eq!(value(&client, "x").await.as_deref(), Some("50"));
    assert_eq!(value(&client, leads.key()).await.as_deref(), Some("50"));

    let next = tokio::spawn(Election::new(&theirs, "a").unwrap().campaign("2"));
    soon("the candidate stands in the line", async || {
        let line = mutex(&ours, "a").queue().await.unwrap();
        ensure(line.len() == 2, format!("{line:?}"))
    })
    .await;
    client.kv_client().delete(leads.key(), None).await.unwrap();
    let outcome = leads
        .txn()
        .and_then([TxnOp::put("x", "late", None)])
        .commit()
        .await
        .unwrap();
    let lost = lost_hold(outcome);
    let next = next.await.unwrap().unwrap();
    assert_eq!(
        (lost.cause, lost.newer),
        (Lost::KeyDeleted, Some(next.token()))
    );
    assert_eq!(value(&client, "x").await.as_deref(), Some("50"));
}
