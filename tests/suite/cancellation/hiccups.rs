//! - A cancelled wait whose clean-up meets a broken line is cleaned up all the same, while the session lives (scenario
//!   16); so is one whose join is in flight on a broken line.
//! - The answer to a join is swallowed, again and again: one queue entry, and it is the guard's (scenario 17).
//! - 1,000 failed tries over a line with hiccups: only the holder's key remains (scenario 18).
//! - What a frozen member puts long after the join was given up is swept, and nothing else is.

use std::time::Duration;

use etcd_lock::Session;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::{
    Cluster, Etcd, Proxy, connect, ensure, keys, mutex, scattering, session, soon, soon_keys,
    waiter, within,
};

type Fault = fn(&Proxy);

async fn session_through(proxy: &Proxy, ttl: u64) -> Session {
    session(connect(&[proxy.endpoint()]).await, ttl).await
}

#[tokio::test]
async fn a_cancelled_wait_is_cleaned_up_over_a_broken_line() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    // Long, so that the session outlives the cut and nothing goes by expiry.
    let ours = session_through(&proxy, 60).await;
    let holder = mutex(&session(etcd.client().await, 2).await, "a")
        .lock()
        .await
        .unwrap();
    let faults: [Fault; 4] = [
        Proxy::cut,
        Proxy::hold,
        Proxy::drop_answers,
        Proxy::hold_answers,
    ];
    for fault in faults {
        let waiting = waiter(&mutex(&ours, "a")).await;
        fault(&proxy);
        drop(waiting);
        // Long enough for the first attempts to fail.
        tokio::time::sleep(Duration::from_millis(400)).await;
        proxy.heal();
        soon_keys(&client, "a/", &[holder.key()]).await;
        assert!(ours.is_certain());
    }
}

#[tokio::test]
async fn a_join_cancelled_on_a_broken_line_is_cleaned_up() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session_through(&proxy, 60).await;
    let door = mutex(&ours, "a");
    // The put is carried out, and nobody but etcd knows.
    proxy.drop_answers();
    let joining = tokio::spawn(door.lock());
    soon("the put is carried out", async || {
        let found = keys(&client, "a/").await;
        ensure(found.len() == 1, format!("{found:?}"))
    })
    .await;
    joining.abort();
    proxy.heal();
    soon_keys(&client, "a/", &[]).await;
    // The put may be under way when the line breaks, or may not.
    for n in 0..100 {
        let joining = tokio::spawn(door.lock());
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..1_500))).await;
        if n % 2 == 0 {
            proxy.reset_all();
        }
        joining.abort();
    }
    soon_keys(&client, "a/", &[]).await;
    assert!(ours.is_certain());
}

