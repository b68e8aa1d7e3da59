//! etcd stopped and started under a leader and its candidates (scenarios 45 and 47):
//! - however long it is away, at most one leads at any time, and somebody leads within TTL + 3 s of its return;
//! - away for half a TTL, the leader leads on;
//! - while it is away nobody hurries to reach it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_lock::scheduler::{Leading, Term};
use etcd_lock::{FencingToken, Session};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{Etcd, Proxy, connect, ensure, keys, soon, unique, within};

/// From when to when whoever led, in the order in which they began.
#[derive(Clone, Default)]
struct Terms(Arc<Mutex<Vec<Led>>>);

type Led = (FencingToken, Instant, Option<Instant>);

/// A term under way: however its work ends, the end is noted.
struct Now(Terms, FencingToken);

impl Terms {
    fn begin(&self, term: &Term) -> Now {
        let mut terms = self.0.lock().unwrap();
        let others: Vec<_> = terms.iter().filter(|(_, _, end)| end.is_none()).collect();
        assert!(
            others.is_empty(),
            "{} leads beside {others:?}",
            term.token()
        );
        terms.push((term.token(), Instant::now(), None));
        Now(self.clone(), term.token())
    }

    /// Who leads now.
    fn leader(&self) -> Option<FencingToken> {
        let terms = self.0.lock().unwrap();
        let (token, _, end) = terms.last()?;
        end.is_none().then_some(*token)
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits until somebody leads, not longer than that.
    async fn somebody_leads_within(&self, bound: Duration) -> FencingToken {
        within(bound, "somebody leads", async || {
            self.leader().ok_or("nobody does".to_owned())
        })
        .await
    }
}

impl Drop for Now {
    fn drop(&mut self) {
        let mut terms = self.0.0.lock().unwrap();
        let ours = terms.iter_mut().find(|(token, _, _)| *token == self.1);
        ours.unwrap().2 = Some(Instant::now());
    }
}

/// Three candidates on one etcd, of which one leads.
struct Scene {
    etcd: Etcd,
    terms: Terms,
    candidates: JoinSet<()>,
}

impl Scene {
    async fn begin(ttl: Duration) -> Self {
        let (etcd, name) = (Etcd::start().await, unique("outage"));
        let terms = Terms::default();
        let candidates = candidates(&etcd, &etcd.endpoint(), &name, ttl, &terms).await;
        terms.somebody_leads_within(ttl).await;
        Self {
            etcd,
            terms,
            candidates,
        }
    }

    /// Stops etcd and has it back after `length`, give or take what its start takes.
    async fn outage(&self, length: Duration) {
        let back = Instant::now() + length;
        self.etcd.kill();
        sleep_until(back).await;
        self.etcd.restart().await;
    }

    /// Nobody has panicked, in particular not because somebody else led.
    fn is_sound(&mut self) {
        assert!(self.candidates.try_join_next().is_none());
    }
}

async fn candidates(
    etcd: &Etcd,
    endpoint: &str,
    name: &str,
    ttl: Duration,
    terms: &Terms,
) -> JoinSet<()> {
    let (mut candidates, direct) = (JoinSet::new(), etcd.client().await);
    for i in 1..=3 {
        let client = connect(&[endpoint.to_owned()]).await;
        let leading = Leading::new(Session::builder(client).ttl(ttl), name).unwrap();
        let terms = terms.clone();
        candidates.spawn(async move {
            let work = |term: Term| {
                let now = terms.begin(&term);
                async move {
                    std::future::pending::<()>().await;
                    drop(now);
                    Ok::<_, String>(())
                }
            };
            let outcome = leading.run(std::future::pending(), work).await;
            panic!("{outcome:?}");
        });
        soon("the candidate stands in line", async || {
            let line = keys(&direct, name).await;
            ensure(line.len() == i, format!("{line:?}"))
        })
        .await;
    }
    candidates
}

const SECOND: Duration = Duration::from_secs(1);

async fn one_at_most_and_soon_one_again(ttl: Duration, outage: Duration) {
    let mut scene = Scene::begin(ttl).await;
    scene.outage(outage).await;
    scene.terms.somebody_leads_within(ttl + 3 * SECOND).await;
    // What comes late after an outage, comes now.
    sleep(ttl).await;
    scene.terms.somebody_leads_within(ttl + 3 * SECOND).await;
    scene.is_sound();
    assert!(scene.terms.count() <= 3, "{:?}", scene.terms.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_of_a_ttl_one_leads() {
    one_at_most_and_soon_one_again(2 * SECOND, 2 * SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_of_five_ttls_one_leads() {
    one_at_most_and_soon_one_again(2 * SECOND, 10 * SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_outlasts_an_outage_of_half_a_ttl() {
    let ttl = 6 * SECOND;
    let mut scene = Scene::begin(ttl).await;
    let leader = scene.terms.leader();
    // Starting etcd takes most of a second of it.
    scene.outage(2 * SECOND).await;
    // Had it lost, it would have been told by then.
    sleep(ttl).await;
    assert_eq!(scene.terms.leader(), leader);
    assert_eq!(scene.terms.count(), 1);
    scene.is_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_etcd_is_away_nobody_hurries() {
    let (etcd, name) = (Etcd::start().await, unique("idle"));
    let (proxy, terms) = (Proxy::to(&etcd.endpoint()).await, Terms::default());
    let ttl = 2 * SECOND;
    let _candidates = candidates(&etcd, &proxy.endpoint(), &name, ttl, &terms).await;
    terms.somebody_leads_within(ttl).await;
    // The proxy takes each try to connect and resets it at once.
    etcd.kill();
    soon("the leader has lost", async || {
        ensure(terms.leader().is_none(), "it leads")
    })
    .await;
    let before = proxy.opened();
    sleep(4 * SECOND).await;
    let opened = proxy.opened() - before;
    assert!(opened > 0, "nobody tries");
    assert!(opened < 100, "{opened} in 4 s");
}
