//! One run per tick on a sound etcd:
//! - of ten instances that ask at once one runs, the others learn where; later all learn that it is done, and by whom;
//! - what becomes of a tick whose run failed, panicked or was dropped, until done or never again;
//! - who stands by returns when it is done elsewhere;
//! - one record and its lease are all that is left, and go when the retention is over;
//! - what cannot work is said before the work begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use etcd_lock::scheduler::{Record, Repeat, State, Tick, TickOutcome};
use etcd_lock::{Error, Hold, Session};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{Etcd, ensure, keys, leases, soon, unique};

/// Longer than any test: nothing here ends by expiry.
const TTL: Duration = Duration::from_secs(60);
const LABEL: &str = "2026-11-29T02:00Z";

async fn session(etcd: &Etcd, label: &str) -> Session {
    let builder = Session::builder(etcd.client().await).ttl(TTL).label(label);
    builder.open().await.unwrap()
}

async fn tick(etcd: &Etcd, job: &str, who: &str) -> Tick {
    Tick::new(&session(etcd, who).await, job, LABEL).unwrap()
}

async fn succeed(_hold: &Hold) -> Result<String, String> {
    Ok("42 rows".to_owned())
}

async fn fail(_hold: &Hold) -> Result<String, String> {
    Err("no rows".to_owned())
}

async fn must_not_run(_hold: &Hold) -> Result<String, String> {
    panic!("it must not run")
}

fn ran(outcome: TickOutcome<String>) -> Record {
    match outcome {
        TickOutcome::Ran(record) => record,
        other => panic!("{other:?}"),
    }
}

fn over(outcome: TickOutcome<String>) -> Record {
    match outcome {
        TickOutcome::Over(record) => record,
        other => panic!("{other:?}"),
    }
}

