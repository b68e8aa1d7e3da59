//! What careless callers do harms nobody else:
//! - a runtime that goes away takes its sessions along, and who waits for their end is told so;
//! - waits of one session on several runtimes go on when one of these goes away;
//! - a future that is polled outside a runtime panics there and nowhere else;
//! - a request that etcd will never take is refused, not tried for ever.

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

#[test]
fn a_wait_does_not_depend_on_the_runtime_of_another() {
    let (long, short) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let etcd = long.block_on(Etcd::start());
    let (held, session) = long.block_on(async { (open(&etcd).await, open(&etcd).await) });
    let name = unique("runtimes");
    let guard = long
        .block_on(Mutex::new(&held, &name).unwrap().lock())
        .unwrap();

    // Two waits of one session, of which the first ends with its runtime.
    let mutex = Mutex::new(&session, &name).unwrap();
    let first = short.spawn(mutex.lock());
    let client = long.block_on(etcd.client());
    let stand = async |n| {
        soon("they stand in line", async || {
            let keys = keys(&client, &name).await;
            ensure(keys.len() == n, format!("{keys:?}"))
        })
        .await;
    };
    long.block_on(stand(2));
    let second = long.spawn(mutex.lock());
    long.block_on(stand(3));
    drop(short);
    assert!(long.block_on(first).unwrap_err().is_cancelled());
    let next = long.block_on(async {
        guard.release().await.unwrap();
        timeout(BOUND, second).await
    });
    assert!(next.expect("the turn comes").unwrap().unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_polled_and_dropped_outside_a_runtime_leaves_nothing() {
    let etcd = Etcd::start().await;
    let (client, session) = (etcd.client().await, open(&etcd).await);
    let mutex = Mutex::new(&session, &unique("outside")).unwrap();

    // Else a thread that is kept waiting in the middle of the poll may see the answer in it.
    etcd.stop();
    let lock = mutex.lock();
    let outside = std::thread::spawn(move || {
        let polled = pin!(lock).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "answered by an etcd that stands still");
    });
    outside
        .join()
        .expect("neither the poll nor the drop panics");
    etcd.cont();

    // The session cleans up what is dropped, and its end is still confirmed.
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

#[tokio::test]
async fn a_name_too_large_for_etcd_is_refused() {
    let etcd = Etcd::start().await;
    let session = open(&etcd).await;
    // The one is refused by etcd, the other by the gRPC server before it.
    for size in [1_600_000, 3_000_000] {
        let mutex = Mutex::new(&session, &"x".repeat(size)).unwrap();
        let locked = timeout(BOUND, mutex.lock()).await.expect("lock returns");
        assert!(matches!(locked, Err(Error::Etcd { .. })), "{size}");
    }
    assert!(session.is_certain());
}
