//! Elections among clients of other languages:
//! - `etcdctl elect` behind ours, ours behind theirs, and what `--listen` sees of ours and our observer of theirs;
//! - Go's `Election` by its key layout: `name/<lease id in hex>` with the value, on that lease.

use std::time::Duration;

use etcd_client::PutOptions;
use etcd_lock::{Election, Session};
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::support::{Etcd, Puppet, ensure, etcdctl_elect, etcdctl_observe, keys, soon, unique};

const TTL: Duration = Duration::from_secs(2);

async fn election(etcd: &Etcd, name: &str) -> Election {
    let builder = Session::builder(etcd.client().await).ttl(TTL);
    Election::new(&builder.open().await.unwrap(), name).unwrap()
}

/// Waits until so many stand in the line.
async fn stand_in_line(etcd: &Etcd, name: &str, wanted: usize) {
    let client = etcd.client().await;
    soon("the line is as long as that", async || {
        let now = keys(&client, &format!("{name}/")).await.len();
        ensure(now == wanted, now)
    })
    .await;
}

/// What `etcdctl elect` says of a leader: its key and its value.
async fn said(puppet: &mut Puppet) -> (String, String) {
    (puppet.line().await, puppet.line().await)
}

#[tokio::test]
async fn etcdctl_waits_behind_ours_and_ours_behind_etcdctl() {
    let (etcd, name) = (Etcd::start().await, unique("etcdctl"));
    let election = election(&etcd, &name).await;
    let leads = election.campaign("ours").await.unwrap();
    let mut theirs = etcdctl_elect(&etcd.endpoint(), &name, "theirs");
    stand_in_line(&etcd, &name, 2).await;
    let again = tokio::spawn(election.campaign("ours again"));
    stand_in_line(&etcd, &name, 3).await;
    theirs.is_silent_for(Duration::from_millis(300)).await;
    leads.resign().await.unwrap();
    let (key, value) = said(&mut theirs).await;
    assert_eq!(value, "theirs");
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((leader.key, &*leader.value), (key, &b"theirs"[..]));
    assert!(!again.is_finished());
    theirs.process.term();
    let leads = again.await.unwrap().unwrap();
    assert!(leads.token() > leader.token);
    assert_eq!(
        election.leader().await.unwrap().unwrap().value,
        b"ours again"
    );
}

#[tokio::test]
async fn etcdctl_sees_our_leaders_and_our_observer_theirs() {
    let (etcd, name) = (Etcd::start().await, unique("listen"));
    let election = election(&etcd, &name).await;
    let ours = election.observe();
    let mut theirs = etcdctl_observe(&etcd.endpoint(), &name);
    let leads = election.campaign("ours").await.unwrap();
    let key = leads.key().to_owned();
    assert_eq!(said(&mut theirs).await, (key.clone(), "ours".to_owned()));
    leads.proclaim("ours, changed").await.unwrap();
    assert_eq!(said(&mut theirs).await, (key, "ours, changed".to_owned()));
    let mut next = etcdctl_elect(&etcd.endpoint(), &name, "theirs");
    stand_in_line(&etcd, &name, 2).await;
    leads.resign().await.unwrap();
    let (key, _) = said(&mut next).await;
    assert_eq!(said(&mut theirs).await, (key.clone(), "theirs".to_owned()));
    let mut of_key = ours.filter_map(|seen| seen.unwrap().filter(|leader| leader.key == key));
    let seen = timeout(Duration::from_secs(5), of_key.next()).await;
    assert_eq!(seen.unwrap().unwrap().value, b"theirs");
}

#[tokio::test]
async fn a_candidate_of_the_go_client_stands_in_the_same_line() {
    let (etcd, name) = (Etcd::start().await, unique("go"));
    let election = election(&etcd, &name).await;
    let mut client = etcd.client().await;
    // As Go's Election.Campaign does it: the bare lease id, in hexadecimal, and the value.
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let key = format!("{name}/{lease:x}");
    let leased = PutOptions::new().with_lease(lease);
    client.put(&*key, "go", Some(leased.clone())).await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(
        (&*leader.key, &*leader.value, leader.lease),
        (&*key, &b"go"[..], lease)
    );
    let campaign = tokio::spawn(election.campaign("ours"));
    stand_in_line(&etcd, &name, 2).await;
    // Its Proclaim puts the key again: still the leader, under the same token.
    client
        .put(&*key, "go, changed", Some(leased))
        .await
        .unwrap();
    let changed = election.leader().await.unwrap().unwrap();
    assert_eq!(
        (&*changed.value, changed.token),
        (&b"go, changed"[..], leader.token)
    );
    assert!(!campaign.is_finished());
    // Its Resign deletes the key, its crash ends the lease.
    client.lease_revoke(lease).await.unwrap();
    let leads = campaign.await.unwrap().unwrap();
    assert!(leads.token() > leader.token);
}
