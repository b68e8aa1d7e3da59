//! - A request whose answer is lost is not carried out twice, and reported as unknown, carried out or not.
//! - What is unknown and settled is not carried out later, when a slow line gets to it.
//! - What was given up is not carried out after the next transaction of the hold.
//! - Over a line that shakes, every transaction is carried out once or never, as reported.

use std::pin::pin;
use std::time::Duration;

use etcd_lock::LockGuard;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{committed, is_settled, put, times};
use crate::support::{Etcd, Proxy, connect, ensure, mutex, scattering, session, soon};

#[tokio::test]
async fn a_transaction_whose_answer_is_lost_is_carried_out_once_and_unknown() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session(connect(&[proxy.endpoint()]).await, 60).await;
    let guard = mutex(&ours, "a").lock().await.unwrap();
    proxy.drop_answers();
    let commit = put(&guard, "x").commit();
    let heal = async {
        soon("it is carried out", async || {
            let times = times(&client, "x").await;
            ensure(times == 1, times)
        })
        .await;
        proxy.heal();
    };
    let (outcome, ()) = tokio::join!(commit, heal);
    is_settled(&outcome);
    let text = outcome.unwrap_err().to_string();
    assert!(
        text.ends_with("read what it was to write before repeating it"),
        "{text}"
    );
    assert_eq!(guard.get("x").await.unwrap().as_deref(), Some(&b"1"[..]));
    committed(put(&guard, "y").commit().await.unwrap());
    assert_eq!(
        (times(&client, "x").await, times(&client, "y").await),
        (1, 1)
    );
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_transaction_that_never_arrived_is_unknown_and_never_carried_out() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session(connect(&[proxy.endpoint()]).await, 60).await;
    let guard = mutex(&ours, "a").lock().await.unwrap();
    proxy.hold();
    let mut commit = pin!(put(&guard, "x").commit());
    // Long enough to be sent, and late.
    assert!(
        timeout(Duration::from_millis(400), &mut commit)
            .await
            .is_err()
    );
    proxy.reset_all();
    proxy.heal();
    is_settled(&commit.await);
    assert_eq!(guard.get("x").await.unwrap(), None);
    committed(put(&guard, "y").commit().await.unwrap());
    assert_eq!(
        (times(&client, "x").await, times(&client, "y").await),
        (0, 1)
    );
    assert!(guard.is_held());
}

/// A server behind two lines, and a hold of a client that uses both.
struct TwoLines {
    etcd: Etcd,
    fast: Proxy,
    slow: Proxy,
    guard: LockGuard,
}

impl TwoLines {
    async fn start() -> Self {
        let etcd = Etcd::start().await;
        let (fast, slow) = (
            Proxy::to(&etcd.endpoint()).await,
            Proxy::to(&etcd.endpoint()).await,
        );
        let both = scattering(&[fast.endpoint(), slow.endpoint()]).await;
        let guard = mutex(&session(both, 60).await, "a").lock().await.unwrap();
        // Both lines are in use before one of them stands still.
        soon("both are connected", async || {
            guard.put("warm", "").await.unwrap();
            ensure(fast.open() > 0 && slow.open() > 0, "one is not")
        })
        .await;
        Self {
            etcd,
            fast,
            slow,
            guard,
        }
    }