fn failed(outcome: TickOutcome<String>) -> String {
    match outcome {
        TickOutcome::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_instances_at_once_one_runs_and_the_others_learn_of_it() {
    let (etcd, job) = (Etcd::start().await, unique("ten"));
    let (begin, learned) = (Arc::new(Barrier::new(10)), Arc::new(AtomicUsize::new(0)));
    let mut instances = JoinSet::new();
    for i in 0..10 {
        let who = format!("instance {i}");
        let tick = tick(&etcd, &job, &who).await;
        let (begin, learned) = (begin.clone(), learned.clone());
        instances.spawn(async move {
            begin.wait().await;
            let work = async |_hold: &Hold| {
                // All others are told while it runs.
                while learned.load(SeqCst) < 9 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok::<_, String>(format!("by {i}"))
            };
            let outcome = tick.run(work).await.unwrap();
            learned.fetch_add(1, SeqCst);
            (who, tick, outcome)
        });
    }
    let (mut runner, mut elsewhere, mut ticks) = (None, Vec::new(), Vec::new());
    while let Some(instance) = instances.join_next().await {
        let (who, tick, outcome) = instance.unwrap();
        ticks.push(tick);
        match outcome {
            TickOutcome::Ran(record) => {
                assert!(runner.replace((who, record)).is_none(), "two ran");
            }
            TickOutcome::Elsewhere(holder) => elsewhere.push(holder),
            other => panic!("{other:?}"),
        }
    }
    let (who, record) = runner.expect("one ran");
    assert_eq!((record.state, &*record.by), (State::Done, &*who));
    assert_eq!(elsewhere.len(), 9);
    for holder in elsewhere {
        assert_eq!((&*holder.label, holder.token), (&*who, record.token));
    }
    for tick in ticks {
        assert_eq!(over(tick.run(must_not_run).await.unwrap()), record);
    }
}

#[tokio::test]
async fn a_failed_run_leaves_the_tick_to_be_run_again() {
    let (etcd, job) = (Etcd::start().await, unique("again"));
    let (a, b) = (tick(&etcd, &job, "a").await, tick(&etcd, &job, "b").await);
    assert_eq!(failed(a.run(fail).await.unwrap()), "no rows");
    assert_eq!(a.recorded().await.unwrap(), None);
    assert_eq!(keys(&etcd.client().await, &job).await, [""; 0]);
    let record = ran(b.run(succeed).await.unwrap());
    assert_eq!((&*record.by, &*record.result), ("b", "42 rows"));
    assert_eq!(over(a.run(must_not_run).await.unwrap()), record);
    assert_eq!(a.recorded().await.unwrap(), Some(record));
}

#[tokio::test]
async fn a_failed_run_that_is_not_to_be_repeated_is_recorded() {
    let (etcd, job) = (Etcd::start().await, unique("once"));
    let a = tick(&etcd, &job, "a").await.repeat(Repeat::Never);
    let b = tick(&etcd, &job, "b").await.repeat(Repeat::Never);
    let seen = async |_hold: &Hold| {
        let record = b.recorded().await.unwrap().unwrap();
        assert_eq!((record.state, &*record.by), (State::Started, "a"));
        let elsewhere = b.run(must_not_run).await.unwrap();
        assert!(
            matches!(elsewhere, TickOutcome::Elsewhere(_)),
            "{elsewhere:?}"
        );
        Err("no rows".to_owned())
    };
    assert_eq!(failed(a.run(seen).await.unwrap()), "no rows");
    let record = over(b.run(must_not_run).await.unwrap());
    assert_eq!(record.state, State::Failed);
    assert_eq!((&*record.by, &*record.result), ("a", "no rows"));
}

#[tokio::test]
async fn a_dropped_run_gives_the_turn_up() {
    let (etcd, job) = (Etcd::start().await, unique("dropped"));
    let client = etcd.client().await;
    for repeat in [Repeat::UntilDone, Repeat::Never] {
        let label = format!("{repeat:?}");
        let a = Tick::new(&session(&etcd, "a").await, &job, &label).unwrap();
        let b = Tick::new(&session(&etcd, "b").await, &job, &label).unwrap();
        let (a, b) = (a.repeat(repeat), b.repeat(repeat));
        let hang = async |_hold: &Hold| std::future::pending::<Result<String, String>>().await;
        let limit = Duration::from_millis(500);
        assert!(timeout(limit, a.run(hang)).await.is_err(), "it hangs");
        soon("the turn is given up", async || {
            let line = keys(&client, &format!("{job}/run/{label}/")).await;
            ensure(line.is_empty(), format!("{line:?}"))
        })
        .await;
        let outcome = b.run(succeed).await.unwrap();
        match repeat {
            Repeat::Never => assert_eq!(over(outcome).state, State::Started),
            _ => assert_eq!(ran(outcome).by, "b"),
        }
    }
}

#[tokio::test]
async fn a_run_that_panics_gives_the_turn_up_before_it_panics_on() {
    let (etcd, job) = (Etcd::start().await, unique("panic"));
    let (a, b) = (tick(&etcd, &job, "a").await, tick(&etcd, &job, "b").await);
    let panicking = tokio::spawn(async move { a.run(must_not_run).await.map(drop) });
    let panic = panicking.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"it must not run"));
    assert_eq!(ran(b.run(succeed).await.unwrap()).by, "b");
}

#[tokio::test]
async fn who_stands_by_returns_when_it_is_done_elsewhere() {
    let (etcd, job) = (Etcd::start().await, unique("stand-by"));
    let (a, b) = (tick(&etcd, &job, "a").await, tick(&etcd, &job, "b").await);
    let line = format!("{job}/run/{LABEL}/");
    let client = etcd.client().await;
    let stand = async |wanted: usize| {
        soon("so many are in line", async || {
            let line = keys(&client, &line).await;
            ensure(line.len() == wanted, format!("{line:?}"))
        })
        .await;
    };
    let work = async |_hold: &Hold| {
        stand(2).await;
        Ok::<_, String>("done".to_owned())
    };
    let stands_by = async {
        stand(1).await;
        b.run_or_stand_by(must_not_run).await
    };
    let (a, b) = tokio::join!(a.run(work), stands_by);
    assert_eq!(ran(a.unwrap()), over(b.unwrap()));
    assert_eq!(keys(&client, &line).await, [""; 0]);
}

