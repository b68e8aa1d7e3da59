//! `Leading` on a sound etcd:
//! - work that finishes, fails or panics is the last, and key and lease are gone when this is told;
//! - a shutdown while waiting is no loss (scenario 48); one while leading is told to the work first, which may end
//!   within its grace, and is dropped after it, always before the leadership is given up (scenario 41);
//! - dropping it resigns; a term that is kept longer only says that it is lost; what cannot work is said at once.

use std::time::Duration;

use etcd_client::ConnectOptions;
use etcd_lock::scheduler::{Leading, Outcome, Term};
use etcd_lock::{Election, Error, Lost, Session, SessionBuilder};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::support::{Etcd, Log, connect_with, ensure, keys, leases, soon, unique};

/// Longer than any test: nothing here ends by expiry.
const TTL: Duration = Duration::from_secs(60);

async fn sessions(etcd: &Etcd) -> SessionBuilder {
    Session::builder(etcd.client().await).ttl(TTL)
}

async fn leading(etcd: &Etcd, name: &str) -> Leading {
    Leading::new(sessions(etcd).await, name).unwrap()
}

/// Neither key nor lease is left of anybody.
async fn nothing_is_left(etcd: &Etcd) {
    let client = etcd.client().await;
    assert_eq!(keys(&client, "").await, [""; 0]);
    assert_eq!(leases(&client).await, [0; 0]);
}

