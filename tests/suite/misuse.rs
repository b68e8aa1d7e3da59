//! What careless callers do harms nobody else:
//! - a runtime that goes away takes its sessions along, and who waits for their end is told so;
//! - a future that is polled outside a runtime panics there and nowhere else;

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use etcd_lock::{Error, Mutex, Session};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::support::{BOUND, Etcd, ensure, keys, soon, unique};

const TTL: Duration = Duration::from_secs(2);

async fn open(etcd: &Etcd) -> Session {
    let session = Session::builder(etcd.client().await).ttl(TTL);
    session.open().await.unwrap()
}

#[test]
fn a_close_after_its_runtime_is_gone_is_unconfirmed() {
    let (servers, sessions) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let etcd = servers.block_on(Etcd::start());
    let session = sessions.block_on(open(&etcd));
    drop(sessions);
    let closed = servers.block_on(async { timeout(BOUND, session.close()).await });
    let closed = closed.expect("close returns");
    assert!(
        matches!(closed, Err(Error::Unconfirmed { .. })),
        "{closed:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_polled_outside_a_runtime_panics_only_there() {
    let etcd = Etcd::start().await;
    let (client, session) = (etcd.client().await, open(&etcd).await);
    let mutex = Mutex::new(&session, &unique("outside")).unwrap();

    let lock = mutex.lock();
    let outside = std::thread::spawn(move || {
        let _pending = pin!(lock).poll(&mut Context::from_waker(Waker::noop()));
    });
    assert!(outside.join().is_err(), "it does not panic");

    // The session still cleans up what is dropped, and its end is still confirmed.
    let guard = mutex.lock().await.unwrap();
    let waiting = mutex.lock_within(Duration::from_millis(200)).await;
    assert!(
        matches!(waiting, Err(Error::TimedOut { .. })),
        "{waiting:?}"
    );
    soon("only the holder is left", async || {
        let keys = keys(&client, mutex.name()).await;
        ensure(keys == [guard.key()], format!("{keys:?}"))
    })
    .await;
    timeout(BOUND, session.close())
        .await
        .expect("close returns")
        .unwrap();
}
