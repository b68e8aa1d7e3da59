//! Three members, of which some fail: that costs time, never an error or a lock:
//! - one dead: 1,000 cycles (52);
//! - one frozen, be it a follower or the leader with everybody in mid-request;
//! - leader after leader killed: no loss, no storm (30); the leader killed under waiters; all members restarted or upgraded in turn, under holders
//!   and waiters;
//! - no quorum for less than TTL - margin is no loss; for longer the loss is told in time, and
//!   afterwards a new session works.
//!
//! `cargo nextest run --no-capture -E 'test(/^members/)'` shows what it costs.

use std::time::Duration;

use etcd_lock::{Lost, Mutex};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    Cluster, Member, Proxy, connect, ensure, keys, mutex, session, soon, unique, wait_in_line,
};

const SECOND: Duration = Duration::from_secs(1);

/// Locks and releases, and gives how long each took.
async fn cycles(mutex: Mutex, count: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let guard = mutex.lock().await.unwrap();
        guard.release().await.unwrap();
        took.push(begun.elapsed());
    }
    took
}

#[expect(clippy::print_stdout, reason = "a figure to be read")]
fn report(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let of = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)];
    println!(
        "members: lock + release, {what}: p50 {:?}, p90 {:?}, p99 {:?}, max {:?} of {}",
        of(50),
        of(90),
        of(99),
        of(100),
        took.len()
    );
}

/// Many at once, each on a lock of its own.
async fn cycles_of_many(cluster: &Cluster, tasks: usize, count: usize) -> JoinSet<Vec<Duration>> {
    let session = session(cluster.client().await, 10).await;
    let mut all = JoinSet::new();
    for _ in 0..tasks {
        all.spawn(cycles(mutex(&session, &unique("cycle")), count));
    }
    all
}

#[tokio::test]
async fn with_one_of_three_members_dead_a_thousand_cycles_go_without_an_error() {
    let cluster = Cluster::start(3).await;
    let session = session(cluster.client().await, 10).await;
    let mutex = mutex(&session, &unique("dead"));
    report("all alive", cycles(mutex.clone(), 500).await);
    cluster.members[cluster.followers().await[0]].kill();
    report("one dead", cycles(mutex, 1000).await);
    assert!(session.is_certain());
}

#[tokio::test]
async fn with_one_of_three_members_frozen_cycles_go_on_without_an_error() {
    let cluster = Cluster::start(3).await;
    let frozen = &cluster.members[cluster.followers().await[0]];
    frozen.stop();
    let all = cycles_of_many(&cluster, 20, 20).await.join_all().await;
    report("one frozen", all.concat());
    frozen.cont();
}

#[tokio::test]
async fn a_leader_frozen_under_the_requests_of_many_costs_no_error() {
    let cluster = Cluster::start(3).await;
    let all = cycles_of_many(&cluster, 100, 8).await;
    let leader = cluster.leader_index().await;
    cluster.members[leader].stop();
    let all = all.join_all().await;
    report("leader frozen meanwhile", all.concat());
}

