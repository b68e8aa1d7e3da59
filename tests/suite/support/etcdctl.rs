//! etcd's own command line client, which takes the same locks as we do.

use std::process::{Command, Output, Stdio};

use super::process::{configures_etcd, program};
use super::puppet::Puppet;

/// Runs `etcdctl --endpoints=… args` to its end.
pub async fn etcdctl(endpoints: &str, args: &[&str]) -> Output {
    let mut command = tokio::process::Command::from(command(endpoints, args));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("etcdctl starts")
}

/// Starts `etcdctl lock NAME`; its first line is the key, said once it holds the lock. SIGINT or SIGTERM releases.
pub fn etcdctl_lock(endpoints: &str, name: &str, ttl: u32) -> Puppet {
    Puppet::spawn(&command(
        endpoints,
        &["lock", &format!("--ttl={ttl}"), name],
    ))
}

/// Starts `etcdctl elect NAME VALUE`; it says its key and its value once it leads.
pub fn etcdctl_elect(endpoints: &str, name: &str, value: &str) -> Puppet {
    Puppet::spawn(&command(endpoints, &["elect", name, value]))
}

/// Starts `etcdctl elect --listen NAME`, which says key and value of each leader.
pub fn etcdctl_observe(endpoints: &str, name: &str) -> Puppet {
    Puppet::spawn(&command(endpoints, &["elect", "--listen", name]))
}

fn command(endpoints: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program("ETCDCTL_BIN", "etcdctl"));
    for (key, _) in std::env::vars_os().filter(|(key, _)| configures_etcd(key)) {
        command.env_remove(key);
    }
    command
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={endpoints}"))
        .args(args);
    command
}
