//! Observers on a sound etcd (scenario 46):
//! - the present state first, `None` at the start and after the last leader has left;
//! - every proclaimed value, when each is waited for; never a candidate that is not first;
//! - under churn, tokens in order and only of those who did lead;
//! - no session needed, nothing left behind;
//! - without permission an error, and then it goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, Permission, PermissionType, RoleRevokePermissionOptions,
};
use etcd_lock::{Election, Error, Leader, Observer, Session};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::support::{Etcd, connect_with, ensure, keys, soon, unique};

const TTL: Duration = Duration::from_secs(2);

/// By its watch: the look that an observer takes for safety's sake would come later.
const PROMPTLY: Duration = Duration::from_secs(5);

async fn election(etcd: &Etcd, name: &str) -> Election {
    let builder = Session::builder(etcd.client().await).ttl(TTL);
    Election::new(&builder.open().await.unwrap(), name).unwrap()
}

async fn item(observer: &mut Observer) -> etcd_lock::Result<Option<Leader>> {
    let next = timeout(PROMPTLY, observer.next()).await;
    next.expect("something is shown promptly")
        .expect("an observer never ends")
}

/// The value of the leader that is shown next.
async fn shown(observer: &mut Observer) -> Option<String> {
    let leader = item(observer).await.unwrap();
    leader.map(|leader| String::from_utf8(leader.value).unwrap())
}

#[tokio::test]
async fn an_observer_shows_each_state_once_and_no_mere_candidate() {
    let (etcd, name) = (Etcd::start().await, unique("states"));
    let (a, b) = (election(&etcd, &name).await, election(&etcd, &name).await);
    let mut observer = Observer::new(etcd.client().await, &name).unwrap();
    assert_eq!(shown(&mut observer).await, None);
    let leads = a.campaign("a").await.unwrap();
    assert_eq!(shown(&mut observer).await.as_deref(), Some("a"));
    let waits = tokio::spawn(b.campaign("b"));
    let direct = etcd.client().await;
    soon("b stands in line", async || {
        let line = keys(&direct, &name).await.len();
        ensure(line == 2, line)
    })
    .await;
    leads.proclaim("a again").await.unwrap();
    assert_eq!(shown(&mut observer).await.as_deref(), Some("a again"));
    leads.resign().await.unwrap();
    assert_eq!(shown(&mut observer).await.as_deref(), Some("b"));
    waits.await.unwrap().unwrap().resign().await.unwrap();
    assert_eq!(shown(&mut observer).await, None);
}

#[tokio::test]
async fn a_late_observer_begins_with_the_present_leader() {
    let (etcd, name) = (Etcd::start().await, unique("late"));
    let election = election(&etcd, &name).await;
    let leads = election.campaign("early").await.unwrap();
    leads.proclaim("now").await.unwrap();
    let mut observer = election.observe();
    let leader = item(&mut observer).await.unwrap().unwrap();
    assert_eq!((&*leader.value, &*leader.key), (&b"now"[..], leads.key()));
    assert_eq!(leader.token, leads.token());
}

#[tokio::test]
async fn an_observer_outlives_the_session_that_made_it() {
    let (etcd, name) = (Etcd::start().await, unique("outlives"));
    let session = Session::open(etcd.client().await).await.unwrap();
    let mine = Election::new(&session, &name).unwrap();
    let _leads = mine.campaign("mine").await.unwrap();
    let mut observer = mine.observe();
    assert_eq!(shown(&mut observer).await.as_deref(), Some("mine"));
    session.close().await.unwrap();
    assert_eq!(shown(&mut observer).await, None);
    let other = election(&etcd, &name).await;
    let _leads = other.campaign("another's").await.unwrap();
    assert_eq!(shown(&mut observer).await.as_deref(), Some("another's"));
}

