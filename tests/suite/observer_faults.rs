//! Observers in trouble (scenario 46): each sees the leader that came while it could not look, and no old one,
//! after a cut, lost answers, a compaction meanwhile, a restart of etcd, and a connection that just falls silent.

use std::time::Duration;

use etcd_client::CompactionOptions;
use etcd_lock::{Election, Leadership, Observer, Session};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::support::{BOUND, Etcd, Proxy, connect, unique};

/// By its watch: the look that an observer takes for safety's sake would come later.
const PROMPTLY: Duration = Duration::from_secs(5);

/// One leader, seen through a line that can fail, and how to have another.
struct Scene {
    etcd: Etcd,
    proxy: Proxy,
    election: Election,
    leads: Option<Leadership>,
    observer: Observer,
}

impl Scene {
    async fn begin() -> Self {
        let (etcd, name) = (Etcd::start().await, unique("observed"));
        let proxy = Proxy::to(&etcd.endpoint()).await;
        let builder = Session::builder(etcd.client().await);
        // A TTL that outlasts every fault here.
        let session = builder.ttl(Duration::from_secs(60)).open().await.unwrap();
        let election = Election::new(&session, &name).unwrap();
        let observer = Observer::new(connect(&[proxy.endpoint()]).await, &name);
        let mut scene = Self {
            leads: Some(election.campaign("first").await.unwrap()),
            observer: observer.unwrap(),
            etcd,
            proxy,
            election,
        };
        scene.shows("first").await;
        scene
    }

    /// Fails unless the next thing to be seen is this leader.
    async fn shows(&mut self, value: &str) {
        self.shows_within(PROMPTLY, value).await;
    }

    async fn shows_within(&mut self, bound: Duration, value: &str) {
        let next = timeout(bound, self.observer.next()).await;
        let next = next.expect("something is shown in time").unwrap().unwrap();
        assert_eq!(next.unwrap().value, value.as_bytes());
    }

    /// Fails unless this leader is seen at last, whoever is seen before.
    async fn shows_in_the_end(&mut self, value: &str) {
        let found = (&mut self.observer).filter_map(|seen| seen.unwrap());
        let mut found = found.filter(|leader| leader.value == value.as_bytes());
        let found = timeout(PROMPTLY, found.next()).await;
        assert!(found.expect("shown promptly").is_some());
    }

    /// Somebody leads in between, then another.
    async fn others_lead(&mut self, value: &str) {
        for value in ["in between", value] {
            self.leads.take().unwrap().resign().await.unwrap();
            self.leads = Some(self.election.campaign(value).await.unwrap());
        }
    }
}

#[tokio::test]
async fn an_observer_goes_on_after_a_reset() {
    let mut scene = Scene::begin().await;
    scene.proxy.cut();
    scene.others_lead("second").await;
    scene.proxy.heal();
    scene.shows("second").await;
    scene.proxy.reset_all();
    scene
        .leads
        .as_ref()
        .unwrap()
        .proclaim("third")
        .await
        .unwrap();
    scene.shows("third").await;
}

#[tokio::test]
async fn an_observer_goes_on_after_lost_answers() {
    let mut scene = Scene::begin().await;
    scene.proxy.drop_answers();
    scene.others_lead("second").await;
    let seen = timeout(Duration::from_millis(300), scene.observer.next()).await;
    assert!(seen.is_err(), "the answers are lost");
    assert!(scene.proxy.bytes_lost() > 0);
    scene.proxy.heal();
    scene.shows("second").await;
}

#[tokio::test]
async fn an_observer_goes_on_after_a_compaction_meanwhile() {
    let mut scene = Scene::begin().await;
    scene.proxy.cut();
    scene.others_lead("second").await;
    let mut client = scene.etcd.client().await;
    let answer = client.get("any", None).await.unwrap();
    let revision = answer.header().unwrap().revision();
    let physical = CompactionOptions::new().with_physical();
    client.compact(revision, Some(physical)).await.unwrap();
    scene.proxy.heal();
    scene.shows("second").await;
    scene.others_lead("third").await;
    scene.shows_in_the_end("third").await;
}

#[tokio::test]
async fn an_observer_goes_on_after_a_restart_of_etcd() {
    let mut scene = Scene::begin().await;
    scene.proxy.cut();
    scene.others_lead("second").await;
    scene.etcd.kill();
    scene.proxy.heal();
    let seen = timeout(Duration::from_millis(300), scene.observer.next()).await;
    assert!(seen.is_err(), "there is nobody to say anything: {seen:?}");
    scene.etcd.restart().await;
    scene.shows("second").await;
    // The watch is a new one: it sees what comes.
    scene.others_lead("third").await;
    scene.shows_in_the_end("third").await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_left_for_another() {
    let mut scene = Scene::begin().await;
    let other = Proxy::to(&scene.etcd.endpoint()).await;
    let both = connect(&[scene.proxy.endpoint(), other.endpoint()]).await;
    scene.observer = Observer::new(both, scene.election.name()).unwrap();
    scene.shows("first").await;
    // Whichever carries the watch: it is silenced here or there, without an error and for good.
    scene.proxy.hold();
    scene
        .leads
        .as_ref()
        .unwrap()
        .proclaim("second")
        .await
        .unwrap();
    scene.shows_within(BOUND, "second").await;
    scene.proxy.heal();
    other.hold();
    scene
        .leads
        .as_ref()
        .unwrap()
        .proclaim("third")
        .await
        .unwrap();
    scene.shows_within(BOUND, "third").await;
}
