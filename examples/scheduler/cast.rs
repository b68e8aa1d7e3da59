//! The schedulers as child processes: started, heard, signalled, and never left behind.

use super::{Result, TTL};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, PipeWriter};
use std::process::Stdio;
use std::time::Duration;
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
    pub(crate) who: String,
    pub(crate) verb: String,
    pub(crate) what: String,
    pub(crate) at: Instant,
}

impl Said {
    fn of(line: &str) -> Option<Self> {
        let (who, line) = line.split_once(' ')?;
        let (verb, what) = line.split_once(' ')?;
        Some(Self {
            who: who.to_owned(),
            verb: verb.to_owned(),
            what: what.to_owned(),
            at: Instant::now(),
        })
    }
}

impl Cast {
    /// Starts this program once more for every scheduler.
    pub(crate) fn start(lock: &str, store: &str) -> Result<Self> {
        // All of them speak into one pipe, which keeps what they say in order.
        let (ear, mouth) = std::io::pipe()?;
        let actors = ["A", "B", "C"].map(|name| Actor::start(name, lock, store, &mouth));
        let actors = actors.into_iter().collect::<Result<_>>()?;
        let (tell, heard) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(ear).lines().map_while(std::io::Result::ok);
            for said in lines.filter_map(|line| Said::of(&line)) {
                tell.send(said).ok();
            }
        });
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
    fn start(name: &'static str, lock: &str, store: &str, mouth: &PipeWriter) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([name, lock, store])
            .stdin(Stdio::piped())
            .stdout(mouth.try_clone()?)
            // A group of its own: Ctrl-C is for us, who then let it leave in good order. And should
            // we be killed while it stands still, the kernel ends it, as its group is an orphan.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
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
