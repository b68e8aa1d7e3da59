//! `Leading` when terms are lost (scenarios 40, 41 and 47):
//! - the work is dropped before another leads, then it campaigns again with a new session and a larger token;
//! - sessions that die one after the other are followed by others at growing pauses;
//! - etcd being away does not hold up a shutdown.

use std::time::Duration;

use etcd_lock::scheduler::{Leading, Outcome, Term};
use etcd_lock::{Lost, Session};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Etcd, Proxy, connect, ensure, keys, leases, soon, unique};

const TTL: Duration = Duration::from_secs(2);
const A_SECOND: Duration = Duration::from_secs(1);

/// What the work of a service tells.
#[derive(Debug)]
enum Told {
    Begun(Term),
    /// Dropped or ended, at this instant.
    Over(Instant),
}

/// A service that leads until it is told to stop.
struct Service {
    running: JoinHandle<Outcome<(), String>>,
    shutdown: oneshot::Sender<()>,
    tells: mpsc::UnboundedReceiver<Told>,
}

struct Tells(mpsc::UnboundedSender<Told>);

impl Drop for Tells {
    fn drop(&mut self) {
        let _nobody_listens = self.0.send(Told::Over(Instant::now()));
    }
}

impl Service {
    async fn begin(endpoint: String, name: &str) -> Self {
        let client = connect(&[endpoint]).await;
        let leading = Leading::new(Session::builder(client).ttl(TTL), name).unwrap();
        let (shutdown, told) = oneshot::channel();
        let (sender, tells) = mpsc::unbounded_channel();
        let work = move |term: Term| {
            sender.send(Told::Begun(term.clone())).unwrap();
            let tells = Tells(sender.clone());
            async move {
                term.stopping().await;
                drop(tells);
                Ok(())
            }
        };
        Self {
            running: tokio::spawn(leading.run(async { told.await.unwrap() }, work)),
            shutdown,
            tells,
        }
    }

    async fn begun(&mut self) -> Term {
        match self.tells.recv().await.unwrap() {
            Told::Begun(term) => term,
            Told::Over(_) => panic!("it is over"),
        }
    }

    async fn over(&mut self) -> Instant {
        match self.tells.recv().await.unwrap() {
            Told::Over(at) => at,
            Told::Begun(term) => panic!("another term: {term:?}"),
        }
    }

    async fn shut_down(self) {
        self.shutdown.send(()).unwrap();
        let outcome = self.running.await.unwrap();
        assert!(matches!(outcome, Outcome::ShutDown(_)), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_term_drops_its_work_before_another_leads_and_campaigns_again() {
    let (etcd, name) = (Etcd::start().await, unique("lost"));
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let mut cut_off = Service::begin(proxy.endpoint(), &name).await;
    let first = cut_off.begun().await;
    let mut other = Service::begin(etcd.endpoint(), &name).await;
    let client = etcd.client().await;
    soon("the other stands by", async || {
        let line = keys(&client, &name).await;
        ensure(line.len() == 2, format!("{line:?}"))
    })
    .await;
    proxy.hold();
    let second = other.begun().await;
    let leads_since = Instant::now();
    assert!(second.token() > first.token());
    assert_eq!(first.lost().await, Lost::Expired);
    let over_since = cut_off.over().await;
    assert!(
        over_since < leads_since,
        "{:?} too late",
        over_since - leads_since
    );
    proxy.heal();
    soon("the one that lost stands by", async || {
        let line = keys(&client, &name).await;
        ensure(line.len() == 2, format!("{line:?}"))
    })
    .await;
    other.shut_down().await;
    let third = cut_off.begun().await;
    assert!(third.token() > second.token());
    let lease = |term: &Term| term.key().rsplit_once(['/']).map(|(_, key)| key.to_owned());
    assert_ne!(lease(&third), lease(&first), "a new session");
    assert!(!first.is_held() && third.is_held());
    cut_off.shut_down().await;
    assert_eq!(keys(&client, &name).await, [""; 0]);
}

#[tokio::test]
async fn a_leader_whose_key_is_deleted_campaigns_again() {
    let (etcd, name) = (Etcd::start().await, unique("deleted"));
    let mut service = Service::begin(etcd.endpoint(), &name).await;
    let first = service.begun().await;
    let mut client = etcd.client().await;
    client.delete(first.key(), None).await.unwrap();
    timeout(A_SECOND, service.over())
        .await
        .expect("told within a second");
    assert_eq!(first.lost().await, Lost::KeyDeleted);
    let second = service.begun().await;
    assert!(second.token() > first.token());
    assert_eq!(leases(&client).await.len(), 1, "the old session is closed");
    service.shut_down().await;
}

#[tokio::test]
async fn sessions_that_die_in_a_row_are_followed_at_growing_pauses() {
    let (etcd, name) = (Etcd::start().await, unique("dying"));
    let service = Service::begin(etcd.endpoint(), &name).await;
    let client = etcd.client().await;
    let (begun, before) = (Instant::now(), etcd.calls("LeaseGrant").await);
    while begun.elapsed() < 4 * A_SECOND {
        for lease in leases(&client).await {
            let _gone_by_itself = client.lease_client().revoke(lease).await;
        }
        sleep(Duration::from_millis(5)).await;
    }
    let grants = etcd.calls("LeaseGrant").await - before;
    // At the shortest, the pauses are 50, 100, 200, 400, 800, 1600, 2500 ms long.
    assert!((3.0..=8.0).contains(&grants), "{grants} sessions in 4 s");
    service.shut_down().await;
}

#[tokio::test]
async fn a_shutdown_ends_soon_though_etcd_is_away() {
    let (etcd, name) = (Etcd::start().await, unique("away"));
    let mut service = Service::begin(etcd.endpoint(), &name).await;
    service.begun().await;
    etcd.kill();
    let begun = Instant::now();
    // Leading, it waits a TTL at most for its resignation to be confirmed.
    service.shut_down().await;
    assert!(begun.elapsed() < TTL + A_SECOND, "{:?}", begun.elapsed());
    // Without a session there is nothing to wait for.
    let service = Service::begin(etcd.endpoint(), &name).await;
    sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    service.shut_down().await;
    assert!(begun.elapsed() < A_SECOND, "{:?}", begun.elapsed());
}
