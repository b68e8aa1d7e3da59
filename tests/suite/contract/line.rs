//! - First come, first served, between tasks and sessions, also in lines longer than the near window and when some leave.
//! - Tokens grow from holder to holder and are the create revision of the key, whoever tells them (R13).
//! - The queue and a busy try tell who holds and who waits: position, key, label, token, lease.
//! - A release wakes a bounded number of waiters and makes a bounded number of requests, however long the line (R8,
//!   scenario 55), counted by etcd and counted in our own tasks.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use etcd_lock::{LockGuard, Mutex, Session};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{Etcd, ensure, mutex, session, soon, waiter};

/// Waiters that say their number and token as soon as they hold, and release.
struct Line {
    waiting: Vec<tokio::task::JoinHandle<()>>,
    turns: mpsc::UnboundedReceiver<(usize, u64)>,
}

impl Line {
    async fn of(sessions: &[Session], name: &str, length: usize) -> Self {
        let (say, turns) = mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for n in 0..length {
            let turn = waiter(&mutex(&sessions[n % sessions.len()], name)).await;
            let say = say.clone();
            waiting.push(tokio::spawn(async move {
                let guard: LockGuard = turn.await.unwrap();
                say.send((n, guard.token().get())).unwrap();
                guard.release().await.unwrap();
            }));
        }
        Self { waiting, turns }
    }

    /// Everybody's number and token in the order of their turns.
    async fn turns(mut self, length: usize) -> Vec<(usize, u64)> {
        let mut seen = Vec::new();
        for _ in 0..length {
            let turn = timeout(Duration::from_secs(20), self.turns.recv()).await;
            let turn = turn.unwrap_or_else(|_| panic!("the line stands still after {seen:?}"));
            seen.push(turn.unwrap());
        }
        seen
    }
}

async fn sessions(etcd: &Etcd, count: usize) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(session(etcd.client().await, 2).await);
    }
    sessions
}

#[tokio::test]
async fn a_long_line_keeps_its_order_and_its_tokens_grow() {
    let etcd = Etcd::start().await;
    let sessions = sessions(&etcd, 3).await;
    let door = mutex(&sessions[0], "a");
    let holder = door.lock().await.unwrap();
    let line = Line::of(&sessions, "a", 30).await;
    let shown: Vec<_> = door.queue().await.unwrap().into_iter().skip(1).collect();
    assert!(shown[0].token > holder.token());
    holder.release().await.unwrap();
    let turns = line.turns(30).await;
    let (order, tokens): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
    assert_eq!(order, (0..30).collect::<Vec<_>>());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let shown: Vec<_> = shown.iter().map(|waiter| waiter.token.get()).collect();
    assert_eq!(tokens, shown, "the queue promised other tokens");
}

#[tokio::test]
async fn those_who_leave_do_not_disturb_the_order() {
    let etcd = Etcd::start().await;
    let sessions = sessions(&etcd, 3).await;
    let door = mutex(&sessions[0], "a");
    let holder = door.lock().await.unwrap();
    let line = Line::of(&sessions, "a", 30).await;
    // The next one, one whom others watch from afar, neighbours, the last.
    let leave = [0, 7, 8, 9, 15, 16, 23, 29];
    for n in leave {
        line.waiting[n].abort();
    }
    soon("they have left", async || {
        let left = door.queue().await.unwrap().len();
        ensure(left == 31 - leave.len(), left)
    })
    .await;
    holder.release().await.unwrap();
    let turns = line.turns(30 - leave.len()).await;
    let order: Vec<_> = turns.into_iter().map(|(n, _)| n).collect();
    let wanted: Vec<_> = (0..30).filter(|n| !leave.contains(n)).collect();
    assert_eq!(order, wanted);
}

