//! - `elect` leads, with a value that others see, and runs a command meanwhile as `run` does.
//! - `observe` shows each leader.

use etcd_lock::Election;
use serde_json::{Value, json};

use super::tool::{Family, PAIR, program, soon_gone};
use crate::support::{Etcd, Puppet, keys, session, soon_nothing};

#[tokio::test]
async fn leaders_are_shown_as_they_change() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let observe = |args: &[&str]| Puppet::spawn(&program(&etcd.endpoint(), args));
    let mut people = observe(&["observe", "a"]);
    let mut machines = observe(&["observe", "--json", "a"]);
    assert_eq!(people.line().await, "nobody leads");
    let nobody: Value = serde_json::from_str(&machines.line().await).unwrap();
    assert_eq!(nobody, json!({ "name": "a", "leader": null }));

    let args = [
        "elect",
        "a",
        "--value",
        "host-7:8080",
        "--",
        "sh",
        "-c",
        PAIR,
    ];
    let mut leader = Puppet::spawn(&program(&etcd.endpoint(), &args));
    let family = Family::of(&mut leader).await;
    let key = keys(&client, "a/").await.remove(0);
    let session = session(client.clone(), 60).await;
    let seen = Election::new(&session, "a").unwrap();
    let seen = seen.leader().await.unwrap().unwrap();
    assert_eq!((&*seen.value, &seen.key), (&b"host-7:8080"[..], &key));
    let line = people.line().await;
    assert_eq!(
        line,
        format!("host-7:8080 leads (token {}, key {key})", seen.token)
    );
    let shown: Value = serde_json::from_str(&machines.line().await).unwrap();
    let expected = json!({
        "key": key, "value": "host-7:8080", "token": seen.token.get(),
        "lease": format!("{:x}", seen.lease),
    });
    assert_eq!(shown, json!({ "name": "a", "leader": expected }));

    leader.process.term();
    assert_eq!(leader.process.exit().await.code(), Some(143));
    assert_eq!(people.line().await, "nobody leads");
    people.process.term();
    assert_eq!(people.process.exit().await.code(), Some(143));
    session.close().await.unwrap();
    soon_gone(&client, &family).await;
}

#[tokio::test]
async fn without_a_command_it_leads_until_a_signal_or_a_loss() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let elect = |args: &[&str]| Puppet::spawn(&program(&etcd.endpoint(), args));
    let mut leader = elect(&["elect", "a", "--value", "x"]);
    let line = leader.line().await;
    assert!(line.starts_with("leading a as x (token "), "{line}");
    let mut next = elect(&["elect", "a", "--value", "y", "--json"]);
    leader.process.term();
    assert_eq!(leader.process.exit().await.code(), Some(0));
    let shown: Value = serde_json::from_str(&next.line().await).unwrap();
    let key = keys(&client, "a/").await.remove(0);
    assert_eq!(
        (&shown["name"], &shown["value"], &shown["key"]),
        (&json!("a"), &json!("y"), &json!(key))
    );
    client.kv_client().delete(key, None).await.unwrap();
    assert_eq!(next.process.exit().await.code(), Some(123));
    soon_nothing(&client).await;
}
