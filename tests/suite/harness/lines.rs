//! A line that is held is silent, one that is cut resets and refuses, answers that are swallowed have been given; and
//! so it is between members.

use std::time::{Duration, Instant};

use etcd_client::Client;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Etcd, Proxy, Setup, connect, ensure, keys, soon};

const SHORT: Duration = Duration::from_millis(300);

async fn client_of(proxy: &Proxy) -> Client {
    connect(&[proxy.endpoint()]).await
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
async fn a_member_cut_off_from_the_others_leads_no_more_until_its_lines_heal() {
    let (cluster, links) = Setup::default().linked(3).await;
    let old = cluster.leader_index().await;
    links.of(old).for_each(Proxy::hold);
    let new = soon("another leads", async || {
        let new = cluster.leader_index().await;
        (new != old).then_some(new).ok_or("the old one".to_owned())
    })
    .await;
    let client = cluster.members[new].client().await;
    client.kv_client().put("a", "1", None).await.unwrap();
    links.heal();
    let old = cluster.members[old].client().await;
    soon("it has what it missed", async || {
        let found = old.kv_client().get("a", None).await;
        let found = found.map_err(|error| error.to_string())?;
        ensure(found.count() == 1, "not yet")
    })
    .await;
}
