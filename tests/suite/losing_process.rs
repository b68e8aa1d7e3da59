//! Holders that stand still cannot be told in time, but they are told first, and their late writes are refused:
//! - a process stopped beyond the TTL (8);
//! - a runtime whose every worker is blocked beyond the TTL (9); a session on another runtime than the work outlasts it;
//! - random pauses in mid-write: without the token updates are lost, with it none (11).

use std::env::var;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{Txn, TxnOp};
use etcd_lock::{Error, FencingGate, FencingToken, LockGuard, Lost, Session, Stale};
use tokio::runtime::{Builder, Runtime};

use crate::support::{
    Etcd, Puppet, connect, keys, mutex, role, say, session, unique, wait_in_line,
};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A resource that lives outside etcd and refuses the past.
#[derive(Default)]
struct Store {
    gate: FencingGate,
    value: u64,
}

impl Store {
    fn admit(&mut self, token: FencingToken) -> Result<&mut u64, Stale> {
        self.gate.admit(token)?;
        Ok(&mut self.value)
    }
}

#[tokio::test]
async fn a_stopped_process_is_told_first_and_its_late_write_is_refused() {
    if role().is_some() {
        return holder_that_will_be_stopped().await;
    }
    let etcd = Etcd::start().await;
    let name = unique("stopped");
    let envs = [("ENDPOINT", &*etcd.endpoint()), ("NAME", &name)];
    let mut puppet = Puppet::rerun(
        a_stopped_process_is_told_first_and_its_late_write_is_refused,
        "holder",
        &envs,
    );
    let old: FencingToken = puppet.line().await.parse().unwrap();
    puppet.process.stop();
    let mut store = Store::default();
    *store.admit(old).unwrap() = 1;
    let client = etcd.client().await;
    let session = session(client.clone(), 2).await;
    let next = mutex(&session, &name).lock().await.unwrap();
    assert!(next.token() > old);
    *store.admit(next.token()).unwrap() = 2;
    puppet.process.cont();
    assert_eq!(puppet.line().await, "held: false");
    // It had asked before the pause and writes after it.
    assert_eq!(puppet.line().await, "written in etcd: false");
    let stale = store.admit(old).unwrap_err();
    assert_eq!((stale.token, stale.newest), (old, next.token()));
    assert_eq!(store.value, 2);
    assert_eq!(keys(&client, "report").await, [""; 0]);
    assert_eq!(puppet.line().await, "lost: Expired");
    assert!(next.is_held());
}

async fn holder_that_will_be_stopped() {
    let mut client = connect(&[var("ENDPOINT").unwrap()]).await;
    let session = session(client.clone(), 3).await;
    let guard = mutex(&session, &var("NAME").unwrap());
    let guard = guard.lock().await.unwrap();
    // No task of the runtime runs meanwhile: nothing but the clock can tell.
    let half = session.ttl() / 2;
    let mut answered = Instant::now();
    // From here on it may be stopped.
    say(guard.token());
    let held = loop {
        thread::sleep(MILLISECOND);
        let asked = Instant::now();
        let held = guard.is_held();
        let was_stopped = asked - answered > half;
        answered = Instant::now();
        match (was_stopped, answered - asked > half) {
            (true, _) => break held,
            // It was stopped between question and answer: the next is the first thing it asks.
            (false, true) => break guard.is_held(),
            (false, false) => assert!(held, "lost before it was stopped"),
        }
    };
    say(format!("held: {held}"));
    let txn = Txn::new()
        .when([guard.fence()])
        .and_then([TxnOp::put("report", "late", None)]);
    let written = client.txn(txn).await.unwrap().succeeded();
    say(format!("written in etcd: {written}"));
    say(format!("lost: {:?}", guard.lost().await));
}

