//! - `lock_within` and tokio's `timeout` leave no key; a limit that is over is an error of its own.
//! - A future that was never polled has done nothing.

use std::time::Duration;

use etcd_lock::Error;
use tokio::time::{Instant, timeout};

use crate::support::{Etcd, keys, mutex, session, soon, soon_keys};

#[tokio::test]
async fn a_limit_that_is_over_is_told_in_time_and_leaves_no_key() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 600).await;
    let door = mutex(&session, "a");
    let holder = door.lock().await.unwrap();
    for limit in [
        Duration::ZERO,
        Duration::from_millis(1),
        Duration::from_millis(300),
    ] {
        let begun = Instant::now();
        let error = door.lock_within(limit).await.unwrap_err();
        let took = begun.elapsed();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("\"a\"") && text.contains(&format!("{limit:?}")),
            "{text}"
        );
        assert!(
            took >= limit && took < limit + Duration::from_secs(1),
            "{took:?}"
        );
        soon_keys(&client, "a/", &[holder.key()]).await;
        assert!(timeout(limit, door.lock()).await.is_err());
        soon_keys(&client, "a/", &[holder.key()]).await;
    }
    holder.release().await.unwrap();
    let guard = door.lock_within(Duration::MAX).await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test]
async fn futures_that_were_never_polled_have_done_nothing() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    let before = etcd.calls("Txn").await;
    drop((door.lock(), door.try_lock(), door.queue()));
    drop(door.lock_within(Duration::from_secs(1)));
    let guard = mutex(&session, "b").lock().await.unwrap();
    soon("the lock of b is counted", async || {
        let calls = etcd.calls("Txn").await - before;
        ((calls - 1.0).abs() < 0.5)
            .then_some(())
            .ok_or(format!("{calls} calls"))
    })
    .await;
    assert_eq!(keys(&client, "").await, [guard.key()]);
}