#[tokio::test]
async fn a_join_whose_answers_are_swallowed_stands_in_the_line_once() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session_through(&proxy, 60).await;
    for held in [false, true] {
        let holder = mutex(&session(etcd.client().await, 2).await, "a");
        let holder = if held {
            Some(holder.lock().await.unwrap())
        } else {
            None
        };
        let before = etcd.calls("Txn").await;
        proxy.drop_answers();
        let joining = tokio::spawn(mutex(&ours, "a").lock());
        soon("several attempts have come", async || {
            let calls = etcd.calls("Txn").await - before;
            ensure(calls > 2.5, calls)
        })
        .await;
        let line = keys(&client, "a/").await;
        assert_eq!(line.len(), 1 + usize::from(held), "{line:?}");
        proxy.heal();
        if let Some(holder) = holder {
            holder.release().await.unwrap();
        }
        let guard = joining.await.unwrap().unwrap();
        assert_eq!([guard.key()], line[usize::from(held)..]);
        assert_eq!(keys(&client, "a/").await, [guard.key()]);
        guard.release().await.unwrap();
        assert_eq!(keys(&client, "a/").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_try_whose_answer_is_swallowed_takes_the_lock_it_has_won() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let ours = session_through(&proxy, 60).await;
    proxy.drop_answers();
    let trying = tokio::spawn(mutex(&ours, "a").try_lock());
    soon("the put is carried out", async || {
        let found = keys(&client, "a/").await;
        ensure(found.len() == 1, format!("{found:?}"))
    })
    .await;
    proxy.heal();
    let guard = trying.await.unwrap().unwrap().unwrap();
    assert_eq!(keys(&client, "a/").await, [guard.key()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_failed_tries_over_a_shaky_line_leave_no_key() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let holder = mutex(&session(etcd.client().await, 2).await, "a")
        .lock()
        .await
        .unwrap();
    let ours = session_through(&proxy, 60).await;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let door = mutex(&ours, "a");
        tasks.spawn(async move {
            let mut holders = Vec::new();
            for _ in 0..100 {
                let tried = door.try_lock().await.expect("a hiccup is no error");
                holders.push(tried.expect_err("it is held").holder().key.clone());
            }
            holders
        });
    }
    let tries = async {
        while let Some(told) = tasks.join_next().await {
            let told = told.unwrap();
            assert!(told.iter().all(|key| key == holder.key()), "{told:?}");
        }
    };
    tokio::select! {
        () = proxy.shake(Duration::from_millis(10)) => {}
        () = tries => {}
    }
    proxy.heal();
    assert_eq!(keys(&client, "a/").await, [holder.key()]);
    assert!(proxy.opened() > 5, "the line was never shaken");
}

/// Locks and gives up many names through all members while one of them is frozen, and lets it go on: then it carries
/// out what it was asked meanwhile. Waits until only `kept` has stood for a TTL; tells how many keys came late.
async fn late_puts(cluster: &Cluster, sessions: &[Session], kept: &str) -> usize {
    let frozen = cluster.followers().await[0];
    let healthy = connect(&[cluster.leader().await.endpoint()]).await;
    cluster.members[frozen].stop();
    let mut tasks = JoinSet::new();
    for n in 0..200 {
        // Many sessions: what one asks at once is few requests.
        let door = mutex(&sessions[n % sessions.len()], &format!("a/{n}"));
        // Given up in mid-request, or won and given up.
        let limit = Duration::from_millis(if n % 2 == 0 { 20 } else { 20_000 });
        tasks.spawn(async move { drop(timeout(limit, door.lock()).await) });
    }
    tasks.join_all().await;
    soon_keys(&healthy, "a/", &[kept]).await;
    cluster.members[frozen].cont();
    let (mut most, mut clean_since) = (0, Instant::now());
    // The sweep comes once per TTL; the member may need a moment to go on.
    let ttl = sessions[0].ttl();
    let bound = 2 * ttl + Duration::from_secs(5);
    within(bound, "only the key of the hold stands", async || {
        let left = keys(&healthy, "a/").await;
        if left != [kept] {
            most = most.max(left.len() - 1);
            clean_since = Instant::now();
        }
        let clean = clean_since.elapsed() > ttl;
        ensure(clean, format!("{left:?}"))
    })
    .await;
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_frozen_member_puts_late_is_swept() {
    let cluster = Cluster::start(3).await;
    let client = scattering(&cluster.endpoints()).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(session(client.clone(), 3).await);
    }
    let kept = mutex(&sessions[0], "a/kept").lock().await.unwrap();
    let mut rounds = 0;
    // Whether a member that goes on carries out requests that were given up is up to it.
    while late_puts(&cluster, &sessions, kept.key()).await == 0 {
        rounds += 1;
        assert!(rounds < 6, "no put ever came late");
    }
    assert!(kept.is_held() && sessions.iter().all(Session::is_certain));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_never_takes_the_key_of_a_living_hold() {
    let etcd = Etcd::start().await;
    // Two ways of which one is slower: requests overtake each other.
    let (fast, slow) = (
        Proxy::to(&etcd.endpoint()).await,
        Proxy::to(&etcd.endpoint()).await,
    );
    let both = scattering(&[fast.endpoint(), slow.endpoint()]).await;
    let session = session(both, 2).await;
    // Sweeps begin with a join that is in doubt.
    fast.drop_answers();
    slow.drop_answers();
    let joining = tokio::spawn(mutex(&session, "doubt").lock());
    soon(
        "the answer is lost, and the join is sent again",
        async || {
            let calls = etcd.calls("Txn").await;
            ensure(calls > 1.5, calls)
        },
    )
    .await;
    fast.heal();
    slow.heal();
    joining.await.unwrap().unwrap().release().await.unwrap();
    slow.delay(Duration::from_millis(20));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..100 {
        let door = mutex(&session, &format!("a/{n}"));
        tasks.spawn(async move {
            // Keys are given up and used again all the time, so that a sweep meets them in every state.
            while begun.elapsed() < Duration::from_secs(5) {
                let guard = door.lock().await.unwrap();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..100))).await;
                guard.release().await.unwrap();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..30))).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let sweeps = etcd.calls("LeaseTimeToLive").await;
    assert!(sweeps > 1.5, "only {sweeps} sweeps");
}
