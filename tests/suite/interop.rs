//! One line with everybody who uses Go's `concurrency` package, here by etcd's own command line client.
//!
//! - `etcdctl lock` waits behind ours and ours behind it, in both directions, several in line, in order.
//! - `etcdctl elect` stands in the same line.
//! - An `etcdctl lock` that is killed is a holder that crashed.
//! - A foreign key, without a lease or with an odd name, is waited for and shown; put again it keeps its place, deleted
//!   and put anew it stands at the end.

use std::time::Duration;

use etcd_client::Client;
use etcd_lock::{LockGuard, Mutex, Waiter};
use tokio::time::{Instant, timeout};

use crate::support::{
    Etcd, Puppet, Waiting, ensure, etcdctl_elect, etcdctl_lock, keys, mutex, session, soon,
    soon_keys, waiter,
};

/// Long enough for somebody who wrongly holds to say so.
const MOMENT: Duration = Duration::from_millis(700);

/// Waits until so many stand in the line; gives it.
async fn line_of(door: &Mutex, length: usize) -> Vec<Waiter> {
    soon("all stand in the line", async || {
        let line = door.queue().await.unwrap();
        let enough = line.len() == length;
        ensure(enough, format!("{line:?}")).map(|()| line)
    })
    .await
}

async fn is_waiting(waiting: &mut Waiting) {
    let early = timeout(MOMENT, waiting).await;
    assert!(early.is_err(), "{early:?}");
}

#[tokio::test]
async fn etcdctl_waits_behind_ours_and_ours_behind_etcdctl() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "jobs/nightly");
    let ours = door.lock().await.unwrap();
    let mut theirs = etcdctl_lock(&etcd.endpoint(), "jobs/nightly", 2);
    let line = line_of(&door, 2).await;
    assert_ne!(line[1].lease, session.lease_id());
    theirs.is_silent_for(MOMENT).await;
    ours.release().await.unwrap();
    assert_eq!(theirs.line().await, line[1].key);
    // And back.
    let tried = door.try_lock().await.unwrap().unwrap_err();
    assert_eq!(tried.holder().key, line[1].key);
    assert_eq!(tried.holder().token, line[1].token);
    let mut ours = waiter(&door).await;
    is_waiting(&mut ours).await;
    theirs.process.term();
    let ours = ours.await.unwrap();
    assert!(ours.token() > line[1].token);
    soon_keys(&etcd.client().await, "jobs/nightly/", &[ours.key()]).await;
}

/// One who stands in the line.
enum Standing {
    Ours(Waiting),
    Theirs(Puppet),
}

/// One whose turn has come.
enum Holder {
    Ours(LockGuard),
    Theirs(Puppet),
}

#[tokio::test]
async fn a_mixed_line_keeps_its_order() {
    // Longer than the near window.
    const LENGTH: usize = 10;
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let sessions = [
        session(client.clone(), 2).await,
        session(client.clone(), 2).await,
    ];
    let door = mutex(&sessions[0], "a");
    let mut holder = Holder::Ours(door.lock().await.unwrap());
    let mut waiting = Vec::new();
    for n in 0..LENGTH {
        waiting.push(match n % 3 {
            1 => Standing::Ours(waiter(&mutex(&sessions[n / 3 % 2], "a")).await),
            _ => Standing::Theirs(etcdctl_lock(&etcd.endpoint(), "a", 2)),
        });
        line_of(&door, n + 2).await;
    }
    let promised = door.queue().await.unwrap();
    for (standing, promised) in waiting.into_iter().zip(&promised[1..]) {
        match holder {
            Holder::Ours(guard) => guard.release().await.unwrap(),
            Holder::Theirs(puppet) => puppet.process.term(),
        }
        let key;
        (holder, key) = match standing {
            Standing::Ours(waiting) => {
                let guard = waiting.await.unwrap();
                assert_eq!(guard.token(), promised.token);
                let key = guard.key().to_owned();
                (Holder::Ours(guard), key)
            }
            Standing::Theirs(mut puppet) => {
                let key = puppet.line().await;
                (Holder::Theirs(puppet), key)
            }
        };
        assert_eq!(key, promised.key);
        assert_eq!(keys(&client, "a/").await[0], key);
    }
}

#[tokio::test]
async fn etcdctls_candidates_stand_in_the_same_line() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let ours = door.lock().await.unwrap();
    let mut candidate = etcdctl_elect(&etcd.endpoint(), "a", "host-7:8080");
    let line = line_of(&door, 2).await;
    assert_eq!(line[1].label, "host-7:8080", "the candidate's value");
    let mut next = waiter(&door).await;
    candidate.is_silent_for(MOMENT).await;
    ours.release().await.unwrap();
    assert_eq!(candidate.line().await, line[1].key);
    let busy = door.try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.holder().label, "host-7:8080");
    is_waiting(&mut next).await;
    candidate.process.term();
    assert!(next.await.unwrap().is_held());
}

#[tokio::test]
async fn an_etcdctl_that_is_killed_is_followed_within_its_ttl_and_a_second() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 60).await;
    let mut theirs = etcdctl_lock(&etcd.endpoint(), "a", 2);
    theirs.line().await;
    let ours = waiter(&mutex(&session, "a")).await;
    let killed = Instant::now();
    theirs.process.kill();
    assert!(ours.await.unwrap().is_held());
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

async fn put(client: &Client, key: impl Into<Vec<u8>>, value: &str) {
    client.kv_client().put(key, value, None).await.unwrap();
}

async fn delete(client: &Client, key: impl Into<Vec<u8>>) {
    client.kv_client().delete(key, None).await.unwrap();
}

#[tokio::test]
async fn a_foreign_key_is_waited_for_and_shown() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    for (key, shown) in [(&b"a/by hand"[..], "a/by hand"), (b"a/\xff", "a/\u{fffd}")] {
        put(&client, key, "maintenance until noon").await;
        let busy = door.try_lock().await.unwrap().unwrap_err();
        let holder = busy.holder();
        assert_eq!((holder.key.as_str(), holder.lease), (shown, 0));
        assert_eq!(holder.label, "maintenance until noon");
        let mut waiting = waiter(&door).await;
        let line = door.queue().await.unwrap();
        assert_eq!((line.len(), &line[0]), (2, holder));
        is_waiting(&mut waiting).await;
        // Longer than a TTL: the slow look does not pass it over either.
        is_waiting(&mut waiting).await;
        is_waiting(&mut waiting).await;
        delete(&client, key).await;
        waiting.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_foreign_key_keeps_its_place_until_it_is_deleted() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    put(&client, "a/other", "1").await;
    put(&client, "a/by hand", "1").await;
    let mut waiting = waiter(&door).await;
    // Put again: the same key, the same place.
    put(&client, "a/by hand", "2").await;
    delete(&client, "a/other").await;
    is_waiting(&mut waiting).await;
    assert_eq!(door.queue().await.unwrap()[0].label, "2");
    // Deleted and put anew: another key, behind us.
    delete(&client, "a/by hand").await;
    put(&client, "a/by hand", "3").await;
    let guard = waiting.await.unwrap();
    let line = door.queue().await.unwrap();
    assert_eq!(
        (line[0].key.as_str(), line[1].label.as_str()),
        (guard.key(), "3")
    );
}