#[tokio::test]
async fn the_queue_shows_the_holder_and_the_waiters_in_order() {
    let etcd = Etcd::start().await;
    let labelled = async |label: &str| {
        let builder = Session::builder(etcd.client().await).label(label);
        builder.open().await.unwrap()
    };
    let (anna, bert) = (labelled("anna").await, labelled("bert").await);
    let silent = session(etcd.client().await, 2).await;
    let doors = [&anna, &bert, &silent, &anna].map(|session| mutex(session, "a"));
    assert_eq!(doors[0].queue().await.unwrap(), []);
    let holder = doors[0].lock().await.unwrap();
    let mut waiting = Vec::new();
    for door in &doors[1..] {
        waiting.push(waiter(door).await);
    }
    let line = doors[1].queue().await.unwrap();
    let column = |f: fn(&etcd_lock::Waiter) -> String| line.iter().map(f).collect::<Vec<_>>();
    assert_eq!(column(|w| w.position.to_string()), ["0", "1", "2", "3"]);
    let own = format!("pid {}", std::process::id());
    let labels = column(|w| w.label.clone());
    assert_eq!(
        [&labels[0], &labels[1], &labels[3]],
        ["anna", "bert", "anna"]
    );
    assert!(labels[2].ends_with(&own), "{}", labels[2]);
    let leases: Vec<_> = line.iter().map(|waiter| waiter.lease).collect();
    let wanted = [&anna, &bert, &silent, &anna].map(Session::lease_id);
    assert_eq!(leases, wanted);
    assert_eq!(
        (line[0].key.as_str(), line[0].token),
        (holder.key(), holder.token())
    );
    holder.release().await.unwrap();
    let next = waiting.remove(0).await.unwrap();
    assert_eq!(
        (line[1].key.as_str(), line[1].token),
        (next.key(), next.token())
    );
    let line = doors[1].queue().await.unwrap();
    assert_eq!((line.len(), line[0].position), (3, 0));
    assert_eq!(line[0].key, next.key());
}

#[tokio::test]
async fn a_busy_try_tells_who_holds() {
    let etcd = Etcd::start().await;
    let holder = Session::builder(etcd.client().await).label("billing on host-7");
    let holder = holder.open().await.unwrap();
    let door = mutex(&holder, "a");
    let guard = door.lock().await.unwrap();
    let _waiting = waiter(&door).await;
    let busy = mutex(&session(etcd.client().await, 2).await, "a")
        .try_lock()
        .await
        .unwrap();
    let busy = busy.unwrap_err();
    let told = busy.holder();
    assert_eq!(
        (told.position, told.label.as_str(), told.key.as_str()),
        (0, "billing on host-7", guard.key())
    );
    assert_eq!((told.token, told.lease), (guard.token(), holder.lease_id()));
    let text = busy.to_string();
    assert_eq!(text, format!("held by billing on host-7 ({})", guard.key()));
}

#[tokio::test]
async fn a_token_is_the_create_revision_of_the_key() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(etcd.client().await, 2).await;
    let door = mutex(&session, "a");
    for _ in 0..3 {
        // Other writes move the revision on, and later writes to the key do not move the token.
        client.kv_client().put("other", "", None).await.unwrap();
        let guard = door.lock().await.unwrap();
        client.kv_client().put("other", "", None).await.unwrap();
        let stored = client.kv_client().get(guard.key(), None).await.unwrap();
        let created = stored.kvs()[0].create_revision();
        assert_eq!(guard.token().get(), created.cast_unsigned());
        assert_eq!(guard.token().to_string(), created.to_string());
        let _waiting = waiter(&door).await;
        assert_eq!(door.queue().await.unwrap()[0].token, guard.token());
        let busy = door.try_lock().await.unwrap().unwrap_err();
        assert_eq!(busy.holder().token, guard.token());
    }
}

/// What one release costs etcd, with so many waiters in sessions of their own: events sent and transactions made.
async fn cost_of_a_release(etcd: &Etcd, name: &str, length: u32) -> (f64, f64) {
    // A long TTL, so that the slow look and the renewals do not count.
    let mut doors = Vec::new();
    for _ in 0..=length {
        let session = session(etcd.client().await, 600).await;
        doors.push(mutex(&session, name));
    }
    let holder = doors[0].lock().await.unwrap();
    let mut waiting = Vec::new();
    for door in &doors[1..] {
        waiting.push(waiter(door).await);
    }
    let watchers = async || etcd.metric("etcd_debugging_mvcc_watcher_total").await;
    assert!(
        settled(&watchers).await >= f64::from(length),
        "who waits watches"
    );
    let count = async || {
        let events = etcd.metric("etcd_debugging_mvcc_events_total").await;
        (events, etcd.calls("Txn").await)
    };
    let before = settled(&count).await;
    holder.release().await.unwrap();
    let next = waiting.remove(0).await.unwrap();
    let after = settled(&count).await;
    drop((next, waiting));
    (after.0 - before.0, after.1 - before.1)
}

