//! What `leader`, `cron` and `patterns` show themselves with: this very program as several child processes.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// What does not come within this, does not come.
const SOON: Duration = Duration::from_secs(10);

const IS_CHILD: &str = "ETCD_LOCK_EXAMPLE_CHILD";

/// Child processes; killed when dropped.
#[derive(Default)]
pub(crate) struct Children {
    /// With the pipe whose end tells them that we are gone.
    running: BTreeMap<u32, (Child, Option<ChildStdin>)>,
    said: Said,
}

struct Said(
    mpsc::UnboundedSender<(u32, String)>,
    mpsc::UnboundedReceiver<(u32, String)>,
);

impl Default for Said {
    fn default() -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        Self(send, receive)
    }
}

impl Children {
    /// Starts one and gives its process id.
    pub(crate) fn start(&mut self, args: &[&str]) -> Result<u32> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).env(IS_CHILD, "yes").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        let (pid, said) = (child.id().ok_or("it has ended")?, self.said.0.clone());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                said.send((pid, line)).ok();
            }
        });
        let pipe = child.stdin.take();
        self.running.insert(pid, (child, pipe));
        Ok(pid)
    }

    /// The next line that any of them says, and whose it is.
    pub(crate) async fn next_line(&mut self) -> Result<(u32, String)> {
        let next = timeout(SOON, self.said.1.recv()).await;
        next.ok()
            .flatten()
            .ok_or_else(|| "nobody says anything".into())
    }

    pub(crate) fn signal(&self, pid: u32, signal: Signal) -> Result<()> {
        if !self.running.contains_key(&pid) {
            return Err("no such child".into());
        }
        let pid = Pid::from_raw(pid.try_into()?).ok_or("no process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the end of one; true if it ended well.
    pub(crate) async fn ended_well(&mut self, pid: u32) -> Result<bool> {
        let (mut child, _pipe) = self.running.remove(&pid).ok_or("no such child")?;
        Ok(timeout(SOON, child.wait()).await??.success())
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.running.keys().copied().collect()
    }
}

/// Waits until this process is told to end, by Ctrl-C or SIGTERM, or because its parent is gone.
pub(crate) async fn told_to_end() {
    let (Ok(mut ctrl_c), Ok(mut sigterm)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    tokio::select! {
        _ = ctrl_c.recv() => {}
        _ = sigterm.recv() => {}
        () = orphaned() => {}
    }
}

/// Waits for the end of the pipe from the parent, if this is a child.
async fn orphaned() {
    if std::env::var_os(IS_CHILD).is_none() {
        return std::future::pending().await;
    }
    let (orphan, orphaned) = oneshot::channel::<()>();
    // A thread of its own: the runtime would wait for one of its.
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        drop(orphan);
    });
    orphaned.await.ok();
}
