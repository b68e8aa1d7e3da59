//! The safety figure: by how much the holder is told of its loss before the next one holds.
//!
//! A holder behind a line that turns silent at any phase of its renewals, the next one with a sound line. The
//! figure is the instant at which `lost` returns minus the instant at which the other's `lock` does: 50 times
//! negative, or the lock is none. `cargo nextest run --no-capture -E 'test(/^overlap/)'` shows it.

use std::time::Duration;

use etcd_lock::{LockGuard, Lost, Result};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::support::{Etcd, Proxy, Turn, connect, mutex, session, unique, wait_in_line};

const TRIALS: usize = 50;
const TTL: u64 = 3;

struct Trial {
    told: Instant,
    /// The last time that the holder asked and was told that it holds.
    last_held: Instant,
    next_holds: Instant,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_before_the_next_holds_at_whatever_phase_of_its_renewal() {
    let etcd = Etcd::start().await;
    let mut trials = JoinSet::new();
    for _ in 0..TRIALS {
        // One after the other, so that none has lost its lease before it begins.
        let stage = Stage::set(&etcd).await;
        trials.spawn(stage.trial());
    }
    let trials = trials.join_all().await;
    let mut overlaps: Vec<_> = trials
        .iter()
        .map(|trial| milliseconds_from(trial.next_holds, trial.told))
        .collect();
    overlaps.sort_unstable();
    let (best, median, worst) = (overlaps[0], overlaps[TRIALS / 2], overlaps[TRIALS - 1]);
    let positive = overlaps.iter().filter(|overlap| **overlap >= 0).count();
    report(&format!(
        "overlap: told - next holds: worst {worst} ms, median {median} ms, best {best} ms, \
         {positive} of {TRIALS} positive"
    ));
    assert_eq!(positive, 0, "{overlaps:?}");
    let stale = trials
        .iter()
        .filter(|trial| trial.last_held >= trial.next_holds);
    assert_eq!(
        stale.count(),
        0,
        "a holder said held while the next one held"
    );
}

/// A holder behind a line that can fail, and the next one.
struct Stage {
    line: Proxy,
    ttl: Duration,
    guard: LockGuard,
    next: JoinHandle<Result<Turn>>,
}

impl Stage {
    async fn set(etcd: &Etcd) -> Self {
        let name = unique("overlap");
        let line = Proxy::to(&etcd.endpoint()).await;
        let holder = session(connect(&[line.endpoint()]).await, TTL).await;
        let guard = mutex(&holder, &name).lock().await.unwrap();
        // Its own lease is not what is tried: it may be starved by fifty trials at once.
        let next = session(etcd.client().await, 20 * TTL).await;
        let next = wait_in_line(&next, &name).await;
        Self {
            line,
            ttl: holder.ttl(),
            guard,
            next,
        }
    }

    async fn trial(self) -> Trial {
        let Self {
            line,
            ttl,
            guard,
            next,
        } = self;
        // Renewals come once in a third of it.
        sleep(ttl.mul_f64(fastrand::f64())).await;
        line.hold();
        let told = async {
            assert_eq!(guard.lost().await, Lost::Expired);
            Instant::now()
        };
        let asked = async {
            let mut last_held = Instant::now();
            loop {
                let now = Instant::now();
                if !guard.is_held() {
                    return last_held;
                }
                last_held = now;
                sleep(Duration::from_millis(5)).await;
            }
        };
        let (told, last_held, next) = tokio::join!(told, asked, next);
        let (_guard, next_holds) = next.unwrap().unwrap();
        Trial {
            told,
            last_held,
            next_holds,
        }
    }
}

/// Rounded towards what is worse.
fn milliseconds_from(start: Instant, end: Instant) -> i64 {
    let whole = |duration: Duration| i64::try_from(duration.as_millis()).unwrap();
    match end.checked_duration_since(start) {
        Some(after) => whole(after) + 1,
        None => -whole(start - end),
    }
}

#[expect(clippy::print_stdout, reason = "a figure to be read")]
fn report(line: &str) {
    println!("{line}");
}