    /// Waits until what the slow line kept has come to the server, and gives how much of it was judged: what was given
    /// up is taken back by the same line, and a busy server may see that first.
    async fn deliver(&self) -> f64 {
        let (calls, bytes) = (self.etcd.calls("Txn").await, self.slow.bytes_down());
        self.slow.heal();
        let mut puts = 0_u32;
        // Behind it, through both lines.
        while puts < 10 || self.slow.bytes_down() == bytes {
            self.guard.put("warm", "").await.unwrap();
            puts += 1;
        }
        self.etcd.calls("Txn").await - calls - f64::from(puts)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unknown_is_not_carried_out_when_a_slow_line_delivers_it() {
    let lines = TwoLines::start().await;
    let client = lines.etcd.client().await;
    let (mut late, mut judged) = (0, 0.0);
    for round in 0..5 {
        lines.slow.hold();
        let commits = (0..20).map(|n| {
            let guard = &lines.guard;
            async move {
                let key = format!("x/{round}/{n}");
                let outcome = put(guard, &key).commit().await;
                (key, outcome)
            }
        });
        let mut unknown = Vec::new();
        for (key, outcome) in join_all(commits).await {
            if let Ok(outcome) = outcome {
                committed(outcome);
                assert_eq!(times(&client, &key).await, 1, "{key}");
            } else {
                is_settled(&outcome);
                assert_eq!(times(&client, &key).await, 0, "{key}: the line stood still");
                unknown.push(key);
            }
        }
        judged += lines.deliver().await;
        for key in &unknown {
            assert_eq!(times(&client, key).await, 0, "{key} came late");
        }
        late += unknown.len();
    }
    assert!(
        late > 0 && judged > 0.0,
        "nothing came late: {late}, {judged}"
    );
    assert!(lines.fast.open() > 0 && lines.guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_is_not_carried_out_after_the_next_transaction() {
    let lines = TwoLines::start().await;
    let client = lines.etcd.client().await;
    let (mut late, mut judged) = (0, 0.0);
    for round in 0..5 {
        lines.slow.hold();
        // Given up before it counts as late, so that nothing but the next one can settle it.
        let commits = (0..20).map(|n| {
            let guard = &lines.guard;
            async move {
                let key = format!("x/{round}/{n}");
                let ended = timeout(Duration::from_millis(100), put(guard, &key).commit()).await;
                ended.is_err().then_some(key)
            }
        });
        let given_up: Vec<_> = join_all(commits).await.into_iter().flatten().collect();
        // It goes by the slow line itself, perhaps, and is settled through the fast one.
        while put(&lines.guard, "next").commit().await.is_err() {}
        let mut kept = Vec::new();
        for key in given_up {
            if times(&client, &key).await == 0 {
                kept.push(key);
            }
        }
        judged += lines.deliver().await;
        for key in &kept {
            assert_eq!(times(&client, key).await, 0, "{key} came late");
        }
        late += kept.len();
    }
    assert!(
        late > 0 && judged > 0.0,
        "nothing came late: {late}, {judged}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_shaky_line_every_transaction_is_carried_out_once_or_never_as_reported() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session(connect(&[proxy.endpoint()]).await, 60).await;
    let guard = mutex(&ours, "a").lock().await.unwrap();
    let guard = &guard;
    let write = async |writer: usize| {
        let (mut done, mut unknown) = (Vec::new(), Vec::new());
        for n in 0..60 {
            let key = format!("x/{writer}/{n}");
            let outcome = put(guard, &key).commit().await;
            if let Ok(outcome) = outcome {
                committed(outcome);
                done.push(key);
            } else {
                is_settled(&outcome);
                // Read at once: it is the last word.
                let seen = guard.get(&*key).await.unwrap().is_some();
                unknown.push((key, i64::from(seen)));
            }
        }
        (done, unknown)
    };
    let written = tokio::select! {
        () = proxy.shake(Duration::from_millis(30)) => unreachable!("it shakes for ever"),
        written = join_all((0..4).map(write)) => written,
    };
    proxy.heal();
    let (mut committed, mut unknown) = (0, 0);
    for (done, in_doubt) in written {
        for key in &done {
            assert_eq!(times(&client, key).await, 1, "{key}: committed");
        }
        for (key, seen) in &in_doubt {
            assert_eq!(times(&client, key).await, *seen, "{key}: unknown");
        }
        (committed, unknown) = (committed + done.len(), unknown + in_doubt.len());
    }
    assert!(committed > 0 && unknown > 0, "{committed}, {unknown}");
    assert!(guard.is_held());
}
