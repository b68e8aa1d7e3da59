//! Candidates in trouble, and what a hand-over costs:
//! - a candidate whose lease or key goes is told within a second and never leads (scenario 44);
//! - a candidate whose leadership is over writes nothing in its name;
//! - resigning hands over to the next within three round trips of the server.

use std::time::Duration;

use etcd_lock::scheduler::{Leading, Outcome};
use etcd_lock::{Election, Error, Leadership, Lost, Session};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Etcd, ensure, keys, soon, unique};

const TTL: Duration = Duration::from_secs(2);
const A_SECOND: Duration = Duration::from_secs(1);

type Campaign = JoinHandle<etcd_lock::Result<Leadership>>;

/// A leader, and a candidate with its session.
struct Scene {
    etcd: Etcd,
    name: String,
    leads: Leadership,
    session: Session,
    campaign: Campaign,
}

async fn session(etcd: &Etcd) -> Session {
    let builder = Session::builder(etcd.client().await).ttl(TTL);
    builder.open().await.unwrap()
}

async fn scene() -> Scene {
    let (etcd, name) = (Etcd::start().await, unique("phantom"));
    let first = Election::new(&session(&etcd).await, &name).unwrap();
    let leads = first.campaign("leads").await.unwrap();
    let session = session(&etcd).await;
    let second = Election::new(&session, &name).unwrap();
    let campaign = tokio::spawn(second.campaign("waits"));
    line_is(&etcd, &name, 2).await;
    Scene {
        etcd,
        name,
        leads,
        session,
        campaign,
    }
}

async fn line_is(etcd: &Etcd, name: &str, wanted: usize) {
    let client = etcd.client().await;
    soon("the line is that long", async || {
        let line = keys(&client, &format!("{name}/")).await;
        ensure(line.len() == wanted, format!("{line:?}"))
    })
    .await;
}

/// The candidate is told at once, while the other leads on, and nobody leads once that one has left.
async fn is_told_and_never_leads(scene: Scene, cause: Lost) {
    let told = timeout(A_SECOND, scene.campaign).await;
    let error = told.expect("told within a second").unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Lost(lost) if lost == cause),
        "{error}"
    );
    assert!(scene.leads.is_held());
    scene.leads.resign().await.unwrap();
    let others = Election::new(&session(&scene.etcd).await, &scene.name).unwrap();
    assert_eq!(others.leader().await.unwrap(), None);
}

#[tokio::test]
async fn a_candidate_whose_lease_is_revoked_never_leads() {
    let scene = scene().await;
    let mut client = scene.etcd.client().await;
    client.lease_revoke(scene.session.lease_id()).await.unwrap();
    is_told_and_never_leads(scene, Lost::LeaseGone).await;
}

#[tokio::test]
async fn a_candidate_whose_key_is_deleted_never_leads() {
    let scene = scene().await;
    let mut client = scene.etcd.client().await;
    let line = keys(&client, &format!("{}/", scene.name)).await;
    client.delete(&*line[1], None).await.unwrap();
    is_told_and_never_leads(scene, Lost::KeyDeleted).await;
}

#[tokio::test]
async fn a_candidate_whose_session_is_closed_never_leads() {
    let scene = scene().await;
    scene.session.close().await.unwrap();
    is_told_and_never_leads(scene, Lost::Closed).await;
}

/// What a member was asked to do; renewals and the streams that stand anyhow are no part of it.
async fn requests(etcd: &Etcd) -> f64 {
    let mut sum = 0.0;
    for method in [
        "Txn",
        "Range",
        "DeleteRange",
        "Put",
        "LeaseGrant",
        "LeaseRevoke",
        "LeaseTimeToLive",
    ] {
        sum += etcd.calls(method).await;
    }
    sum
}

/// Waits until nothing is asked any more: what the scene began is done, holds are watched.
async fn calm(etcd: &Etcd) -> f64 {
    let mut last = -1.0;
    soon("nothing is asked for a while", async || {
        // Holds begin to be watched, with one look, after 100 ms.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let before = std::mem::replace(&mut last, requests(etcd).await);
        ensure((last - before).abs() < f64::EPSILON, last)
    })
    .await;
    last
}

#[tokio::test]
async fn resigning_hands_over_within_three_requests() {
    // A long TTL: the looks for safety's sake are no part of a hand-over either.
    let (etcd, name) = (Etcd::start().await, unique("handover"));
    let builder = Session::builder(etcd.client().await).ttl(30 * A_SECOND);
    let first = Election::new(&builder.clone().open().await.unwrap(), &name).unwrap();
    let second = Election::new(&builder.open().await.unwrap(), &name).unwrap();
    let leads = first.campaign("first").await.unwrap();
    let campaign = tokio::spawn(second.campaign("second"));
    line_is(&etcd, &name, 2).await;
    let before = calm(&etcd).await;
    leads.resign().await.unwrap();
    let leads = campaign.await.unwrap().unwrap();
    let asked = requests(&etcd).await - before;
    assert!(leads.is_held());
    assert!((1.0..=3.0).contains(&asked), "{asked} requests");
}

#[tokio::test]
async fn a_shutdown_hands_over_within_three_requests() {
    let (etcd, name) = (Etcd::start().await, unique("shutdown"));
    let builder = Session::builder(etcd.client().await).ttl(30 * A_SECOND);
    let mut services = Vec::new();
    for i in 0..2 {
        let leading = Leading::new(builder.clone(), &name).unwrap();
        let (shutdown, told) = oneshot::channel::<()>();
        let (begins, begun) = oneshot::channel();
        let mut begins = Some(begins);
        let running = tokio::spawn(leading.run(async { drop(told.await) }, move |term| {
            begins.take().unwrap().send(term.token()).unwrap();
            async move {
                term.stopping().await;
                Ok::<_, String>(())
            }
        }));
        line_is(&etcd, &name, i + 1).await;
        services.push((shutdown, begun, running));
    }
    let (_keep, next, _running) = services.pop().unwrap();
    let (shutdown, first, running) = services.pop().unwrap();
    first.await.unwrap();
    let before = calm(&etcd).await;
    shutdown.send(()).unwrap();
    next.await.unwrap();
    let asked = requests(&etcd).await - before;
    assert!((1.0..=3.0).contains(&asked), "{asked} requests");
    let outcome = running.await.unwrap();
    assert!(
        matches!(outcome, Outcome::ShutDown(Some(Ok(())))),
        "{outcome:?}"
    );
}
