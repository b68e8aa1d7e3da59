//! Changes of different lines that queue up ride in one transaction:
//! - they do, and why two changes of one line must not; what lines below one another make of it;
//! - one that is refused does not fail the others; an etcd that takes few operations is given few;
//! - lost answers of a ride are made up for, one by one;
//! - who gives up while still queueing up is never sent.

use std::time::Duration;

use etcd_lock::etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use etcd_lock::{Error, LockGuard, Mutex, Session};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::support::{
    BOUND, Etcd, Proxy, Setup, connect, ensure, keys, mutex, session, soon, soon_keys,
    soon_nothing, unique,
};

const LOCKS: usize = 200;

/// Long beside what it takes to ask for all the locks, so that these queue up behind the first.
const DELAY: Duration = Duration::from_millis(50);

/// A session behind a slow proxy, and a client that is not.
async fn slow(etcd: &Etcd) -> (Session, Client, Proxy) {
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session(connect(&[proxy.endpoint()]).await, 20).await;
    proxy.delay(DELAY);
    (session, etcd.client().await, proxy)
}

fn mutexes(session: &Session) -> Vec<Mutex> {
    let stem = unique("riding");
    (0..LOCKS)
        .map(|i| mutex(session, &format!("{stem}/{i}")))
        .collect()
}

async fn lock_all(mutexes: &[Mutex]) -> Vec<LockGuard> {
    let all = join_all(mutexes.iter().map(Mutex::lock));
    let all = timeout(BOUND, all).await.expect("all get their locks");
    all.into_iter().map(Result::unwrap).collect()
}

async fn release_all(guards: Vec<LockGuard>) {
    let all = join_all(guards.into_iter().map(LockGuard::release));
    for released in timeout(BOUND, all).await.expect("all are released") {
        released.unwrap();
    }
}

async fn revision(client: &Client) -> i64 {
    let got = client.kv_client().get("none", None).await.unwrap();
    got.header().unwrap().revision()
}

#[tokio::test]
async fn what_queues_up_rides_in_few_transactions_and_each_has_its_lock() {
    let etcd = Etcd::start().await;
    let (session, client, _proxy) = slow(&etcd).await;
    let mutexes = mutexes(&session);
    let before = revision(&client).await;

    let guards = lock_all(&mutexes).await;
    // Each transaction that changes anything is one revision: two plain, then two full ones.
    let transactions = revision(&client).await - before;
    assert!(transactions <= 6, "{transactions} for {LOCKS} locks");
    for guard in &guards {
        assert_eq!(
            keys(&client, &format!("{}/", guard.name())).await,
            [guard.key()]
        );
        let found = client.kv_client().get(guard.key(), None).await.unwrap();
        let created = found.kvs()[0].create_revision();
        assert_eq!(i64::try_from(guard.token().get()), Ok(created));
    }

    release_all(guards).await;
    let transactions = revision(&client).await - before;
    assert!(transactions <= 12, "{transactions} for {LOCKS} locks");
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn two_changes_of_one_line_in_one_transaction_would_tie_or_both_win() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let mut kv = client.kv_client();
    let lease = client.lease_client().grant(60, None).await.unwrap().id();
    let put = |key: &str| TxnOp::put(key, "", Some(PutOptions::new().with_lease(lease)));
    let try_once = |key: &str| {
        let nobody = Compare::create_revision("line/", CompareOp::Equal, 0).with_prefix();
        TxnOp::txn(Txn::new().when([nobody]).and_then([put(key)]))
    };
    // Both say "nobody is there", and both put.
    kv.txn(Txn::new().and_then([try_once("line/a"), try_once("line/b")]))
        .await
        .unwrap();
    let prefix = GetOptions::new().with_prefix();
    let found = kv.get("line/", Some(prefix)).await.unwrap();
    let [a, b] = found.kvs() else {
        panic!("not both: {found:?}");
    };
    assert_eq!(a.create_revision(), b.create_revision(), "one is first");
}

