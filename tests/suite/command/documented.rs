//! What the guide says of the command: its very text, run by a shell.

use std::path::Path;
use std::process::{Command, Output};

use etcd_lock::{Lost, Session};

use super::tool::{code, finish, stdout};
use crate::operating::{GUIDE, commands};
use crate::support::{Etcd, mutex, soon_nothing, waiter};

/// Runs commands of the guide, with a variable set.
async fn run(etcd: &Etcd, comment: &str, (variable, value): (&str, &str)) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_etcd-lock"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", commands(comment)])
        .env("PATH", path)
        .env("ETCDCTL_ENDPOINTS", etcd.endpoint())
        .env(variable, value);
    finish(shell).await
}

async fn labelled(etcd: &Etcd, label: &str) -> Session {
    let session = Session::builder(etcd.client().await).label(label);
    session.open().await.unwrap()
}

#[tokio::test]
async fn a_job_runs_unless_it_runs_already() {
    let etcd = Etcd::start().await;
    let job = ("JOB", "echo $ETCD_LOCK_TOKEN; exit 3");
    let ran = run(&etcd, "run a job unless it runs already", job).await;
    assert_eq!(code(&ran), 3, "{ran:?}");
    assert!(stdout(&ran).trim_end().parse::<u64>().is_ok(), "{ran:?}");
    let other = labelled(&etcd, "web-1").await;
    let guard = mutex(&other, "jobs/nightly").lock().await.unwrap();
    let ran = run(&etcd, "run a job unless it runs already", job).await;
    assert_eq!((code(&ran), stdout(&ran)), (124, ""));
    drop(guard);
    other.close().await.unwrap();
    soon_nothing(&etcd.client().await).await;
}

/// What of a line of the table does not differ from time to time.
fn kept(line: &str) -> (usize, &str, String) {
    let words: Vec<_> = line.split_whitespace().collect();
    let first = words.first().copied().unwrap_or_default();
    (words.len(), first, words.iter().skip(5).copied().collect())
}

#[tokio::test]
async fn the_line_is_seen_as_shown() {
    let etcd = Etcd::start().await;
    let one = labelled(&etcd, "web-1 pid 811").await;
    let two = labelled(&etcd, "web-2 pid 90").await;
    let _guard = mutex(&one, "jobs/nightly").lock().await.unwrap();
    let _waiting = waiter(&mutex(&two, "jobs/nightly")).await;
    let seen = run(&etcd, "see the line from a shell", ("X", "")).await;
    let (_, shown) = GUIDE.split_once("```text\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    let shown: Vec<_> = shown.lines().map(kept).collect();
    let seen: Vec<_> = stdout(&seen).lines().map(kept).collect();
    assert_eq!(seen, shown);
}

#[tokio::test]
async fn a_hold_is_broken_by_its_token() {
    let etcd = Etcd::start().await;
    let ours = labelled(&etcd, "web-1").await;
    let guard = mutex(&ours, "jobs/nightly").lock().await.unwrap();
    let token = guard.token().to_string();
    let broken = run(&etcd, "break a hold from a shell", ("TOKEN", &token)).await;
    assert_eq!(code(&broken), 0, "{broken:?}");
    assert_eq!(guard.lost().await, Lost::Broken);
    let again = run(&etcd, "break a hold from a shell", ("TOKEN", &token)).await;
    assert_eq!(code(&again), 124, "{again:?}");
}
