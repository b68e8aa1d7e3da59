//! The lock on etcd in containers, as users test with it: one member at a published port, and three on a network of
//! their own, of which members are paused, killed and disconnected.
//!
//! They need a Docker engine and, in `ETCD_TEST_IMAGE`, the name of an image with `etcd` on its path:
//!
//! ```sh
//! ETCD_TEST_IMAGE=$(ci/etcd-image) cargo nextest run --test containers --run-ignored only
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
#![allow(
    unreachable_pub,
    reason = "`pub` here is for the modules of this one binary"
)]

mod node;
#[path = "../suite/support/mod.rs"]
mod support;

use std::time::Duration;

use etcd_lock::Lost;
use tokio::time::{sleep, timeout};

use crate::node::{Node, Trio};
use crate::support::{BOUND, ensure, lost, mutex, session, soon, soon_nothing, wait_in_line};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
#[ignore = "needs a Docker engine and ETCD_TEST_IMAGE; ci/test gives it both"]
async fn a_lock_on_a_container_passes_from_one_to_the_next() {
    let node = Node::alone().await;
    let (ours, theirs) = (
        session(node.client().await, 5).await,
        session(node.client().await, 5).await,
    );
    let first = mutex(&ours, "jobs/a").lock().await.unwrap();
    let next = wait_in_line(&theirs, "jobs/a").await;
    let token = first.token();
    first.release().await.unwrap();
    let (next, _) = timeout(BOUND, next)
        .await
        .expect("its turn")
        .unwrap()
        .unwrap();
    assert!(next.token() > token);
    next.put("jobs/state", "done").await.unwrap();
    next.release().await.unwrap();
    ours.close().await.unwrap();
    theirs.close().await.unwrap();
    node.client()
        .await
        .kv_client()
        .delete("jobs/state", None)
        .await
        .unwrap();
    soon_nothing(&node.client().await).await;
}

#[tokio::test]
#[ignore = "needs a Docker engine and ETCD_TEST_IMAGE; ci/test gives it both"]
async fn a_paused_container_costs_the_lock_only_if_it_is_paused_for_too_long() {
    let node = Node::alone().await;
    let session = session(node.client().await, 9).await;
    let guard = mutex(&session, "jobs/b").lock().await.unwrap();
    node.pause().await;
    sleep(3 * SECOND).await;
    assert!(guard.is_held());
    node.unpause().await;
    let before = guard.certain_until().unwrap();
    soon("the lease is renewed", async || {
        let until = guard.certain_until().expect("held");
        ensure(until > before, "not yet")
    })
    .await;
    node.pause().await;
    let lost = timeout(session.ttl(), guard.lost()).await;
    assert_eq!(lost.expect("told within the TTL"), Lost::Expired);
    assert!(!guard.is_held());
    node.unpause().await;
    let again = support::session(node.client().await, 5).await;
    let next = timeout(BOUND, mutex(&again, "jobs/b").lock()).await;
    assert!(next.expect("its turn").unwrap().token() > guard.token());
}

/// What befalls a member, and how it is over.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Paused,
    Killed,
    Disconnected,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine and ETCD_TEST_IMAGE; ci/test gives it both"]
async fn members_paused_killed_and_disconnected_cost_no_lock_and_no_place_in_line() {
    let trio = Trio::start().await;
    let holders = session(trio.client().await, 15).await;
    let held = mutex(&holders, "jobs/held").lock().await.unwrap();
    let mut last = held.token();
    for fault in [Fault::Paused, Fault::Killed, Fault::Disconnected] {
        for of_leader in [false, true] {
            let mut line = Vec::new();
            for _ in 0..3 {
                let session = session(trio.client().await, 15).await;
                line.push(wait_in_line(&session, "jobs/line").await);
            }
            let leader = trio.leader().await;
            let which = if of_leader { leader } else { (leader + 1) % 3 };
            let node = &trio.nodes[which];
            match fault {
                Fault::Paused => node.pause().await,
                Fault::Killed => node.kill().await,
                Fault::Disconnected => node.disconnect().await,
            }
            for waiter in line {
                let turn = timeout(BOUND, waiter).await;
                let turn = turn.unwrap_or_else(|_| panic!("no turn, member {which} {fault:?}"));
                let (guard, _) = turn.unwrap().unwrap();
                assert!(guard.token() > last);
                last = guard.token();
                guard.release().await.unwrap();
            }
            match fault {
                Fault::Paused => node.unpause().await,
                Fault::Killed => node.start_again().await,
                Fault::Disconnected => node.connect().await,
            }
            trio.all_follow_one_leader().await;
            assert!(held.is_held(), "member {which} {fault:?}, leader {leader}");
        }
    }
    held.release().await.unwrap();
    holders.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine and ETCD_TEST_IMAGE; ci/test gives it both"]
async fn a_holder_whose_members_lose_each_other_is_told_before_the_next_one_holds() {
    let trio = Trio::start().await;
    let session = session(trio.client().await, 4).await;
    let guard = mutex(&session, "jobs/c").lock().await.unwrap();
    for node in &trio.nodes[..2] {
        node.disconnect().await;
    }
    let told = timeout(BOUND, guard.lost()).await;
    assert_eq!(told.expect("it is told"), Lost::Expired);
    assert_eq!(lost(guard.put("jobs/late", "x").await), Lost::Expired);
    for node in &trio.nodes[..2] {
        node.connect().await;
    }
    trio.all_follow_one_leader().await;
    let again = support::session(trio.client().await, 4).await;
    let next = timeout(BOUND, mutex(&again, "jobs/c").lock()).await;
    assert!(next.expect("its turn").unwrap().token() > guard.token());
}
