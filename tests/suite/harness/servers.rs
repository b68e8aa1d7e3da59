//! An etcd lives exactly as long as its test, is ours, keeps ports and data over a kill, and counts what it is asked.

use std::time::Duration;

use etcd_client::PutOptions;
use tokio::net::TcpStream;

use crate::support::{
    Cluster, Etcd, Puppet, ensure, is_alive, keys, leases, role, say, soon, within,
};

#[tokio::test]
async fn an_etcd_is_ours_and_leaves_nothing() {
    let etcd = Etcd::start().await;
    let members = etcd.client().await.member_list().await.unwrap();
    let urls: Vec<_> = members
        .members()
        .iter()
        .flat_map(|member| member.client_urls().to_vec())
        .collect();
    assert_eq!(urls, [etcd.endpoint()]);
    let granted = etcd.client().await.lease_grant(1, None).await.unwrap();
    assert_eq!(granted.ttl(), 2);
    let (pid, dir) = (etcd.pid(), etcd.dir().to_owned());
    assert!(is_alive(pid) && dir.exists());
    drop(etcd);
    assert!(!is_alive(pid) && !dir.exists());
}

#[tokio::test]
async fn an_etcd_dies_with_its_test_process() {
    if role().is_some() {
        let etcd = Etcd::start().await;
        etcd.stop();
        say(etcd.pid());
        say(etcd.dir().display());
        std::future::pending::<()>().await;
    }
    let mut puppet = Puppet::rerun(an_etcd_dies_with_its_test_process, "owner", &[]);
    let (pid, dir) = (puppet.line().await.parse().unwrap(), puppet.line().await);
    assert!(is_alive(pid) && std::fs::exists(&dir).unwrap());
    puppet.process.kill();
    within(
        Duration::from_secs(5),
        "etcd and its data are gone",
        async || {
            ensure(
                !is_alive(pid) && !std::fs::exists(&dir).unwrap(),
                "still there",
            )
        },
    )
    .await;
}

#[tokio::test]
async fn a_killed_etcd_comes_back_with_its_data() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    client.kv_client().put("kept", "1", None).await.unwrap();
    etcd.stop();
    etcd.kill();
    assert!(
        TcpStream::connect(("127.0.0.1", etcd.port()))
            .await
            .is_err()
    );
    etcd.restart().await;
    assert_eq!(keys(&etcd.client().await, "kept").await, ["kept"]);
    etcd.term().await;
    etcd.restart().await;
    assert_eq!(keys(&etcd.client().await, "kept").await, ["kept"]);
}

#[tokio::test]
async fn a_cluster_outlives_its_leader() {
    let cluster = Cluster::start(3).await;
    let old = cluster.leader_index().await;
    cluster.members[old].stop();
    let new = cluster.leader_index().await;
    assert_ne!(new, old);
    cluster.members[new]
        .client()
        .await
        .put("a", "1", None)
        .await
        .unwrap();
    cluster.members[old].cont();
    soon("the old leader follows", async || {
        let all = cluster.members[old]
            .status()
            .await
            .map(|status| status.leader());
        let wanted = cluster.members[new]
            .status()
            .await
            .map(|status| status.leader());
        ensure(
            all.is_some() && all == wanted,
            format!("{all:?} {wanted:?}"),
        )
    })
    .await;
    cluster.move_leader(old).await;
    assert_eq!(cluster.followers().await.len(), 2);
}

#[tokio::test]
async fn a_member_counts_calls_watchers_and_connections() {
    let etcd = Etcd::start().await;
    soon("no connection", async || {
        ensure(etcd.connections() == 0, etcd.connections())
    })
    .await;
    let client = etcd.client().await;
    let before = etcd.calls("Range").await;
    keys(&client, "a").await;
    assert!((etcd.calls("Range").await - before - 1.0).abs() < f64::EPSILON);
    let _watch = client.watch_client().watch("a", None).await.unwrap();
    soon("a watcher is counted", async || {
        let watchers = etcd.metric("etcd_debugging_mvcc_watcher_total").await;
        ensure((watchers - 1.0).abs() < f64::EPSILON, watchers)
    })
    .await;
    soon("one connection", async || {
        ensure(etcd.connections() == 1, etcd.connections())
    })
    .await;
    let lease = client.lease_client().grant(60, None).await.unwrap().id();
    client
        .kv_client()
        .put("b", "", Some(PutOptions::new().with_lease(lease)))
        .await
        .unwrap();
    assert_eq!(leases(&client).await, [lease]);
}
