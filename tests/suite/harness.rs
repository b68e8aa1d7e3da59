//! The harness keeps its own promises:
//! - an etcd lives exactly as long as its test, is ours, and keeps ports and data over a kill;
//! - a line that is held is silent, one that is cut resets and refuses, answers that are swallowed have been given;
//! - a puppet speaks, stands still and dies as told.

use std::time::{Duration, Instant};

use etcd_client::{Client, PutOptions};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{
    Cluster, Etcd, Leashed, Proxy, Puppet, Setup, connect, ensure, etcdctl, etcdctl_elect,
    etcdctl_lock, etcdctl_observe, is_alive, keys, leases, role, say, soon, unique, within,
};

const SHORT: Duration = Duration::from_millis(300);

async fn client_of(proxy: &Proxy) -> Client {
    connect(&[proxy.endpoint()]).await
}

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
async fn a_held_proxy_is_silent_and_heals() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let mut client = client_of(&proxy).await;
    client.put("before", "1", None).await.unwrap();
    proxy.hold();
    let bytes = (proxy.bytes_up(), proxy.bytes_down());
    let mut late = tokio::spawn(async move { client.put("late", "1", None).await.map(drop) });
    let mut other = client_of(&proxy).await;
    assert!(
        timeout(SHORT, other.get("before", None)).await.is_err(),
        "a new connection is answered"
    );
    assert!(
        timeout(SHORT, &mut late).await.is_err(),
        "an old connection is answered"
    );
    assert_eq!((proxy.bytes_up(), proxy.bytes_down()), bytes);
    assert_eq!(keys(&etcd.client().await, "late").await, [""; 0]);
    proxy.heal();
    late.await.unwrap().unwrap();
    assert_eq!(keys(&other, "late").await, ["late"]);
    assert_eq!(proxy.opened(), 2);
}

#[tokio::test]
async fn a_cut_proxy_resets_and_refuses() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let address = proxy.endpoint().replace("http://", "");
    let mut stream = TcpStream::connect(&address).await.unwrap();
    proxy.cut();
    assert_eq!(proxy.open(), 0);
    let end = stream.read(&mut [0; 100]).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(&address).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    proxy.heal();
    client_of(&proxy).await.put("a", "1", None).await.unwrap();
}

#[tokio::test]
async fn a_reset_hits_old_connections_only() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = client_of(&proxy).await;
    let mut watch = client.watch_client().watch("a", None).await.unwrap();
    proxy.reset_all();
    while timeout(Duration::from_secs(1), watch.message())
        .await
        .expect("the stream ends")
        .is_ok_and(|m| m.is_some())
    {}
    soon("the client connects again", async || {
        client
            .kv_client()
            .get("a", None)
            .await
            .map_err(|e| e.to_string())
    })
    .await;
    assert_eq!((proxy.opened(), proxy.open()), (2, 1));
}

#[tokio::test]
async fn swallowed_answers_still_commit() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let mut client = client_of(&proxy).await;
    client.get("a", None).await.unwrap();
    proxy.drop_answers();
    let answer = tokio::spawn(async move { client.put("a", "1", None).await });
    let direct = etcd.client().await;
    soon("the put is done", async || {
        ensure(!keys(&direct, "a").await.is_empty(), "no key")
    })
    .await;
    soon("its answer is lost", async || {
        ensure(proxy.bytes_lost() > 0, "nothing lost")
    })
    .await;
    assert!(!answer.is_finished());
    proxy.heal();
    assert!(answer.await.unwrap().is_err(), "the lost answer has come");
    let fresh = client_of(&proxy).await;
    assert_eq!(keys(&fresh, "a").await, ["a"]);
}

