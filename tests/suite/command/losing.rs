//! On a loss, all that the child has started is dead *before* anybody else can hold:
//!
//! - when the command is cut off from etcd, or etcd stands still: TERM first, then KILL;
//! - at once when the key was taken away by hand, or the lease.
//!
//! And the command says why it was lost, and who holds now.

use std::time::Duration;

use etcd_client::Client;

use super::tool::{DEAF, Family, PAIR, complaint, output, program, run, soon_gone};
use crate::support::{
    Etcd, Proxy, Puppet, ensure, keys, mutex, session, soon, soon_nothing, waiter,
};

/// Waits for the lock as another would, and sees that by then nothing of the family is alive.
async fn next_holds(client: &Client, family: &Family) {
    let session = session(client.clone(), 60).await;
    let next = mutex(&session, "a").lock().await.unwrap();
    let alive = family.alive();
    assert!(next.is_held() && alive.is_empty(), "{alive:?}");
    next.release().await.unwrap();
    session.close().await.unwrap();
}

#[tokio::test]
async fn what_is_deaf_to_term_is_dead_before_the_next_one_holds() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    for cut in [Proxy::hold, Proxy::cut] {
        let mut ours = run(&proxy.endpoint(), "a", DEAF);
        let family = Family::of(&mut ours).await;
        cut(&proxy);
        next_holds(&client, &family).await;
        assert_eq!(ours.process.exit().await.code(), Some(123));
        proxy.heal();
        soon_gone(&client, &family).await;
    }
}

#[tokio::test]
async fn what_listens_to_term_has_the_grace_to_end() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let args = [
        "run", "--ttl", "8s", "--grace", "3s", "a", "--", "sh", "-c", script,
    ];
    let mut ours = Puppet::spawn(&program(&proxy.endpoint(), &args));
    assert_eq!(ours.line().await, "ready");
    proxy.hold();
    assert_eq!(ours.line().await, "told");
    let key = keys(&client, "a/").await;
    assert_eq!(key.len(), 1, "etcd does not know yet");
    // Even so: it was not held to the end.
    assert_eq!(ours.process.exit().await.code(), Some(123));
    proxy.heal();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn it_is_dead_in_time_while_etcd_stands_still() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut ours = run(&etcd.endpoint(), "a", DEAF);
    let family = Family::of(&mut ours).await;
    etcd.stop();
    family.soon_dead().await;
    assert_eq!(ours.process.exit().await.code(), Some(123));
    etcd.cont();
    next_holds(&client, &family).await;
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_key_or_lease_that_is_taken_away_by_hand_kills_at_once() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    for by_lease in [false, true] {
        // So long a TTL that no time runs out here.
        let args = ["run", "--ttl", "300s", "a", "--", "sh", "-c", DEAF];
        let mut ours = Puppet::spawn(&program(&etcd.endpoint(), &args));
        let family = Family::of(&mut ours).await;
        let key = keys(&client, "a/").await.remove(0);
        if by_lease {
            let lease = key.rsplit_once('/').unwrap().1.split_once('-').unwrap().0;
            let lease = i64::from_str_radix(lease, 16).unwrap();
            client.lease_client().revoke(lease).await.unwrap();
        } else {
            client.kv_client().delete(key, None).await.unwrap();
        }
        family.soon_dead().await;
        assert_eq!(ours.process.exit().await.code(), Some(123));
        soon_gone(&client, &family).await;
    }
}

#[tokio::test]
async fn what_has_left_the_group_is_dead_as_well() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    let script = "setsid sh -c 'trap \"\" TERM; exec sleep 1000' & echo $$ $! $PPID; wait";
    let mut ours = run(&proxy.endpoint(), "a", script);
    let family = Family::of(&mut ours).await;
    proxy.hold();
    next_holds(&client, &family).await;
    assert_eq!(ours.process.exit().await.code(), Some(123));
    proxy.heal();
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn an_outage_that_ends_in_time_is_no_loss() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    let args = ["run", "--ttl", "6s", "a", "--", "sh", "-c", PAIR];
    let mut ours = Puppet::spawn(&program(&proxy.endpoint(), &args));
    let family = Family::of(&mut ours).await;
    for _ in 0..3 {
        proxy.cut();
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.heal();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(family.alive().len(), 2);
    ours.process.term();
    assert_eq!(ours.process.exit().await.code(), Some(143));
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn a_place_in_line_that_an_outage_has_cost_is_taken_again() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    let door = mutex(&session, "a");
    let guard = door.lock().await.unwrap();
    let mut ours = run(&proxy.endpoint(), "a", "echo it ran");
    let others = async |count| {
        soon("so many stand in the line", async || {
            let line = keys(&client, "a/").await;
            ensure(line.len() == count, format!("{line:?}"))
        })
        .await;
    };
    others(2).await;
    proxy.cut();
    others(1).await;
    proxy.heal();
    others(2).await;
    guard.release().await.unwrap();
    assert_eq!(ours.line().await, "it ran");
    assert_eq!(ours.process.exit().await.code(), Some(0));
    drop(waiter(&door).await);
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_loss_is_told_with_its_reason_and_who_holds_now() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    let door = mutex(&session, "a");
    let dir = tempfile::tempdir().unwrap();
    let begun = dir.path().join("begun");
    let script = format!("touch {}; exec sleep 1000", begun.display());
    let args = ["run", "--ttl", "2s", "a", "--", "sh", "-c", &script];
    // Its key tells that it is held; that it knows, what it runs.
    let runs = async || {
        soon("it runs", async || ensure(begun.exists(), "it does not")).await;
        std::fs::remove_file(&begun).unwrap();
    };

    let endpoint = proxy.endpoint();
    let (cut, ()) = tokio::join!(output(&endpoint, &args), async {
        runs().await;
        proxy.hold();
    });
    let said = complaint(&cut);
    assert!(said.contains("this process ran all the while"), "{said}");
    assert!(
        said.ends_with("etcd does not say who holds now; its command was stopped"),
        "{said}"
    );
    proxy.heal();

    let endpoint = etcd.endpoint();
    let (broken, next) = tokio::join!(output(&endpoint, &args), async {
        runs().await;
        let holder = door.queue().await.unwrap().remove(0);
        let next = waiter(&door).await;
        door.break_if(holder.token).await.unwrap();
        next.await.unwrap()
    });
    let said = complaint(&broken);
    let now = format!(
        "{} holds now, with token {}",
        door.queue().await.unwrap()[0].label,
        next.token()
    );
    assert!(
        said.contains("lost: broken by an operator") && said.contains(&now),
        "{said}"
    );
    next.release().await.unwrap();
    session.close().await.unwrap();
    soon_nothing(&client).await;
}
