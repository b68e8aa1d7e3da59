//! - `ls` lists locks, ours and others', however many there are, and nothing else.
//! - `queue` shows the line in order, with what is known of each.
//! - `break` ends the hold that was meant and no other.

use etcd_client::{PutOptions, Txn, TxnOp};
use etcd_lock::{Lost, Session};
use serde_json::{Value, json};

use super::tool::{code, complaint, output, stdout};
use crate::support::{Etcd, etcdctl_elect, mutex, session, soon_nothing, waiter};

fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn labelled(etcd: &Etcd, label: &str) -> Session {
    let session = Session::builder(etcd.client().await).label(label);
    session.open().await.unwrap()
}

#[tokio::test]
async fn locks_are_listed_and_other_keys_are_not() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let ours = labelled(&etcd, "web-1").await;
    let nightly = mutex(&ours, "jobs/nightly").lock().await.unwrap();
    let nested = mutex(&ours, "jobs/nightly/sub").lock().await.unwrap();
    let _first = waiter(&mutex(&ours, "jobs/nightly")).await;
    let _second = waiter(&mutex(&ours, "jobs/nightly")).await;
    let mut theirs = etcdctl_elect(&etcd.endpoint(), "other", "host-7:8080");
    theirs.line().await;
    for key in ["jobs/config/a", "plain", "jobs/nightly/by hand"] {
        client.kv_client().put(key, "x", None).await.unwrap();
    }
    let all = output(&etcd.endpoint(), &["ls"]).await;
    assert_eq!(code(&all), 0, "{all:?}");
    let lines: Vec<_> = stdout(&all).lines().collect();
    let first = format!(
        "jobs/nightly: held by web-1 (token {}), 3 wait",
        nightly.token()
    );
    let second = format!(
        "jobs/nightly/sub: held by web-1 (token {}), nobody waits",
        nested.token()
    );
    assert_eq!(lines[..2], [first, second]);
    assert!(
        lines[2].starts_with("other: held by host-7:8080 (token "),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 3, "{lines:?}");
    let some = output(&etcd.endpoint(), &["ls", "jobs/nightly/", "--json"]).await;
    let expected = json!({
        "name": "jobs/nightly/sub", "holder": "web-1",
        "token": nested.token().get(), "waiters": 0,
    });
    assert_eq!(objects(stdout(&some)), [expected]);
    let none = output(&etcd.endpoint(), &["ls", "nothing/"]).await;
    assert_eq!((code(&none), stdout(&none)), (0, ""));
}

#[tokio::test]
async fn more_locks_than_fit_into_one_answer_are_listed() {
    const LOCKS: usize = 4100;
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 300).await;
    let lease = session.lease_id();
    let names: Vec<_> = (0..LOCKS).map(|n| format!("many/{n:06}")).collect();
    for names in names.chunks(100) {
        let options = PutOptions::new().with_lease(lease);
        let puts = names
            .iter()
            .map(|name| TxnOp::put(format!("{name}/{lease:x}-0"), "me", Some(options.clone())));
        let puts: Vec<_> = puts.collect();
        client
            .kv_client()
            .txn(Txn::new().and_then(puts))
            .await
            .unwrap();
    }
    let args = ["--command-timeout", "100s", "ls", "--json"];
    let listed = output(&etcd.endpoint(), &args).await;
    let listed = objects(stdout(&listed));
    let listed: Vec<_> = listed
        .iter()
        .map(|lock| lock["name"].as_str().unwrap())
        .collect();
    assert_eq!(listed, names);
}

#[tokio::test]
async fn the_queue_is_shown_in_order_for_people_and_machines() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let (one, two) = (
        labelled(&etcd, "web-1").await,
        labelled(&etcd, "web 2").await,
    );
    let guard = mutex(&one, "a").lock().await.unwrap();
    let _waiting = waiter(&mutex(&two, "a")).await;
    client
        .kv_client()
        .put("a/by hand", "until\tnoon", None)
        .await
        .unwrap();
    let line = mutex(&one, "a").queue().await.unwrap();

    let machines = output(&etcd.endpoint(), &["queue", "--json", "a"]).await;
    let shown = objects(stdout(&machines));
    assert_eq!(shown.len(), 3, "{shown:?}");
    for (shown, waiter) in shown.iter().zip(&line) {
        assert_eq!(shown["position"], waiter.position);
        assert_eq!(shown["key"], waiter.key);
        assert_eq!(shown["label"], waiter.label);
        assert_eq!(shown["token"], waiter.token.get());
        assert_eq!(shown["lease"], format!("{:x}", waiter.lease));
        assert_eq!(shown["foreign"], waiter.foreign);
        assert_eq!(shown["since"].is_string(), waiter.since.is_some());
        let left = shown["ttl_left"].as_u64();
        assert_eq!(left.is_some(), waiter.lease != 0, "{shown}");
        assert!(left.is_none_or(|left| left <= 10), "{shown}");
    }
    assert_eq!(shown[2]["foreign"], true);

    let people = output(&etcd.endpoint(), &["queue", "a"]).await;
    let lines: Vec<_> = stdout(&people).lines().collect();
    let ends = ["WHO", "  web-1", "  web 2", "  until\u{fffd}noon (foreign)"];
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (line, end) in lines.iter().zip(ends) {
        assert!(line.ends_with(end), "{lines:#?}");
    }
    let holder: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(holder[..2], ["holds", &guard.token().to_string()]);
    let empty = output(&etcd.endpoint(), &["queue", "b"]).await;
    assert_eq!((code(&empty), stdout(&empty)), (0, "nobody holds b\n"));
}

#[tokio::test]
async fn a_hold_is_broken_if_it_is_the_one_that_was_meant() {
    let etcd = Etcd::start().await;
    let ours = labelled(&etcd, "web-1").await;
    let guard = mutex(&ours, "a").lock().await.unwrap();
    let token = guard.token();
    let args = |token: String| ["break", "a", "--if-token", &token].map(str::to_owned);
    let run = async |token: String| {
        let args = args(token);
        output(&etcd.endpoint(), &args.each_ref().map(|arg| &**arg)).await
    };
    let other = run((token.get() + 1).to_string()).await;
    assert_eq!(code(&other), 124);
    let said = complaint(&other);
    assert!(said.contains("no hold of \"a\""), "{said}");
    assert!(guard.is_held());
    let done = run(token.to_string()).await;
    assert_eq!(code(&done), 0, "{done:?}");
    let expected = format!("broken: a was held by web-1 (token {token})\n");
    assert_eq!(stdout(&done), expected);
    assert_eq!(guard.lost().await, Lost::Broken);
    assert_eq!(code(&run(token.to_string()).await), 124);
    ours.close().await.unwrap();
    soon_nothing(&etcd.client().await).await;
}
