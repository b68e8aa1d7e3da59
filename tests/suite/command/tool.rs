//! The program, and what it runs.

use std::process::{Command, Output, Stdio};

use etcd_client::Client;
use tokio::time::timeout;

use crate::support::{BOUND, Puppet, ensure, is_alive, soon, soon_nothing};

/// A child with a child of its own, which both end by TERM; says their process ids and its guard's.
pub(super) const PAIR: &str = "sleep 1000 & echo $$ $! $PPID; wait";

/// As `PAIR`, deaf to TERM and INT.
pub(super) const DEAF: &str =
    "trap '' TERM INT; sleep 1000 & echo $$ $! $PPID; wait; exec sleep 1000";

/// The program with these arguments; etcd is where the variable says.
pub(super) fn program(endpoint: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-lock"));
    command.env("ETCDCTL_ENDPOINTS", endpoint).args(args);
    command
}

/// Runs it to its end, with nothing on stdin.
pub(super) async fn output(endpoint: &str, args: &[&str]) -> Output {
    finish(program(endpoint, args)).await
}

pub(super) async fn finish(mut command: Command) -> Output {
    for (key, _) in std::env::vars_os() {
        let is_ours = |(set, _): (&std::ffi::OsStr, _)| set == key;
        let name = key.to_string_lossy();
        if name.starts_with("ETCD") && !command.get_envs().any(is_ours) {
            command.env_remove(&key);
        }
    }
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(2 * BOUND, command.output()).await;
    output.expect("it ends").expect("it starts")
}

/// Starts `etcd-lock run --ttl 3s NAME -- sh -c SCRIPT`.
pub(super) fn run(endpoint: &str, name: &str, script: &str) -> Puppet {
    let args = ["run", "--ttl", "3s", name, "--", "sh", "-c", script];
    Puppet::spawn(&program(endpoint, &args))
}

pub(super) fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

pub(super) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// What it has said of an error: one line.
#[track_caller]
pub(super) fn complaint(output: &Output) -> &str {
    let said = std::str::from_utf8(&output.stderr).unwrap();
    let line = said.strip_prefix("etcd-lock: ").expect(said);
    assert_eq!(said.lines().count(), 1, "{said}");
    line.trim_end()
}

/// The processes that `PAIR` and `DEAF` speak of: the child, its child, and the guard.
pub(super) struct Family {
    pub(super) child: i32,
    pub(super) grandchild: i32,
    pub(super) guard: i32,
}

impl Family {
    pub(super) async fn of(puppet: &mut Puppet) -> Self {
        let line = puppet.line().await;
        let pids: Vec<i32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
        let family = Self {
            child: pids[0],
            grandchild: pids[1],
            guard: pids[2],
        };
        assert_eq!(family.alive().len(), 2, "{line}");
        family
    }

    /// Which of child and grandchild are alive.
    pub(super) fn alive(&self) -> Vec<i32> {
        let both = [self.child, self.grandchild];
        both.into_iter().filter(|pid| is_alive(*pid)).collect()
    }

    pub(super) async fn soon_dead(&self) {
        soon("child and grandchild are dead", async || {
            ensure(self.alive().is_empty(), format!("{:?}", self.alive()))
        })
        .await;
    }
}

/// Waits until nothing is left of it in etcd, and no guard.
pub(super) async fn soon_gone(client: &Client, family: &Family) {
    family.soon_dead().await;
    soon("the guard is gone", async || {
        ensure(!is_alive(family.guard), "alive")
    })
    .await;
    soon_nothing(client).await;
}