/// Waits until two looks, some time apart, see the same.
async fn settled<T: PartialEq + Copy + std::fmt::Debug>(look: &impl AsyncFn() -> T) -> T {
    soon("it comes to rest", async || {
        let one = look().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let other = look().await;
        ensure(one == other, format!("{one:?}, then {other:?}")).map(|()| other)
    })
    .await
}

#[tokio::test]
async fn a_release_wakes_a_bounded_number_however_long_the_line() {
    let etcd = Etcd::start().await;
    for length in [20, 80] {
        let name = format!("line-{length}");
        let (events, transactions) = cost_of_a_release(&etcd, &name, length).await;
        // The four who are near, the one who comes near, and maybe the hold that is just ending.
        assert!((1.0..=6.0).contains(&events), "{length}: {events} events");
        // The release, and the looks of the one who comes near.
        assert!(
            (1.0..=5.0).contains(&transactions),
            "{length}: {transactions} transactions"
        );
    }
}

#[tokio::test]
async fn sessions_that_come_back_again_and_again_do_not_all_follow_the_line() {
    const SESSIONS: usize = 48;
    const TURNS: usize = 5;
    let etcd = Etcd::start().await;
    let first = mutex(&session(etcd.client().await, 600).await, "a");
    let holder = first.lock().await.unwrap();
    let mut all = JoinSet::new();
    for _ in 0..SESSIONS {
        let door = mutex(&session(etcd.client().await, 600).await, "a");
        all.spawn(async move {
            for _ in 0..TURNS {
                door.lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    soon("everybody stands in the line", async || {
        let line = first.queue().await.unwrap().len();
        ensure(line == SESSIONS + 1, line)
    })
    .await;
    let events = async || etcd.metric("etcd_debugging_mvcc_events_total").await;
    let before = settled(&events).await;
    holder.release().await.unwrap();
    all.join_all().await;
    let turns = f64::from(u32::try_from(SESSIONS * TURNS).unwrap());
    let each = (settled(&events).await - before) / turns;
    // Four are near, and told of each join and each release; in the end there are few, and all follow. All of them
    // would be told 96 times.
    assert!((1.0..=48.0).contains(&each), "{each} events for each turn");
}

#[tokio::test]
async fn a_release_wakes_a_bounded_number_of_waiters_of_one_session() {
    const LENGTH: usize = 100;
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 600).await;
    let door = mutex(&session, "a");
    let holder = door.lock().await.unwrap();
    let wakes = Arc::new(AtomicUsize::new(0));
    let mut waiting = Vec::new();
    for _ in 0..LENGTH {
        waiting.push(tokio::spawn(counted(door.clone(), wakes.clone())));
    }
    soon("everybody stands in the line", async || {
        let line = door.queue().await.unwrap().len();
        ensure(line == LENGTH + 1, line)
    })
    .await;
    let look = async || wakes.load(SeqCst);
    let before = settled(&look).await;
    holder.release().await.unwrap();
    soon("somebody has got in", async || {
        ensure(
            waiting.iter().any(tokio::task::JoinHandle::is_finished),
            "nobody",
        )
    })
    .await;
    let woken = settled(&look).await - before;
    // The near window, and the one whose far key went: it looks, and opens a watch of the line.
    assert!(
        (1..=30).contains(&woken),
        "{woken} wake-ups of {LENGTH} waiters"
    );
}

/// A wait that counts how often it is woken.
async fn counted(door: Mutex, wakes: Arc<AtomicUsize>) -> etcd_lock::Result<LockGuard> {
    let mut waiting = pin!(door.lock());
    std::future::poll_fn(|cx| {
        wakes.fetch_add(1, SeqCst);
        waiting.as_mut().poll(cx)
    })
    .await
}