#[tokio::test]
async fn an_election_below_the_name_is_not_shown() {
    let (etcd, name) = (Etcd::start().await, unique("nested"));
    let below = election(&etcd, &format!("{name}/below")).await;
    let _below = below.campaign("below").await.unwrap();
    let mut observer = Observer::new(etcd.client().await, &name).unwrap();
    assert_eq!(shown(&mut observer).await, None);
    let election = election(&etcd, &name).await;
    let _leads = election.campaign("here").await.unwrap();
    assert_eq!(shown(&mut observer).await.as_deref(), Some("here"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_churn_only_true_leaders_are_shown_in_the_order_of_their_tokens() {
    let (etcd, name) = (Etcd::start().await, unique("churn"));
    let mut observer = Observer::new(etcd.client().await, &name).unwrap();
    let mut candidates = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let election = election(&etcd, &name).await;
        candidates.spawn(async move {
            let mut led = BTreeSet::new();
            for _ in 0..40 {
                let leads = election.campaign("begins").await.unwrap();
                leads.proclaim("goes on").await.unwrap();
                led.insert(leads.token());
                leads.resign().await.unwrap();
            }
            led
        });
    }
    let watching = tokio::spawn(async move {
        let mut seen = Vec::new();
        // 200 terms on: a sign that the churn is over.
        while seen.last() != Some(&None) || seen.len() < 20 {
            seen.push(item(&mut observer).await.unwrap());
        }
        seen
    });
    let mut led = BTreeSet::new();
    while let Some(more) = candidates.join_next().await {
        led.append(&mut more.unwrap());
    }
    assert_eq!(led.len(), 200);
    let seen = watching.await.unwrap();
    let seen: Vec<_> = seen.into_iter().flatten().collect();
    assert!(seen.is_sorted_by_key(|leader| leader.token), "{seen:?}");
    let strangers = seen.iter().filter(|leader| !led.contains(&leader.token));
    assert_eq!(strangers.count(), 0, "{led:?} {seen:?}");
}

#[tokio::test]
async fn a_dropped_observer_leaves_no_watch() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let watchers = async |wanted: f64| {
        soon("so many watches are open", async || {
            let now = etcd.metric("etcd_debugging_mvcc_watcher_total").await;
            ensure((now - wanted).abs() < f64::EPSILON, now)
        })
        .await;
    };
    let mut observers = Vec::new();
    for i in 0..3 {
        let mut observer = Observer::new(client.clone(), &unique(&i.to_string())).unwrap();
        assert_eq!(shown(&mut observer).await, None);
        observers.push(observer);
    }
    watchers(3.0).await;
    // One of them in the middle of waiting.
    let mut one = observers.pop().unwrap();
    let waiting = tokio::spawn(async move { one.next().await });
    drop(observers);
    watchers(1.0).await;
    waiting.abort();
    watchers(0.0).await;
}

const LIMITED: &str = "limited";

/// Enables authentication, with a user `root` and one that may do nothing.
async fn with_users(etcd: &Etcd) -> (Client, Client) {
    let mut admin = etcd.client().await;
    for user in ["root", LIMITED] {
        admin.role_add(user).await.unwrap();
        admin.user_add(user, "secret", None).await.unwrap();
        admin.user_grant_role(user, user).await.unwrap();
    }
    admin.auth_enable().await.unwrap();
    (as_user(etcd, "root").await, as_user(etcd, LIMITED).await)
}

async fn as_user(etcd: &Etcd, user: &str) -> Client {
    let options = ConnectOptions::new().with_user(user, "secret");
    let client = connect_with(&[etcd.endpoint()], Some(options)).await;
    client.unwrap()
}

#[tokio::test]
async fn a_refused_observer_says_so_and_goes_on_when_it_may() {
    let (etcd, name) = (Etcd::start().await, unique("auth"));
    let (mut root, limited) = with_users(&etcd).await;
    let prefix = format!("{name}/");
    let read = Permission::new(PermissionType::Read, &*prefix).with_prefix();
    let mut observer = Observer::new(limited, &name).unwrap();
    let refused = async |observer: &mut Observer| {
        let error = item(observer).await.unwrap_err();
        assert!(matches!(error, Error::Etcd { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("permission"), "{text}");
    };
    refused(&mut observer).await;
    refused(&mut observer).await;
    root.role_grant_permission(LIMITED, read.clone())
        .await
        .unwrap();
    let session = Session::open(root.clone()).await.unwrap();
    let election = Election::new(&session, &name).unwrap();
    let leads = election.campaign("leads").await.unwrap();
    let mut first = item(&mut observer).await;
    while first.is_err() {
        first = item(&mut observer).await;
    }
    assert_eq!(first.unwrap().unwrap().value, b"leads");
    // Taken away under an open watch, and given back.
    let of_prefix = RoleRevokePermissionOptions::new().with_prefix();
    root.role_revoke_permission(LIMITED, &*prefix, Some(of_prefix))
        .await
        .unwrap();
    leads.proclaim("unseen").await.unwrap();
    leads.proclaim("leads").await.unwrap();
    refused(&mut observer).await;
    root.role_grant_permission(LIMITED, read).await.unwrap();
    let mut next = item(&mut observer).await;
    while next.is_err() {
        next = item(&mut observer).await;
    }
    let now = next.unwrap().unwrap();
    assert_eq!(now.value, b"leads", "shown again, though unchanged");
}