#[tokio::test]
async fn ticks_and_jobs_do_not_touch_each_other() {
    let etcd = Etcd::start().await;
    let session = session(&etcd, "a").await;
    let others = [("x", "2"), ("x", "1/2"), ("x/y", "1"), ("y", "1")];
    let work = async |_hold: &Hold| {
        for (job, label) in others {
            let other = Tick::new(&session, job, label).unwrap();
            ran(other.run(succeed).await.unwrap());
        }
        Ok::<_, String>(String::new())
    };
    let tick = Tick::new(&session, "x", "1").unwrap();
    ran(tick.run(work).await.unwrap());
}

#[tokio::test]
async fn a_record_and_its_lease_are_all_that_is_left() {
    let (etcd, job) = (Etcd::start().await, unique("left"));
    let client = etcd.client().await;
    for (repeat, work) in [
        (Repeat::UntilDone, "done"),
        (Repeat::Never, "done"),
        (Repeat::Never, "failed"),
    ] {
        let session = session(&etcd, "a").await;
        let job = format!("{job} {repeat:?} {work}");
        let tick = Tick::new(&session, &job, LABEL).unwrap();
        let tick = tick.repeat(repeat).keep_for(Duration::from_secs(1000));
        match work {
            "done" => drop(ran(tick.run(succeed).await.unwrap())),
            _ => drop(failed(tick.run(fail).await.unwrap())),
        }
        // Whoever finds the record leaves nothing either.
        over(tick.run_or_stand_by(must_not_run).await.unwrap());
        session.close().await.unwrap();
        let mark = format!("{job}/tick/{LABEL}");
        assert_eq!(keys(&client, &job).await, [&*mark]);
        let all = leases(&client).await;
        let answer = client.kv_client().get(mark, None).await.unwrap();
        let lease = answer.kvs()[0].lease();
        assert_eq!(all, [lease], "{repeat:?} {work}");
        let granted = client
            .lease_client()
            .time_to_live(lease, None)
            .await
            .unwrap();
        assert_eq!(granted.granted_ttl(), 1000);
        client.lease_client().revoke(lease).await.unwrap();
    }
}

#[tokio::test]
async fn a_record_goes_when_its_retention_is_over() {
    let (etcd, job) = (Etcd::start().await, unique("retention"));
    let tick = tick(&etcd, &job, "a").await;
    let tick = tick.keep_for(Duration::from_secs(2));
    let record = ran(tick.run(succeed).await.unwrap());
    assert_eq!(tick.recorded().await.unwrap(), Some(record));
    soon("the record is gone", async || {
        let left = tick.recorded().await.unwrap();
        ensure(left.is_none(), format!("{left:?}"))
    })
    .await;
    ran(tick.run(succeed).await.unwrap());
}

#[tokio::test]
async fn a_record_by_another_hand_counts_as_done() {
    let (etcd, job) = (Etcd::start().await, unique("by hand"));
    let mut client = etcd.client().await;
    let mark = format!("{job}/tick/{LABEL}");
    client.put(mark, "skip it, says ops", None).await.unwrap();
    let tick = tick(&etcd, &job, "a").await;
    let record = over(tick.run(must_not_run).await.unwrap());
    assert_eq!(
        (record.state, &*record.result),
        (State::Done, "skip it, says ops")
    );
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_the_work_begins() {
    let etcd = Etcd::start().await;
    let session = session(&etcd, "a").await;
    for (job, tick) in [("", "t"), ("j/", "t"), ("j", ""), ("j", "t/")] {
        let error = Tick::new(&session, job, tick).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    for retention in [Duration::from_secs(9_000_000_001), Duration::MAX] {
        let tick = Tick::new(&session, "j", "t").unwrap().keep_for(retention);
        for error in [
            tick.run(must_not_run).await.unwrap_err(),
            tick.run_or_stand_by(must_not_run).await.unwrap_err(),
        ] {
            assert!(error.to_string().starts_with("retention"), "{error}");
        }
    }
}
