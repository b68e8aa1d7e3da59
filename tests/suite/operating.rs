//! What the guide tells operators to do: its very commands, taken from its text and run by a shell.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use etcd_client::ConnectOptions;
use etcd_lock::Lost;
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::{Etcd, connect_with, etcdctl, keys, lost, mutex, session, waiter};

pub(crate) const GUIDE: &str = include_str!("../../src/guide/operating.md");

const SECOND: Duration = Duration::from_secs(1);

/// The commands of the guide that begin with this comment.
pub(crate) fn commands(comment: &str) -> &'static str {
    let begin = format!("```sh\n# {comment}\n");
    let (_, rest) = GUIDE.split_once(&begin).expect("the guide has it");
    rest.split_once("```").expect("it ends").0
}

/// Runs commands of the guide, with these variables set.
async fn run(etcd: &Etcd, comment: &str, variables: &[(&str, &str)]) -> Output {
    // `etcdutl` is beside etcdctl where there is one; before 3.6, etcdctl can do the same.
    let tools = r#"
        tool=${ETCDCTL_BIN:-$(command -v etcdctl)}
        etcdctl() { "$tool" "$@"; }
        etcdutl() { u=$(dirname "$tool")/etcdutl
            if [ -x "$u" ]; then "$u" "$@"; else etcdctl "$@"; fi; }"#;
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", &format!("{tools}\n{}", commands(comment))])
        .env("ETCDCTL_API", "3")
        .env("ETCDCTL_ENDPOINTS", etcd.endpoint())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(10 * SECOND, shell.output()).await;
    output.expect("it ends").expect("sh starts")
}

/// As `run`, for what must succeed; gives what it prints.
async fn must(etcd: &Etcd, comment: &str, variables: &[(&str, &str)]) -> String {
    let output = run(etcd, comment, variables).await;
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The values of a field in `--write-out=fields`, in order.
fn field<'a>(output: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("\"{name}\" : ");
    let lines = output.lines().filter_map(|line| line.strip_prefix(&begin));
    lines.map(|value| value.trim_matches('"')).collect()
}

#[tokio::test]
async fn the_line_is_seen_with_etcdctl() {
    let etcd = Etcd::start().await;
    let session = session(etcd.client().await, 10).await;
    let door = mutex(&session, "jobs/nightly");
    let guard = door.lock().await.unwrap();
    let _waiting = waiter(&door).await;
    let line = door.queue().await.unwrap();
    let seen = must(&etcd, "see the line", &[]).await;
    assert_eq!(field(&seen, "Key"), [guard.key(), &line[1].key]);
    for (value, waiter) in field(&seen, "Value").iter().zip(&line) {
        let since = value.strip_prefix(&*waiter.label).expect("the label first");
        assert!(
            since.starts_with(" since 2") && since.ends_with('Z'),
            "{value}"
        );
    }
    let tokens: Vec<_> = line.iter().map(|waiter| waiter.token.to_string()).collect();
    assert_eq!(field(&seen, "CreateRevision"), tokens);
}

#[tokio::test]
async fn a_hold_is_broken_only_if_it_is_the_one_that_was_meant() {
    let etcd = Etcd::start().await;
    let (ours, theirs) = (etcd.client().await, etcd.client().await);
    let (ours, theirs) = (session(ours, 60).await, session(theirs, 60).await);
    let door = mutex(&ours, "jobs/nightly");
    let guard = door.lock().await.unwrap();
    let next = waiter(&mutex(&theirs, "jobs/nightly")).await;
    let (key, token) = (guard.key(), guard.token());
    for other in [token.get() - 1, token.get() + 1] {
        let other = other.to_string();
        let said = must(&etcd, "break a hold", &[("KEY", key), ("TOKEN", &other)]).await;
        assert_eq!(said.lines().next(), Some("FAILURE"), "{said}");
    }
    assert_eq!(door.queue().await.unwrap()[0].key, key);
    assert!(guard.is_held());

    let token = token.to_string();
    let variables = [("KEY", key), ("TOKEN", &*token)];
    let said = must(&etcd, "break a hold", &variables).await;
    assert_eq!(said.lines().next(), Some("SUCCESS"), "{said}");
    let next = timeout(SECOND, next).await.expect("at once").unwrap();
    assert!(next.is_held() && next.token() > guard.token());
    let told = timeout(SECOND, guard.lost()).await;
    assert_eq!(told, Ok(Lost::KeyDeleted));
    // Again, as somebody in a hurry would.
    let said = must(&etcd, "break a hold", &variables).await;
    assert_eq!(said.lines().next(), Some("FAILURE"), "{said}");
    assert!(next.is_held());
}