#[test]
fn a_runtime_with_every_worker_blocked_is_told_by_the_clock() {
    const WORKERS: usize = 2;
    let outside = Runtime::new().unwrap();
    let inside = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .unwrap();
    let name = unique("blocked");
    let etcd = outside.block_on(Etcd::start());
    let (client, other) =
        outside.block_on(async { (etcd.endpoint(), session(etcd.client().await, 2).await) });
    let holder = inside.block_on(async { session(connect(&[client]).await, 2).await });
    let guard = inside.block_on(mutex(&holder, &name).lock()).unwrap();
    let guard = Arc::new(guard);
    let next = outside.block_on(wait_in_line(&other, &name));

    let all_blocked = Arc::new(Barrier::new(WORKERS + 1));
    let block = || {
        let (all_blocked, guard) = (all_blocked.clone(), guard.clone());
        inside.spawn(async move {
            all_blocked.wait();
            thread::sleep(Duration::from_secs(5));
            guard.is_held()
        })
    };
    let blocks: Vec<_> = (0..WORKERS).map(|_| block()).collect();
    all_blocked.wait();

    let mut last_held = Instant::now();
    while guard.is_held() {
        last_held = Instant::now();
        thread::sleep(MILLISECOND);
    }
    let (next, since) = outside.block_on(next).unwrap().unwrap();
    assert!(blocks.iter().all(|block| !block.is_finished()));
    assert!(last_held < since.into_std());
    assert!(next.is_held() && !guard.is_held());

    for block in blocks {
        assert!(!inside.block_on(block).unwrap(), "held, after the block");
    }
    assert_eq!(inside.block_on(guard.lost()), Lost::Expired);
    drop((next, other));
}

#[test]
fn a_session_on_a_runtime_of_its_own_outlasts_work_that_blocks() {
    let sessions = Runtime::new().unwrap();
    let work = Builder::new_current_thread().enable_all().build().unwrap();
    let etcd = sessions.block_on(Etcd::start());
    let session = sessions.block_on(async { session(etcd.client().await, 2).await });
    let guard = work.block_on(mutex(&session, "a").lock()).unwrap();
    let done = work.block_on(guard.run_until_lost(async {
        thread::sleep(3 * session.ttl());
        guard.is_held()
    }));
    assert_eq!(done, Ok(true));
    work.block_on(guard.release()).unwrap();
}

#[test]
fn pauses_in_mid_write_lose_updates_without_the_token_and_none_with_it() {
    const WORKERS: u64 = 4;
    const WRITES: u64 = 5;
    let servers = Runtime::new().unwrap();
    let etcd = servers.block_on(Etcd::start());
    let (endpoint, name) = (etcd.endpoint(), unique("pauses"));
    let (careless, careful) = (Mutex::new(0), Mutex::new(Store::default()));
    let worker = |number| {
        let (endpoint, name, careless, careful) = (&endpoint, &name, &careless, &careful);
        move || {
            // A runtime of one thread: when that sleeps, all stands still as in a stopped process.
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let mut accepted = 0;
            for write in 0..WRITES {
                let (session, guard) = runtime.block_on(hold(endpoint, name));
                let token = guard.token();
                let seen = *careless.lock().unwrap();
                let seen_with_token = careful.lock().unwrap().admit(token).map(|value| *value);
                match (number, write, fastrand::u8(0..8)) {
                    // At least one pause is certain to outlast the TTL and the next one's write.
                    (0, 0, _) => {
                        while *careless.lock().unwrap() == seen {
                            thread::sleep(MILLISECOND);
                        }
                    }
                    (_, _, 0) => thread::sleep(2500 * MILLISECOND),
                    _ => thread::sleep(fastrand::u32(0..100) * MILLISECOND),
                }
                *careless.lock().unwrap() = seen + 1;
                if let Ok(seen) = seen_with_token
                    && let Ok(value) = careful.lock().unwrap().admit(token)
                {
                    *value = seen + 1;
                    accepted += 1;
                }
                runtime.block_on(leave(session, guard));
            }
            accepted
        }
    };
    let accepted: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(worker(n))).collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    let without = *careless.lock().unwrap();
    assert!(without < WORKERS * WRITES, "no pause did any harm");
    assert_eq!(careful.lock().unwrap().value, accepted);
    assert!((1..WORKERS * WRITES).contains(&accepted), "{accepted}");
}

/// A hold of a session of its own, as after a loss.
async fn hold(endpoint: &str, name: &str) -> (Session, LockGuard) {
    let session = session(connect(&[endpoint.to_owned()]).await, 2).await;
    let guard = mutex(&session, name).lock().await.unwrap();
    (session, guard)
}

async fn leave(session: Session, guard: LockGuard) {
    match guard.release().await {
        Ok(()) | Err(Error::Lost(Lost::Expired)) => session.close().await.unwrap(),
        Err(error) => panic!("{error}"),
    }
}