async fn never() {
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn work_that_finishes_resigns_and_gives_its_value() {
    let (etcd, name) = (Etcd::start().await, unique("finished"));
    let direct = etcd.client().await;
    let work = |term: Term| {
        let direct = direct.clone();
        async move {
            assert_eq!(keys(&direct, "").await, [term.key()]);
            Ok::<_, String>(term.token())
        }
    };
    let outcome = leading(&etcd, &name).await.run(never(), work).await;
    assert!(matches!(outcome, Outcome::Finished(_)), "{outcome:?}");
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn work_that_fails_resigns_and_gives_its_error() {
    let (etcd, name) = (Etcd::start().await, unique("failed"));
    let work = async |_term| Err::<(), _>("broken");
    let outcome = leading(&etcd, &name).await.run(never(), work).await;
    assert!(matches!(outcome, Outcome::Failed("broken")), "{outcome:?}");
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn work_that_panics_resigns_before_it_panics_on() {
    let (etcd, name) = (Etcd::start().await, unique("panicked"));
    let leading = leading(&etcd, &name).await;
    let running = tokio::spawn(leading.run(never(), async |term: Term| {
        assert!(!term.is_held(), "the work's own words");
        Ok::<(), String>(())
    }));
    let panic = running.await.unwrap_err().into_panic();
    nothing_is_left(&etcd).await;
    assert_eq!(panic.downcast_ref(), Some(&"the work's own words"));
}

#[tokio::test]
async fn others_see_what_a_candidate_is_called_and_proclaims() {
    let (etcd, name) = (Etcd::start().await, unique("value"));
    let session = sessions(&etcd).await.open().await.unwrap();
    let election = Election::new(&session, &name).unwrap();
    let work = |term: Term| {
        let election = election.clone();
        async move {
            let at_first = election.leader().await?.unwrap().value;
            term.proclaim("changed").await?;
            Ok::<_, Error>((at_first, election.leader().await?.unwrap().value))
        }
    };
    let leading = leading(&etcd, &name).await.value("called so");
    let Outcome::Finished(seen) = leading.run(never(), work).await else {
        panic!("the work finishes");
    };
    assert_eq!(seen, (b"called so".to_vec(), b"changed".to_vec()));
}

#[tokio::test]
async fn a_shutdown_while_waiting_is_no_loss() {
    let (etcd, name) = (Etcd::start().await, unique("waiting"));
    let session = sessions(&etcd).await.open().await.unwrap();
    let election = Election::new(&session, &name).unwrap();
    let leads = election.campaign("another").await.unwrap();
    let warnings = Log::of("warn");
    let (shutdown, told) = oneshot::channel::<()>();
    let work = async |_term| -> Result<(), String> { panic!("it never leads") };
    let leading = leading(&etcd, &name).await;
    let running = tokio::spawn(leading.run(async { told.await.unwrap() }, work));
    let client = etcd.client().await;
    soon("it waits in line", async || {
        let line = keys(&client, &name).await;
        ensure(line.len() == 2, format!("{line:?}"))
    })
    .await;
    shutdown.send(()).unwrap();
    let outcome = running.await.unwrap();
    assert!(matches!(outcome, Outcome::ShutDown(None)), "{outcome:?}");
    assert_eq!(keys(&client, &name).await, [leads.key()]);
    assert_eq!(leases(&client).await, [session.lease_id()]);
    assert_eq!(warnings.text(), "", "nothing to warn of");
}

/// Says when the work is dropped, and whether the term was still held then.
struct Dropped(Term, mpsc::UnboundedSender<bool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.send(self.0.is_held()).unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_is_told_to_the_work_and_then_it_resigns() {
    let (etcd, name) = (Etcd::start().await, unique("told"));
    let (shutdown, told) = oneshot::channel::<()>();
    let (begins, mut begun) = mpsc::unbounded_channel();
    let direct = etcd.client().await;
    let work = |term: Term| {
        let (direct, begins) = (direct.clone(), begins.clone());
        async move {
            begins.send(()).unwrap();
            term.stopping().await;
            // Still the leader, and time enough to say so.
            let line = keys(&direct, "").await;
            Ok::<_, String>(term.is_held() && line == [term.key()])
        }
    };
    let leading = leading(&etcd, &name).await;
    let end = async move {
        begun.recv().await.unwrap();
        shutdown.send(()).unwrap();
    };
    let running = leading.run(async { told.await.unwrap() }, work);
    let (outcome, ()) = tokio::join!(running, end);
    assert!(
        matches!(outcome, Outcome::ShutDown(Some(Ok(true)))),
        "{outcome:?}"
    );
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn work_that_does_not_end_within_its_grace_is_dropped_and_then_it_resigns() {
    let (etcd, name) = (Etcd::start().await, unique("grace"));
    let grace = Duration::from_millis(300);
    let (drops, mut dropped) = mpsc::unbounded_channel();
    let works = Notify::new();
    let work = |term: Term| {
        let dropped = Dropped(term, drops.clone());
        works.notify_one();
        async move {
            never().await;
            drop(dropped);
            Ok::<(), String>(())
        }
    };
    let (shutdown, told) = oneshot::channel::<()>();
    let leading = leading(&etcd, &name).await.grace(grace);
    let end = async {
        works.notified().await;
        shutdown.send(()).unwrap();
        Instant::now()
    };
    let running = leading.run(async { told.await.unwrap() }, work);
    let (outcome, begun) = tokio::join!(running, end);
    assert!(begun.elapsed() >= grace, "{:?}", begun.elapsed());
    assert!(matches!(outcome, Outcome::ShutDown(None)), "{outcome:?}");
    assert_eq!(dropped.recv().await, Some(true), "dropped while still held");
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn dropping_it_drops_the_work_and_resigns() {
    let (etcd, name) = (Etcd::start().await, unique("aborted"));
    let (drops, mut dropped) = mpsc::unbounded_channel();
    let (begins, mut begun) = mpsc::unbounded_channel();
    let leading = leading(&etcd, &name).await;
    let running = tokio::spawn(leading.run(never(), move |term: Term| {
        begins.send(term.clone()).unwrap();
        let dropped = Dropped(term, drops.clone());
        async move {
            never().await;
            drop(dropped);
            Ok::<(), String>(())
        }
    }));
    let kept = begun.recv().await.unwrap();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    dropped.recv().await.unwrap();
    let client = etcd.client().await;
    soon("it has resigned", async || {
        let left = (keys(&client, "").await, leases(&client).await);
        ensure(left.0.is_empty() && left.1.is_empty(), format!("{left:?}"))
    })
    .await;
    // A term that outlives its run.
    assert!(!kept.is_held());
    assert_eq!(kept.lost().await, Lost::Closed);
    timeout(TTL, kept.stopping()).await.unwrap();
    assert!(kept.proclaim("late").await.is_err());
}

#[tokio::test]
async fn a_candidate_that_etcd_refuses_is_told_why() {
    let (etcd, name) = (Etcd::start().await, unique("refused"));
    let mut admin = etcd.client().await;
    for user in ["root", "limited"] {
        admin.role_add(user).await.unwrap();
        admin.user_add(user, "secret", None).await.unwrap();
        admin.user_grant_role(user, user).await.unwrap();
    }
    admin.auth_enable().await.unwrap();
    let options = ConnectOptions::new().with_user("limited", "secret");
    let client = connect_with(&[etcd.endpoint()], Some(options))
        .await
        .unwrap();
    let leading = Leading::new(Session::builder(client), &name).unwrap();
    let work = async |_term| -> Result<(), String> { panic!("it never leads") };
    let Outcome::Refused(error) = leading.run(never(), work).await else {
        panic!("no use in trying on");
    };
    assert!(error.to_string().contains("permission denied"), "{error}");
}

#[tokio::test]
async fn a_name_that_cannot_work_is_refused() {
    let etcd = Etcd::start().await;
    for name in ["", "ends/"] {
        let error = Leading::new(sessions(&etcd).await, name).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}