#[tokio::test]
async fn held_answers_come_when_the_line_heals() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let mut client = client_of(&proxy).await;
    client.get("a", None).await.unwrap();
    proxy.hold_answers();
    let mut answer = tokio::spawn(async move { client.put("a", "1", None).await.map(drop) });
    let direct = etcd.client().await;
    soon("the put is done", async || {
        ensure(!keys(&direct, "a").await.is_empty(), "no key")
    })
    .await;
    assert!(
        timeout(SHORT, &mut answer).await.is_err(),
        "an answer has come"
    );
    proxy.heal();
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_delayed_line_is_late_but_not_narrow() {
    let etcd = Etcd::start().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let client = client_of(&proxy).await;
    client.kv_client().get("a", None).await.unwrap();
    proxy.delay(Duration::from_millis(50));
    let begun = Instant::now();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let mut kv = client.kv_client();
            tokio::spawn(async move { kv.get("a", None).await.map(drop) })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(100) && took < Duration::from_millis(400),
        "{took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_under_load_loses_nothing_and_leaks_nothing() {
    let etcd = Setup::default().quick().one().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let value = vec![b'x'; 10_000];
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..64 {
        let (client, value) = (client_of(&proxy).await, value.clone());
        tasks.spawn(async move {
            for j in 0..10 {
                client
                    .kv_client()
                    .put(format!("load/{i}/{j}"), value.clone(), None)
                    .await
                    .unwrap();
                let read = client
                    .kv_client()
                    .get(format!("load/{i}/{j}"), None)
                    .await
                    .unwrap();
                assert_eq!(read.kvs()[0].value(), value);
            }
        });
    }
    for _ in 0..20 {
        proxy.hold();
        tokio::time::sleep(Duration::from_millis(1)).await;
        proxy.hold_answers();
        tokio::time::sleep(Duration::from_millis(1)).await;
        proxy.heal();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(proxy.bytes_up() > 6_400_000 && proxy.bytes_down() > 6_400_000);
    soon("every connection has ended", async || {
        ensure(proxy.open() == 0, proxy.open())
    })
    .await;
    assert_eq!(proxy.opened(), 64);
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

#[tokio::test]
async fn a_puppet_speaks_stands_still_and_dies() {
    if role().as_deref() == Some("clock") {
        loop {
            say(std::env::var("WORD").unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut puppet = Puppet::rerun(
        a_puppet_speaks_stands_still_and_dies,
        "clock",
        &[("WORD", "tick")],
    );
    assert_eq!(puppet.line().await, "tick");
    puppet.process.stop();
    while timeout(SHORT, puppet.next_line()).await.is_ok() {}
    puppet.is_silent_for(SHORT).await;
    puppet.process.cont();
    assert_eq!(puppet.line().await, "tick");
    puppet.process.kill();
    while puppet.next_line().await.is_some() {}
    assert!(puppet.process.exited().is_some());
}

#[tokio::test]
async fn etcdctl_locks_and_elects_as_a_puppet() {
    let etcd = Etcd::start().await;
    let (client, endpoint) = (etcd.client().await, etcd.endpoint());
    let (lock, election) = (unique("lock"), unique("election"));
    let mut first = etcdctl_lock(&endpoint, &lock, 2);
    assert_eq!(
        vec![first.line().await],
        keys(&client, &format!("{lock}/")).await
    );
    let mut second = etcdctl_lock(&endpoint, &lock, 2);
    soon("the second waits", async || {
        ensure(keys(&client, &lock).await.len() == 2, "it does not")
    })
    .await;
    first.process.term();
    let key = second.line().await;
    assert_eq!(vec![key], keys(&client, &lock).await);
    assert!(first.process.exit().await.code().is_some() || first.process.exited().is_some());
    let mut observer = etcdctl_observe(&endpoint, &election);
    let mut leader = etcdctl_elect(&endpoint, &election, "me");
    let key = leader.line().await;
    assert_eq!(
        (
            leader.line().await,
            observer.line().await,
            observer.line().await
        ),
        ("me".into(), key, "me".into())
    );
    let got = etcdctl(&endpoint, &["get", "--prefix", "--keys-only", &election]).await;
    assert!(
        got.status.success()
            && String::from_utf8(got.stdout)
                .unwrap()
                .starts_with(&election)
    );
}

#[tokio::test]
async fn a_leash_takes_the_children_of_its_process_too() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "sleep 1000 & echo $!; wait"]);
    let mut puppet = Puppet::spawn(&command);
    let child = puppet.line().await.parse().unwrap();
    assert!(is_alive(child));
    Leashed::kill(&puppet.process);
    soon("the grandchild is gone", async || {
        ensure(!is_alive(child), child)
    })
    .await;
}

#[tokio::test]
async fn a_condition_that_never_comes_is_told_with_its_last_state() {
    let wait = tokio::spawn(within(SHORT, "pigs fly", async || {
        ensure(false, "a pig on the ground")
    }));
    let message = *wait
        .await
        .unwrap_err()
        .into_panic()
        .downcast::<String>()
        .unwrap();
    assert!(
        message.contains("pigs fly") && message.contains("a pig on the ground"),
        "{message}"
    );
    assert!(message.contains("harness.rs"), "{message}");
}
