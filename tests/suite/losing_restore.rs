//! etcd restored from a snapshot, its revisions gone back: what was taken since is lost and said so, nobody waits
//! for a revision of the future, and a session that the snapshot knows goes on (12).

use std::time::Duration;

use etcd_lock::Lost;
use tokio::time::timeout;

use crate::support::{Etcd, etcdctl, lost, mutex, session, unique, wait_in_line};

const SECOND: Duration = Duration::from_secs(1);

async fn must(endpoint: &str, args: &[&str]) {
    let done = etcdctl(endpoint, args).await;
    assert!(done.status.success(), "{done:?}");
}

#[tokio::test]
async fn after_a_restore_what_the_snapshot_does_not_know_is_lost_and_nothing_hangs() {
    let etcd = Etcd::start().await;
    let mut client = etcd.client().await;
    let members = client.member_list().await.unwrap();
    let peer = members.members()[0].peer_urls()[0].clone();
    let early = session(client.clone(), 15).await;
    let snapshot = etcd.dir().join("snapshot").display().to_string();
    must(&etcd.endpoint(), &["snapshot", "save", &snapshot]).await;

    let late = session(client.clone(), 15).await;
    for _ in 0..100 {
        client.put("other", "", None).await.unwrap();
    }
    let mutex = mutex(&early, &unique("restored"));
    let guard = mutex.lock().await.unwrap();
    let waiter = wait_in_line(&late, mutex.name()).await;

    etcd.kill();
    let data = etcd.dir().join("data");
    std::fs::remove_dir_all(&data).unwrap();
    let restore = [
        "snapshot",
        "restore",
        &snapshot,
        &format!("--data-dir={}", data.display()),
        &format!("--name={}", etcd.name()),
        &format!("--initial-cluster={}={peer}", etcd.name()),
        &format!("--initial-advertise-peer-urls={peer}"),
    ];
    must(&etcd.endpoint(), &restore).await;
    etcd.restart().await;

    let told = timeout(5 * SECOND, guard.lost()).await;
    assert_eq!(told, Ok(Lost::KeyDeleted));
    let told = timeout(5 * SECOND, waiter).await.expect("told").unwrap();
    assert_eq!(lost(told), Lost::LeaseGone);
    assert_eq!(late.ended().await, Lost::LeaseGone);
    let next = timeout(5 * SECOND, mutex.lock()).await.expect("no hang");
    let next = next.unwrap();
    assert!(next.token() < guard.token(), "revisions have not gone back");
    assert!(next.is_held() && early.is_certain());
    next.release().await.unwrap();
}
