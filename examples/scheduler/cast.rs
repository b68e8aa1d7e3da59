//! The schedulers as child processes: started, heard, signalled, and never left behind.

use super::{Result, TTL};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// All schedulers.
pub(crate) struct Cast {
    actors: Vec<Actor>,
    heard: mpsc::UnboundedReceiver<Said>,
}

struct Actor {
    name: &'static str,
    child: Child,
    /// It leaves when this is closed: by us, or because we are no more.
    stdin: Option<ChildStdin>,
}

/// What a scheduler said (see `say` there), and when we heard it.
pub(crate) struct Said {
    pub(crate) who: &'static str,
    pub(crate) line: String,
    pub(crate) at: Instant,
}

impl Said {
    /// Whether the line begins with these words.
    pub(crate) fn begins(&self, words: &str) -> bool {
        let rest = self.line.strip_prefix(words);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    pub(crate) fn verb(&self) -> &str {
        self.split().0
    }

    /// What comes after the verb.
    pub(crate) fn what(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        self.line.split_once(' ').unwrap_or((&self.line, ""))
    }
}

impl Cast {
    /// Starts this program once more for every scheduler.
    pub(crate) fn start(lock: &str, store: &str) -> Result<Self> {
        let (tell, heard) = mpsc::unbounded_channel();
        let actors = ["A", "B", "C"].map(|name| Actor::start(name, lock, store, tell.clone()));
        let actors = actors.into_iter().collect::<Result<_>>()?;
        Ok(Self { actors, heard })
    }

    pub(crate) async fn hear(&mut self) -> Result<Said> {
        Ok(self.heard.recv().await.ok_or("every scheduler has ended")?)
    }

    pub(crate) fn signal(&self, who: &str, signal: Signal) -> Result<()> {
        let mut named = self.actors.iter().filter(|actor| actor.name == who);
        named.try_for_each(|actor| actor.signal(signal))
    }

    pub(crate) fn tell_to_leave(&mut self, who: &str) {
        for actor in self.actors.iter_mut().filter(|actor| actor.name == who) {
            actor.stdin = None;
        }
    }

    /// Ends all that still run: in good order where that can be, so that they leave no keys.
    pub(crate) async fn end(mut self) {
        for actor in &mut self.actors {
            actor.stdin = None;
            // One that stands still cannot leave.
            actor.signal(Signal::CONT).ok();
        }
        let limit = Instant::now() + TTL + Duration::from_secs(2);
        for mut actor in self.actors {
            let left = limit.saturating_duration_since(Instant::now());
            if timeout(left, actor.child.wait()).await.is_err() {
                actor.child.kill().await.ok();
            }
        }
    }
}

impl Actor {
    fn start(
        name: &'static str,
        lock: &str,
        store: &str,
        tell: mpsc::UnboundedSender<Said>,
    ) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([name, lock, store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own: Ctrl-C is for us, who then let it leave in good order. And should
            // we be killed while it stands still, the kernel ends it, as its group is an orphan.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("stdout is a pipe")?;
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let (who, at) = (name, Instant::now());
                tell.send(Said { who, line, at }).ok();
            }
        });
        Ok(Self { name, child, stdin })
    }

    /// Sends a signal, unless it has ended.
    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().and_then(|id| id.try_into().ok());
        match id.and_then(Pid::from_raw) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Ok(()),
        }
    }
}
