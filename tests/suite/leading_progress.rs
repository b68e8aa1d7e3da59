//! The progress gate (scenario 49): work that gets on leads for as long as it likes; work that hangs, or blocks its
//! thread, leads no more once its budget is over, however long the TTL, and another does.

use std::sync::mpsc::channel;
use std::time::Duration;

use etcd_lock::scheduler::{Leading, Outcome, Term};
use etcd_lock::{Election, Lost, Session, SessionBuilder};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Etcd, unique};

const BUDGET: Duration = Duration::from_millis(500);
/// What a hand-over by the gate may take beyond the budget; expiry would take far longer.
const PROMPTLY: Duration = Duration::from_secs(3);

async fn sessions(etcd: &Etcd) -> SessionBuilder {
    // The margin is how often the clock is looked at.
    let builder = Session::builder(etcd.client().await);
    builder
        .ttl(Duration::from_secs(60))
        .margin(Duration::from_millis(200))
}

#[tokio::test]
async fn work_that_hangs_is_dropped_and_another_leads() {
    let (etcd, name) = (Etcd::start().await, unique("hangs"));
    let (hangs, mut hung) = mpsc::unbounded_channel();
    let leading = Leading::new(sessions(&etcd).await, &name).unwrap();
    let (shutdown, told) = oneshot::channel::<()>();
    let work = move |term: Term| {
        let hangs = hangs.clone();
        async move {
            for _ in 0..10 {
                sleep(BUDGET / 4).await;
                term.progress();
            }
            assert!(term.is_held(), "it got on for longer than its budget");
            hangs.send((term, Instant::now())).unwrap();
            std::future::pending::<Result<(), String>>().await
        }
    };
    let leading = leading.progress_within(BUDGET);
    let running = tokio::spawn(leading.run(async { told.await.unwrap() }, work));
    let (term, since) = hung.recv().await.unwrap();
    let other = Election::new(&sessions(&etcd).await.open().await.unwrap(), &name).unwrap();
    let leads = timeout(BUDGET + PROMPTLY, other.campaign("other")).await;
    let leads = leads.expect("promptly").unwrap();
    assert!(since.elapsed() >= BUDGET, "{:?}", since.elapsed());
    assert_eq!(term.lost().await, Lost::Stalled);
    term.progress();
    assert!(!term.is_held(), "progress that comes too late");
    // The one that hung tries again.
    leads.resign().await.unwrap();
    let (again, _) = hung.recv().await.unwrap();
    assert!(again.token() > term.token());
    shutdown.send(()).unwrap();
    let outcome = running.await.unwrap();
    assert!(matches!(outcome, Outcome::ShutDown(None)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn work_that_blocks_its_thread_leads_no_more() {
    let (etcd, name) = (Etcd::start().await, unique("blocks"));
    let leading = Leading::new(sessions(&etcd).await, &name).unwrap();
    let (begins, mut begun) = mpsc::unbounded_channel();
    let (unblock, blocked) = channel::<()>();
    let (says, said) = channel();
    let work = {
        let mut first = Some((blocked, says));
        move |term: Term| {
            begins.send(term.token()).unwrap();
            let first = first.take();
            async move {
                if let Some((blocked, says)) = first {
                    blocked.recv().unwrap();
                    says.send(term.is_held()).unwrap();
                    sleep(Duration::from_secs(60)).await;
                    panic!("dropped where it awaits");
                }
                Ok::<_, String>(term.token())
            }
        }
    };
    let running = tokio::spawn(
        leading
            .progress_within(BUDGET)
            .run(std::future::pending(), work),
    );
    let first = begun.recv().await.unwrap();
    let other = Election::new(&sessions(&etcd).await.open().await.unwrap(), &name).unwrap();
    let leads = timeout(BUDGET + PROMPTLY, other.campaign("other")).await;
    let leads = leads.expect("promptly").unwrap();
    assert!(leads.token() > first);
    unblock.send(()).unwrap();
    let held = tokio::task::spawn_blocking(move || said.recv().unwrap());
    assert!(!held.await.unwrap(), "it knows, the moment it can ask");
    let token = leads.token();
    leads.resign().await.unwrap();
    let Outcome::Finished(again) = running.await.unwrap() else {
        panic!("its second term finishes");
    };
    assert!(again > token);
}
