//! - With a dead member all is committed: a connection that is refused carries nothing out.
//! - With a frozen member nothing that is unknown comes late.
//! - While leaders die, every transaction is carried out once or never, as reported.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::timeout;

use super::{committed, is_settled, put, times};
use crate::support::{Cluster, connect, ensure, keys, mutex, scattering, session, soon};

#[tokio::test]
async fn with_a_dead_member_transactions_are_committed() {
    let cluster = Cluster::start(3).await;
    let session = session(cluster.client().await, 10).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    cluster.members[cluster.followers().await[0]].kill();
    // What was on its way when the connection broke is unknown.
    soon("the broken connection is known to be", async || {
        for n in 0..20 {
            let outcome = put(&guard, &format!("warm/{n}")).commit().await;
            ensure(outcome.is_ok(), format!("{outcome:?}"))?;
        }
        Ok(())
    })
    .await;
    for n in 0..200 {
        committed(put(&guard, &format!("x/{n}")).commit().await.unwrap());
    }
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_leaders_die_transactions_are_carried_out_once_or_never_as_reported() {
    let cluster = Cluster::start(3).await;
    let session = session(cluster.client().await, 15).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let over = AtomicBool::new(false);
    let kill = async {
        for _ in 0..3 {
            let leader = cluster.leader_index().await;
            cluster.members[leader].kill();
            cluster.leader_index().await;
            cluster.members[leader].restart().await;
        }
        over.store(true, Relaxed);
    };
    let write = async {
        let mut reported = Vec::new();
        loop {
            let key = format!("x/{}", reported.len());
            let outcome = put(&guard, &key).commit().await;
            let there = if let Ok(outcome) = outcome {
                committed(outcome);
                true
            } else {
                is_settled(&outcome);
                // Read at once: it is the last word.
                guard.get(&*key).await.unwrap().is_some()
            };
            reported.push((key, i64::from(there)));
            if over.load(Relaxed) {
                return reported;
            }
        }
    };
    let ((), reported) = tokio::join!(kill, write);
    let client = cluster.client().await;
    for (key, reported) in &reported {
        assert_eq!(times(&client, key).await, *reported, "{key}");
    }
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_frozen_member_nothing_that_is_unknown_comes_late() {
    let cluster = Cluster::start(3).await;
    let session = session(scattering(&cluster.endpoints()).await, 10).await;
    let guard = mutex(&session, "a").lock().await.unwrap();
    let frozen = cluster.followers().await[0];
    let healthy = connect(&[cluster.leader().await.endpoint()]).await;
    for n in 0..30 {
        guard.put(format!("warm/{n}"), "").await.unwrap();
    }
    cluster.members[frozen].stop();
    let mut unknown = Vec::new();
    let mut done = 0;
    for n in 0..30 {
        let key = format!("x/{n}");
        let outcome = put(&guard, &key).commit().await;
        if let Ok(outcome) = outcome {
            committed(outcome);
            done += 1;
        } else {
            is_settled(&outcome);
            assert_eq!(times(&healthy, &key).await, 0, "the member is frozen");
            unknown.push(key);
        }
    }
    assert!(done > 0 && !unknown.is_empty(), "{done} done");
    let thawed = &cluster.members[frozen];
    thawed.cont();
    let client = thawed.client().await;
    soon("the member takes part again", async || {
        let mut kv = client.kv_client();
        let put = timeout(Duration::from_secs(2), kv.put("thawed", "", None)).await;
        ensure(matches!(put, Ok(Ok(_))), format!("{put:?}"))
    })
    .await;
    // Every request that it had kept has been judged when those after it are.
    for n in 0..30 {
        guard.put(format!("after/{n}"), "").await.unwrap();
    }
    assert_eq!(keys(&healthy, "x/").await.len(), done);
    for key in &unknown {
        assert_eq!(times(&healthy, key).await, 0, "{key} came late");
    }
    assert!(guard.is_held());
}
