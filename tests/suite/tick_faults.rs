//! One run per tick, in trouble:
//! - the process that runs it is killed: another takes over within TTL + 1 s, or, once it must never start again, all
//!   learn that it was started;
//! - a run that has lost its turn records nothing;
//! - answers and leases that get lost around the record cost nothing: one record, and the run counts.

use std::time::Duration;

use etcd_lock::scheduler::{Repeat, State, Tick, TickOutcome};
use etcd_lock::{Error, Hold, Lost, Session};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Etcd, Proxy, Puppet, connect, ensure, keys, leases, role, say, soon, unique};

const TTL: Duration = Duration::from_secs(2);
const A_SECOND: Duration = Duration::from_secs(1);
const ENDPOINT: &str = "TICK_ENDPOINT";
const JOB: &str = "TICK_JOB";
const LABEL: &str = "tick 1";

async fn tick(endpoint: String, job: &str, ttl: Duration, who: &str) -> Tick {
    let builder = Session::builder(connect(&[endpoint]).await).ttl(ttl);
    let session = builder.label(who).open().await.unwrap();
    Tick::new(&session, job, LABEL).unwrap()
}

async fn must_not_run(_hold: &Hold) -> Result<String, String> {
    panic!("it must not run")
}

/// In a process of its own: runs the tick and never comes to an end.
async fn runner(repeat: Repeat) {
    let var = |name| std::env::var(name).unwrap();
    let tick = tick(var(ENDPOINT), &var(JOB), TTL, "runner").await;
    let work = async |_hold: &Hold| {
        say("runs");
        std::future::pending::<Result<String, String>>().await
    };
    let outcome = tick.repeat(repeat).run(work).await;
    panic!("{outcome:?}");
}

/// Kills the runner while `stands_by` waits in line; gives how long that took from then.
async fn take_over<T>(
    etcd: &Etcd,
    job: &str,
    mut runner: Puppet,
    stands_by: impl Future<Output = T>,
) -> T {
    assert_eq!(runner.line().await, "runs");
    let client = etcd.client().await;
    let killed = async {
        soon("another stands by", async || {
            let line = keys(&client, &format!("{job}/run/")).await;
            ensure(line.len() == 2, format!("{line:?}"))
        })
        .await;
        runner.process.kill();
        Instant::now()
    };
    let (killed, (taken, at)) = tokio::join!(killed, async { (stands_by.await, Instant::now()) });
    assert!(at - killed <= TTL + A_SECOND, "{:?}", at - killed);
    taken
}

