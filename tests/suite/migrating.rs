//! etcd's own lock, a call into the server, as its users meet it when they come to this crate: it stands in the same
//! line, and it knows owners by their lease alone.

use std::time::Duration;

use etcd_client::{Client, LockOptions};
use tokio::time::timeout;

use crate::support::{Etcd, ensure, mutex, session, soon, waiter};

const SECOND: Duration = Duration::from_secs(1);

/// Locks by the server, on a lease of 60 s; gives the key.
async fn lock(mut client: Client, name: &'static str, lease: i64) -> String {
    let options = LockOptions::new().with_lease(lease);
    let locked = client.lock(name, Some(options)).await.unwrap();
    String::from_utf8(locked.key().to_vec()).unwrap()
}

async fn lease(client: &Client) -> i64 {
    let granted = client.lease_client().grant(60, None).await;
    granted.unwrap().id()
}

#[tokio::test]
async fn etcds_own_lock_stands_in_the_same_line() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    let door = mutex(&session, "a");
    let ours = door.lock().await.unwrap();
    let theirs = tokio::spawn(lock(client.clone(), "a", lease(&client).await));
    let line = soon("it stands in the line", async || {
        let line = door.queue().await.unwrap();
        ensure(line.len() == 2, format!("{line:?}")).map(|()| line)
    })
    .await;
    // And ours behind it.
    let next = waiter(&door).await;
    assert!(!theirs.is_finished());
    ours.release().await.unwrap();
    let key = timeout(SECOND, theirs).await.expect("its turn").unwrap();
    assert_eq!(key, line[1].key);
    assert!(!next.is_over());
    client.lock_client().unlock(key).await.unwrap();
    let next = timeout(SECOND, next).await.expect("our turn").unwrap();
    assert!(next.is_held() && next.token() > line[1].token);
}

#[tokio::test]
async fn two_calls_of_etcds_own_lock_with_one_lease_both_hold() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let lease = lease(&client).await;
    let first = lock(client.clone(), "a", lease).await;
    let second = timeout(SECOND, lock(client, "a", lease)).await;
    assert_eq!(second, Ok(first));
}
