//! What is exported, what the guide says of it, and what the ready alerts and dashboard ask for are the same.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use etcd_client::PutOptions;
use serde_json::Value;
use tokio::time::sleep;

use crate::support::{Etcd, Exporter, Proxy, connect, ensure, keys, mutex, session, soon, within};

const SECOND: Duration = Duration::from_secs(1);

const GUIDE: &str = include_str!("../../src/guide/watching.md");
const ALERTS: &str = include_str!("../../examples/monitoring/alerts.yml");
const DASHBOARD: &str = include_str!("../../examples/monitoring/dashboard.json");

/// The names of our metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_name(c));
    words
        .filter(|word| word.starts_with("etcd_lock_"))
        .collect()
}

/// All queries of the alerts, and all of the dashboard.
fn queries() -> Vec<String> {
    let alerts = ALERTS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let exprs = targets.map(|target| target["expr"].as_str().unwrap());
    alerts.chain(exprs).map(str::to_owned).collect()
}

/// Without what a histogram adds to its name.
fn base(name: &str) -> &str {
    let ends = ["_seconds_bucket", "_seconds_sum", "_seconds_count"];
    let end = ends.iter().find(|end| name.ends_with(**end));
    end.map_or(name, |end| {
        &name[..name.len() - end.len() + "_seconds".len()]
    })
}

/// The names of all that the crate exports, as queries name them.
async fn names(exporter: &Exporter) -> BTreeSet<String> {
    let all = exporter.scrape().await.into_keys();
    let all = all.map(|id| id.split('{').next().unwrap_or_default().to_owned());
    all.filter(|name| name.starts_with("etcd_lock_")).collect()
}

/// Has a key swept, as a member that was frozen could put it.
pub(crate) async fn swept(etcd: &Etcd) {
    let client = etcd.client().await;
    let proxy = Proxy::to(&etcd.endpoint()).await;
    let session = session(connect(&[proxy.endpoint()]).await, 2).await;
    let before = etcd.calls("Txn").await;
    // In doubt: its answer is lost, and that of a later attempt tells that the key stands.
    proxy.drop_answers();
    let joining = tokio::spawn(mutex(&session, "swept").lock());
    let line = async || keys(&client, "swept/").await;
    soon("several attempts have come", async || {
        let calls = etcd.calls("Txn").await - before;
        ensure(calls > 1.5, calls)
    })
    .await;
    proxy.heal();
    let guard = joining.await.unwrap().unwrap();
    let key = guard.key().to_owned();
    guard.release().await.unwrap();
    let late = PutOptions::new().with_lease(session.lease_id());
    client.kv_client().put(key, "", Some(late)).await.unwrap();
    within(10 * SECOND, "it is swept", async || {
        let line = line().await;
        ensure(line.is_empty(), format!("{line:?}"))
    })
    .await;
}

/// Makes everything that is counted happen once.
async fn everything(etcd: &Etcd) {
    let first = session(etcd.client().await, 2).await;
    let guard = mutex(&first, "a").lock().await.unwrap();
    assert!(mutex(&first, "a").try_lock().await.unwrap().is_err());
    // Long enough for a renewal to come, and then the beats are missing.
    sleep(SECOND).await;
    thread::sleep(SECOND / 2);
    guard.release().await.unwrap();
    swept(etcd).await;
}

#[tokio::test]
#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature metrics")]
async fn alerts_dashboard_and_guide_speak_of_what_is_exported() {
    let exporter = Exporter::install();
    everything(&Etcd::start().await).await;
    let all = names(&exporter).await;
    let queries = queries();
    assert!(queries.len() > 20, "{}", queries.len());
    let mut asked = BTreeSet::new();
    for query in &queries {
        let names = named(query);
        assert!(!names.is_empty(), "{query} asks for nothing of ours");
        for name in names {
            assert!(all.contains(name), "{query}: no {name} among {all:#?}");
            asked.insert(base(name));
        }
    }
    let all: BTreeSet<_> = all.iter().map(|name| base(name)).collect();
    assert_eq!(asked, all, "all of it is to be seen somewhere");
    let told: BTreeSet<_> = named(GUIDE).into_iter().map(base).collect();
    assert_eq!(told, all, "the guide tells of all of it");
}

#[test]
fn every_alert_is_explained() {
    let names = ALERTS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<_> = names.collect();
    assert!(names.len() > 5);
    let exprs = ALERTS.matches("expr: ").count();
    assert_eq!(names.len(), exprs, "each on a line of its own");
    for name in names {
        assert!(GUIDE.contains(&format!("`{name}`")), "{name}");
    }
}