#[tokio::test]
async fn a_killed_run_is_taken_over() {
    if role().is_some() {
        return runner(Repeat::UntilDone).await;
    }
    let (etcd, job) = (Etcd::start().await, unique("killed"));
    let env = [(ENDPOINT, &*etcd.endpoint()), (JOB, &*job)];
    let runner = Puppet::rerun(a_killed_run_is_taken_over, "runner", &env);
    let tick = tick(etcd.endpoint(), &job, TTL, "stand-by").await;
    let work = async |_hold: &Hold| Ok::<_, String>(String::new());
    let outcome = take_over(&etcd, &job, runner, Box::pin(tick.run_or_stand_by(work))).await;
    let Ok(TickOutcome::Ran(record)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(record.by, "stand-by");
}

#[tokio::test]
async fn a_killed_run_that_is_not_to_be_repeated_is_known_to_have_started() {
    if role().is_some() {
        return runner(Repeat::Never).await;
    }
    let (etcd, job) = (Etcd::start().await, unique("killed-once"));
    let env = [(ENDPOINT, &*etcd.endpoint()), (JOB, &*job)];
    let this = a_killed_run_that_is_not_to_be_repeated_is_known_to_have_started;
    let runner = Puppet::rerun(this, "runner", &env);
    let tick = tick(etcd.endpoint(), &job, TTL, "stand-by").await;
    let tick = tick.repeat(Repeat::Never);
    let outcome = take_over(
        &etcd,
        &job,
        runner,
        Box::pin(tick.run_or_stand_by(must_not_run)),
    )
    .await;
    let again = tick.run(must_not_run).await;
    for outcome in [outcome, again] {
        let Ok(TickOutcome::Over(record)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((record.state, &*record.by), (State::Started, "runner"));
    }
}

#[tokio::test]
async fn a_run_whose_turn_is_lost_is_dropped_and_records_nothing() {
    let (etcd, job) = (Etcd::start().await, unique("lost"));
    for cause in [Lost::KeyDeleted, Lost::LeaseGone] {
        let tick = tick(etcd.endpoint(), &job, TTL, "a").await;
        let mut client = etcd.client().await;
        let work = async |hold: &Hold| {
            let found = client.get(hold.key(), None).await.unwrap();
            match cause {
                Lost::KeyDeleted => client.delete(hold.key(), None).await.map(drop).unwrap(),
                _ => client
                    .lease_revoke(found.kvs()[0].lease())
                    .await
                    .map(drop)
                    .unwrap(),
            }
            sleep(20 * A_SECOND).await;
            Ok::<_, String>(String::new())
        };
        let outcome = timeout(3 * A_SECOND, tick.run(work)).await;
        let error = outcome.expect("told and dropped").unwrap_err();
        assert!(
            matches!(error, Error::Lost(lost) if lost == cause),
            "{error}"
        );
        assert_eq!(keys(&etcd.client().await, &job).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_run_whose_turn_is_lost_at_its_very_end_records_nothing() {
    let (etcd, job) = (Etcd::start().await, unique("late"));
    for repeat in [Repeat::UntilDone, Repeat::Never] {
        let job = format!("{job} {repeat:?}");
        let mut client = etcd.client().await;
        let tick = tick(etcd.endpoint(), &job, TTL, "a").await.repeat(repeat);
        let work = async |hold: &Hold| {
            client.delete(hold.key(), None).await.unwrap();
            Ok::<_, String>("too late".to_owned())
        };
        let error = tick.run(work).await.unwrap_err();
        assert!(matches!(error, Error::Lost(Lost::KeyDeleted)), "{error}");
        let record = tick.recorded().await.unwrap();
        match repeat {
            // What was recorded at the start stays.
            Repeat::Never => assert_eq!(record.unwrap().state, State::Started),
            _ => assert_eq!(record, None),
        }
    }
    let client = etcd.client().await;
    soon(
        "of all leases only that of the start's record is left",
        async || {
            let left = leases(&client).await;
            ensure(left.len() == 1, format!("{left:?}"))
        },
    )
    .await;
}

/// The lease that was granted beside these.
async fn granted(etcd: &Etcd, before: &[i64]) -> i64 {
    let client = etcd.client().await;
    soon("the record's lease is granted", async || {
        let all = leases(&client).await;
        let new = all.iter().find(|lease| !before.contains(lease));
        new.copied().ok_or(format!("{all:?}"))
    })
    .await
}

#[tokio::test]
async fn a_record_whose_answer_is_lost_is_one_record_and_the_run_counts() {
    let (etcd, job) = (Etcd::start().await, unique("swallowed"));
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let tick = tick(proxy.endpoint(), &job, 60 * A_SECOND, "a").await;
    let before = leases(&etcd.client().await).await;
    let delay = Duration::from_millis(800);
    let work = async |_hold: &Hold| {
        proxy.delay(delay);
        Ok::<_, String>("42 rows".to_owned())
    };
    let fault = async {
        let lease = granted(&etcd, &before).await;
        // The answer to the grant arrives, the record is put, its answer is lost.
        sleep(delay * 3 / 2).await;
        assert_eq!(
            keys(&etcd.client().await, &format!("{job}/tick")).await,
            [""; 0]
        );
        proxy.drop_answers();
        let client = etcd.client().await;
        soon("it is recorded, and the answer lost", async || {
            let recorded = keys(&client, &format!("{job}/tick")).await;
            ensure(recorded.len() == 1 && proxy.bytes_lost() > 0, "not yet")
        })
        .await;
        sleep(delay).await;
        proxy.heal();
        lease
    };
    let (outcome, lease) = tokio::join!(tick.run(work), fault);
    let Ok(TickOutcome::Ran(record)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(tick.recorded().await.unwrap(), Some(record));
    let mark = etcd
        .client()
        .await
        .get(format!("{job}/tick/{LABEL}"), None)
        .await;
    let mark = mark.unwrap();
    assert_eq!((mark.kvs()[0].version(), mark.kvs()[0].lease()), (1, lease));
    assert_eq!(leases(&etcd.client().await).await.len(), 2);
}

#[tokio::test]
async fn a_record_whose_lease_goes_first_gets_another() {
    let (etcd, job) = (Etcd::start().await, unique("revoked"));
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let direct = etcd.client().await;
    // The record follows the grant of its lease in a fifth of a second, so we might come too late.
    for attempt in 0.. {
        assert!(attempt < 5, "too late every time");
        let job = format!("{job}-{attempt}");
        let tick = tick(proxy.endpoint(), &job, 60 * A_SECOND, "a").await;
        let before = leases(&direct).await;
        let work = async |_hold: &Hold| {
            proxy.delay(Duration::from_millis(100));
            Ok::<_, String>("42 rows".to_owned())
        };
        let fault = async {
            let lease = granted(&etcd, &before).await;
            let in_time = keys(&direct, &format!("{job}/tick")).await.is_empty();
            direct.lease_client().revoke(lease).await.unwrap();
            proxy.heal();
            in_time
        };
        let run = timeout(20 * A_SECOND, tick.run(work));
        let (outcome, in_time) = tokio::join!(run, fault);
        let Ok(Ok(TickOutcome::Ran(record))) = outcome else {
            panic!("{outcome:?}");
        };
        if in_time {
            assert_eq!(tick.recorded().await.unwrap(), Some(record));
            assert_eq!(leases(&direct).await.len(), before.len() + 1);
            return;
        }
    }
}

#[tokio::test]
async fn a_run_outlasts_an_outage_before_its_record() {
    let (etcd, job) = (Etcd::start().await, unique("outage"));
    let tick = tick(etcd.endpoint(), &job, 60 * A_SECOND, "a").await;
    let work = async |_hold: &Hold| {
        etcd.kill();
        Ok::<_, String>("42 rows".to_owned())
    };
    let back = async {
        // Longer than opening a session would wait for an answer.
        sleep(11 * A_SECOND).await;
        etcd.restart().await;
    };
    let (outcome, ()) = tokio::join!(tick.run(work), back);
    assert!(matches!(outcome, Ok(TickOutcome::Ran(_))), "{outcome:?}");
}