#[tokio::test]
async fn one_line_is_changed_by_one_at_a_time_however_many_queue_up() {
    let etcd = Etcd::start().await;
    let (session, client, _proxy) = slow(&etcd).await;
    let mutex = mutex(&session, &unique("one"));

    let tries = join_all((0..20).map(|_| mutex.try_lock())).await;
    let won = tries.into_iter().filter_map(|tried| tried.unwrap().ok());
    assert_eq!(won.count(), 1, "all guards at once");

    let first = mutex.lock().await.unwrap();
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let lock = mutex.lock();
            tokio::spawn(async { lock.await.unwrap().release().await })
        })
        .collect();
    soon("all stand in line", async || {
        let line = mutex.queue().await.unwrap();
        ensure(line.len() > waiters.len(), format!("{line:?}"))
    })
    .await;
    let line = mutex.queue().await.unwrap();
    assert!(line.is_sorted_by(|a, b| a.token < b.token), "{line:?}");
    first.release().await.unwrap();
    for waiter in waiters {
        let ended = timeout(BOUND, waiter).await.expect("a turn");
        ended.unwrap().unwrap();
    }
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_try_that_rides_with_the_release_of_a_lock_below_its_name_gets_the_lock() {
    let etcd = Etcd::start().await;
    let (session, client, proxy) = slow(&etcd).await;
    let stem = unique("nested");
    let below = mutex(&session, &format!("{stem}/below"))
        .lock()
        .await
        .unwrap();
    let at_work = [0, 1].map(|i| mutex(&session, &unique(&format!("other-{i}"))).lock());
    proxy.hold();
    let mut others = Vec::new();
    for lock in at_work {
        others.push(tokio::spawn(lock));
        // Sent, each by itself.
        tokio::time::sleep(DELAY / 5).await;
    }
    let (released, tried, ()) =
        tokio::join!(below.release(), mutex(&session, &stem).try_lock(), async {
            tokio::time::sleep(DELAY / 5).await;
            proxy.heal();
        });
    released.unwrap();
    let guard = tried.unwrap().expect("nobody else wants it");
    assert_eq!(keys(&client, &format!("{stem}/")).await, [guard.key()]);
    guard.release().await.unwrap();
    for other in others {
        other.await.unwrap().unwrap().release().await.unwrap();
    }
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn one_that_is_refused_does_not_fail_those_it_rides_with() {
    let etcd = Etcd::start().await;
    let (session, client, _proxy) = slow(&etcd).await;
    let mutexes = mutexes(&session);
    // More than etcd takes in a request, alone as in company.
    let large = mutex(&session, &"x".repeat(1_600_000));

    let (guards, refused) = tokio::join!(lock_all(&mutexes), large.lock());
    assert!(matches!(refused, Err(Error::Etcd { .. })), "{refused:?}");
    assert!(guards.iter().all(|guard| guard.is_held()));
    release_all(guards).await;
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn an_etcd_that_takes_few_operations_is_given_few() {
    let etcd = Setup::default().quick().arg("--max-txn-ops=8").one().await;
    let session = session(etcd.client().await, 20).await;
    let mutexes = mutexes(&session);
    for _ in 0..3 {
        let guards = lock_all(&mutexes).await;
        assert!(guards.iter().all(|guard| guard.is_held()));
        release_all(guards).await;
    }
    session.close().await.unwrap();
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn when_answers_of_a_ride_are_lost_everybody_has_one_key_and_a_lock() {
    let etcd = Etcd::start().await;
    let (session, client, proxy) = slow(&etcd).await;
    let mutexes = mutexes(&session);
    let before = revision(&client).await;

    proxy.drop_answers();
    let ((), guards) = tokio::join!(
        async {
            soon("a ride was carried out", async || {
                let now = revision(&client).await;
                ensure(now > before, now)
            })
            .await;
            proxy.heal();
        },
        lock_all(&mutexes)
    );
    for guard in &guards {
        assert!(guard.is_held());
        assert_eq!(
            keys(&client, &format!("{}/", guard.name())).await,
            [guard.key()]
        );
    }
    release_all(guards).await;
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn a_crowd_that_gives_up_while_queueing_up_is_never_sent() {
    let etcd = Etcd::start().await;
    let (session, client, proxy) = slow(&etcd).await;
    let mutex = mutex(&session, &unique("crowd"));
    let before = revision(&client).await;

    proxy.hold();
    let crowd = join_all((0..LOCKS).map(|_| mutex.lock_within(DELAY))).await;
    for gave_up in crowd {
        assert!(
            matches!(gave_up, Err(Error::TimedOut { .. })),
            "{gave_up:?}"
        );
    }
    proxy.heal();
    timeout(BOUND, mutex.lock())
        .await
        .expect("a turn")
        .unwrap()
        .release()
        .await
        .unwrap();
    soon_keys(&client, &format!("{}/", mutex.name()), &[]).await;
    // A revision each for what the writers, and the first by itself, had taken to send, for its removal, and for the
    // last.
    let transactions = revision(&client).await - before;
    assert!(
        transactions <= 2 * (4 + 1) + 2,
        "{transactions} for one lock"
    );
    session.close().await.unwrap();
    soon_nothing(&client).await;
}