#[tokio::test]
async fn a_session_is_ended_by_its_lease() {
    let etcd = Etcd::start().await;
    let (stuck, other) = (etcd.client().await, etcd.client().await);
    let (stuck, other) = (session(stuck, 60).await, session(other, 60).await);
    let held = mutex(&stuck, "a").lock().await.unwrap();
    let between = mutex(&other, "b").lock().await.unwrap();
    let waiting = waiter(&mutex(&stuck, "b")).await;
    let (_, number) = held.key().rsplit_once('/').unwrap();
    let (lease, _) = number.split_once('-').unwrap();
    must(&etcd, "end a session", &[("LEASE", lease)]).await;
    assert_eq!(keys(&etcd.client().await, "").await, [between.key()]);
    let told = timeout(SECOND, held.lost()).await;
    assert_eq!(told, Ok(Lost::LeaseGone));
    let told = timeout(SECOND, waiting).await.expect("within a second");
    assert_eq!(lost(told), Lost::LeaseGone);
    assert!(between.is_held());
}

#[tokio::test]
async fn a_command_runs_under_the_lock() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    let door = mutex(&session, "jobs/nightly");
    let maintenance = "echo \"$ETCD_LOCK_KEY\"; etcdctl get jobs/nightly/ --prefix --keys-only";
    // In a shell below the guide's: there it is the one on the PATH or none.
    let maintenance = maintenance.replace("etcdctl", "\"${ETCDCTL_BIN:-etcdctl}\"");
    let variables = [("MAINTENANCE", &*maintenance)];
    let said = must(&etcd, "hold it for a command", &variables).await;
    let said: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
    assert!(said[0].starts_with("jobs/nightly/"), "{said:?}");
    assert_eq!(said, [said[0], said[0]], "its key is the line");
    let guard = timeout(SECOND, door.lock()).await.expect("it is free");
    assert!(guard.unwrap().is_held());
}

#[tokio::test]
async fn the_role_for_locks_opens_its_locks_and_no_others() {
    let etcd = Etcd::start().await;
    let variables = [("PASSWORD", "a secret")];
    must(&etcd, "a role for locks", &variables).await;
    for args in [
        &["role", "add", "root"][..],
        &["user", "add", "root:root"],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        let done = etcdctl(&etcd.endpoint(), args).await;
        assert!(done.status.success(), "{done:?}");
    }
    let options = ConnectOptions::new().with_user("worker", "a secret");
    let client = connect_with(&[etcd.endpoint()], Some(options)).await;
    let session = session(client.unwrap(), 10).await;
    let door = mutex(&session, "locks/nightly");
    let guard = door.lock().await.unwrap();
    let next = waiter(&door).await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    let other = mutex(&session, "jobs/nightly").lock().await.unwrap_err();
    assert!(other.to_string().contains("permission denied"), "{other}");
    session.close().await.unwrap();
}

#[tokio::test]
async fn after_a_restore_with_a_bump_tokens_grow_on() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let members = client.clone().member_list().await.unwrap();
    let peer = members.members()[0].peer_urls()[0].clone();
    let path = |name: &str| etcd.dir().join(name).display().to_string();
    let (snapshot, data) = (path("snapshot"), path("data"));
    let saved = etcdctl(&etcd.endpoint(), &["snapshot", "save", &snapshot]).await;
    assert!(saved.status.success(), "{saved:?}");
    for _ in 0..100 {
        client.kv_client().put("other", "", None).await.unwrap();
    }
    let before = session(client.clone(), 60).await;
    let old = mutex(&before, "a").lock().await.unwrap().token();
    before.close().await.unwrap();

    etcd.kill();
    std::fs::remove_dir_all(&data).unwrap();
    let variables = [
        ("SNAPSHOT", &*snapshot),
        ("DATA", &data),
        ("MEMBER", etcd.name()),
        ("PEER", &peer),
    ];
    let restored = run(&etcd, "restore, and let tokens grow on", &variables).await;
    let help = etcdctl(&etcd.endpoint(), &["snapshot", "restore", "--help"]).await;
    if !String::from_utf8_lossy(&help.stdout).contains("--bump-revision") {
        // As the guide says of old tools: they cannot.
        let told = String::from_utf8_lossy(&restored.stderr);
        assert!(told.contains("unknown flag: --bump-revision"), "{told}");
        assert!(!restored.status.success() && !Path::new(&data).exists());
        return;
    }
    assert!(restored.status.success(), "{restored:?}");
    etcd.restart().await;
    let after = session(etcd.client().await, 10).await;
    let new = mutex(&after, "a").lock().await.unwrap();
    assert!(new.token() > old && new.is_held());
}