#[tokio::test]
async fn a_leader_killed_under_waiters_costs_no_place_in_line() {
    let cluster = Cluster::start(3).await;
    let name = unique("leader");
    let mut line = Vec::new();
    for _ in 0..6 {
        let session = session(cluster.client().await, 10).await;
        for _ in 0..2 {
            line.push(wait_in_line(&session, &name).await);
        }
    }
    let order = keys(&cluster.client().await, &name).await;
    cluster.leader().await.kill();
    for (waiter, key) in line.into_iter().zip(order) {
        let (guard, _) = timeout(20 * SECOND, waiter)
            .await
            .expect("its turn")
            .unwrap()
            .unwrap();
        assert_eq!(guard.key(), key);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn leaders_killed_in_a_row_cost_no_lock_and_lead_to_no_storm() {
    const KILLS: u64 = 4;
    let cluster = Cluster::start(3).await;
    let mut lines = Vec::new();
    for endpoint in cluster.endpoints() {
        lines.push(Proxy::to(&endpoint).await);
    }
    let endpoints: Vec<_> = lines.iter().map(Proxy::endpoint).collect();
    let (ours, theirs) = (
        session(connect(&endpoints).await, 15).await,
        session(connect(&endpoints).await, 15).await,
    );
    let guard = mutex(&ours, &unique("kills")).lock().await.unwrap();
    let waiter = wait_in_line(&theirs, guard.name()).await;
    let bytes = || lines.iter().map(Proxy::bytes_up).sum::<u64>();
    let before = bytes();
    for _ in 0..KILLS {
        let leader = cluster.leader_index().await;
        cluster.members[leader].kill();
        // Only members that run are asked.
        assert_ne!(cluster.leader_index().await, leader);
        cluster.members[leader].restart().await;
        assert!(guard.is_held() && theirs.is_certain() && !waiter.is_finished());
    }
    // Some connections, streams and requests for each kill.
    let each = (bytes() - before) / KILLS;
    assert!(each < 20_000, "{each} bytes sent for each kill");
    guard.release().await.unwrap();
    let next = timeout(20 * SECOND, waiter).await.expect("its turn");
    assert!(next.unwrap().unwrap().0.is_held());
}

/// Ends one member after the other and brings it back, under a holder and a line that moves on meanwhile.
async fn each_in_turn(cluster: &Cluster, bring_back: impl AsyncFn(&Member)) {
    let name = unique("rolling");
    let holders = session(cluster.client().await, 10).await;
    let held = mutex(&holders, &unique("held")).lock().await.unwrap();
    let mut line = Vec::new();
    for _ in 0..8 {
        let session = session(cluster.client().await, 10).await;
        line.push(wait_in_line(&session, &name).await);
    }
    let mut line = line.into_iter();
    let mut last = held.token();
    for member in &cluster.members {
        member.term().await;
        for _ in 0..2 {
            let (guard, _) = timeout(20 * SECOND, line.next().unwrap())
                .await
                .expect("its turn")
                .unwrap()
                .unwrap();
            assert!(guard.token() > last);
            last = guard.token();
            guard.release().await.unwrap();
        }
        bring_back(member).await;
        assert!(held.is_held());
    }
    for waiter in line {
        let (guard, _) = timeout(20 * SECOND, waiter)
            .await
            .expect("its turn")
            .unwrap()
            .unwrap();
        assert!(guard.token() > last);
        last = guard.token();
        guard.release().await.unwrap();
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_restart_of_each_member_in_turn_costs_no_lock_and_no_place_in_line() {
    let cluster = Cluster::start(3).await;
    each_in_turn(&cluster, Member::restart).await;
}

#[tokio::test]
#[ignore = "needs a newer etcd, named by ETCD_NEXT_BIN; ci/test gives it one"]
async fn an_upgrade_of_each_member_in_turn_costs_no_lock_and_no_place_in_line() {
    let cluster = Cluster::start(3).await;
    let versions = async || {
        let mut versions = Vec::new();
        for member in &cluster.members {
            let status = member.status().await.expect("it serves");
            versions.push(status.version().to_owned());
        }
        versions
    };
    let before = versions().await;
    each_in_turn(&cluster, Member::upgrade).await;
    let after = versions().await;
    assert!(before[0] < after[0], "{before:?} {after:?}");
    assert_eq!(after, [&*after[0]; 3]);
}

#[tokio::test]
async fn no_quorum_for_less_than_the_certain_time_is_no_loss() {
    let cluster = Cluster::start(3).await;
    let session = session(cluster.client().await, 15).await;
    let guard = mutex(&session, &unique("short")).lock().await.unwrap();
    let waiter = wait_in_line(&session, guard.name()).await;
    let (one, other) = (&cluster.members[0], &cluster.members[1]);
    one.kill();
    other.kill();
    let certain = session.certain_until().unwrap();
    sleep(3 * SECOND).await;
    one.spawn();
    other.spawn();
    soon("the lease is renewed", async || {
        let now = session.certain_until().expect("the session lives");
        ensure(
            now > certain + 4 * SECOND,
            format!("{now:?}, {certain:?} before"),
        )
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let next = timeout(5 * SECOND, waiter)
        .await
        .expect("its turn")
        .unwrap();
    assert!(next.unwrap().0.is_held());
}

#[tokio::test]
async fn no_quorum_for_longer_is_told_in_time_and_a_new_session_works_afterwards() {
    let cluster = Cluster::start(3).await;
    let ttl = 3 * SECOND;
    let old = session(cluster.client().await, 3).await;
    let guard = mutex(&old, &unique("long")).lock().await.unwrap();
    let (one, other) = (&cluster.members[0], &cluster.members[1]);
    one.kill();
    other.kill();
    // The third may answer renewals for a while yet, and they count from when they were sent.
    let last_certain = async {
        let mut last = Instant::now();
        while let Some(certain) = old.certain_until() {
            last = certain;
            sleep(SECOND / 100).await;
        }
        last
    };
    let told = async { (guard.lost().await, Instant::now()) };
    let (last_certain, (lost, told)) = tokio::join!(last_certain, told);
    assert_eq!(lost, Lost::Expired);
    let margin = ttl / 10;
    assert!(told < last_certain + margin, "{:?}", told - last_certain);
    one.spawn();
    other.spawn();
    let new = session(cluster.client().await, 3).await;
    let next = timeout(20 * SECOND, mutex(&new, guard.name()).lock()).await;
    let next = next.expect("its turn").unwrap();
    assert!(next.token() > guard.token() && !guard.is_held());
}
