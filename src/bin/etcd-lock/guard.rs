//! The guard: a process of its own between the command and CMD, so that CMD never outlives the
//! lock. It kills CMD's whole group when the time runs out for which the lock is known to be held
//! (the command may stand still), and when the command is gone (it may have crashed).
//!
//! It does not talk to etcd and holds nothing but the group, to be there when all else fails.

use crate::clock::Uptime;
use crate::exit::Failure;
use crate::group::{self, Change, Group};
use crate::stage;
use crate::wire::{Order, Report, receive_file};
use crate::{signals, this_program};
use rustix::process::{Pid, Signal, getpid};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// The hidden subcommand by which the command starts it.
pub(crate) const WORD: &str = "__guard";

/// How often it looks whether the group is gone: some of its processes may have parents that do
/// not tell.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// What the command tells it at its start.
pub(crate) struct Orders {
    pub(crate) grace: Duration,
    pub(crate) terminal: bool,
    pub(crate) command: Vec<OsString>,
}

impl Orders {
    pub(crate) fn as_args(&self) -> Vec<OsString> {
        let mut args = vec![
            WORD.into(),
            self.grace.as_millis().to_string().into(),
            u8::from(self.terminal).to_string().into(),
        ];
        args.extend_from_slice(&self.command);
        args
    }

    fn from_args(args: &[OsString]) -> Option<Self> {
        let [grace, terminal, command @ ..] = args else {
            return None;
        };
        Some(Self {
            grace: Duration::from_millis(grace.to_str()?.parse().ok()?),
            terminal: terminal == "1",
            command: command.to_vec(),
        })
    }
}

pub(crate) fn main(args: &[OsString]) -> Result<(), Failure> {
    let stranger = || Failure::failed("a guard is started by `etcd-lock run` only");
    let orders = Orders::from_args(args).ok_or_else(stranger)?;
    // Started as `/proc/self/exe`, it would show up as `exe`.
    #[cfg(target_os = "linux")]
    rustix::thread::set_name(c"etcd-lock").ok();
    group::adopt_orphans();
    let socket = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive_file(&socket).map_err(|_| stranger())?;
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // On this very thread: CMD dies with the *thread* that started it.
    runtime.block_on(guard(socket, stdin, orders))?;
    Ok(())
}

async fn guard(socket: StdStream, stdin: OwnedFd, orders: Orders) -> io::Result<()> {
    signals::be_deaf()?;
    let mut changed = signal(SignalKind::child())?;
    let (read, reports) = UnixStream::from_std(socket)?.into_split();
    let mut words = BufReader::new(read).lines();
    let Some(Order::Until(until)) = next(&mut words).await else {
        return Ok(());
    };
    let until = Uptime(until);
    if until.has_passed() {
        return Ok(());
    }
    let child = start(stdin, &orders)?;
    let mut guarded = Guarded {
        child,
        group: Group(child),
        grace: orders.grace,
        stage: Stage::Held(until),
        ended: None,
        reports,
    };
    guarded
        .report(Report::Started(child.as_raw_nonzero().get()))
        .await;
    let mut look = SHORTEST_LOOK;
    loop {
        let is_waiting = guarded.ended.is_some() || matches!(guarded.stage, Stage::Killed);
        tokio::select! {
            biased;
            // First: if this process stood still meanwhile, a renewal may be waiting to be heard of.
            order = next(&mut words), if !matches!(guarded.stage, Stage::Killed) => {
                guarded.obey(order);
            }
            () = guarded.stage.over() => guarded.go_on(),
            _ = changed.recv() => guarded.reap().await,
            () = sleep(look), if is_waiting => look = (look * 2).min(LONGEST_LOOK),
        }
        if is_waiting && guarded.is_over().await {
            return Ok(());
        }
    }
}

/// The next order; none if the command is gone, or out of its mind.
async fn next(words: &mut Lines<BufReader<OwnedReadHalf>>) -> Option<Order> {
    words.next_line().await.ok()??.parse().ok()
}

/// Starts CMD in a group of its own.
fn start(stdin: OwnedFd, orders: &Orders) -> io::Result<Pid> {
    let stage = stage::Orders {
        guard: getpid().as_raw_nonzero().get(),
        terminal: orders.terminal,
        command: orders.command.clone(),
    };
    let child = Command::new(this_program())
        .arg0("etcd-lock")
        .args(stage.as_args())
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()?;
    Ok(Pid::from_child(&child))
}

/// How far it has come with the group.
enum Stage {
    /// The lock is held until then.
    Held(Uptime),
    /// Asked to end, and to be killed then.
    Asked(Uptime),
    Killed,
}

impl Stage {
    /// Waits until it is time for the next.
    async fn over(&self) {
        match self {
            Self::Held(at) | Self::Asked(at) => at.passed().await,
            Self::Killed => std::future::pending().await,
        }
    }
}

struct Guarded {
    child: Pid,
    group: Group,
    grace: Duration,
    stage: Stage,
    /// The exit code of CMD itself.
    ended: Option<u8>,
    reports: OwnedWriteHalf,
}

impl Guarded {
    fn obey(&mut self, order: Option<Order>) {
        match (order, &self.stage) {
            // What was lost stays lost.
            (Some(Order::Until(until)), Stage::Held(_)) => self.stage = Stage::Held(Uptime(until)),
            (Some(Order::Until(_)), _) => {}
            (Some(Order::Signal(signal)), _) => match Signal::from_named_raw(signal) {
                Some(signal) if self.lives() => {
                    self.group.signal(signal);
                    // What stands still would not hear it.
                    self.group.signal(Signal::CONT);
                }
                Some(_) | None => {}
            },
            (Some(Order::Kill) | None, _) => self.kill(),
        }
    }

    /// The time of the present stage is over.
    fn go_on(&mut self) {
        match self.stage {
            // It was so late that all of it is over.
            Stage::Held(at) if at.plus(self.grace).has_passed() => self.kill(),
            Stage::Held(at) => {
                if self.lives() {
                    self.group.term();
                }
                self.stage = Stage::Asked(at.plus(self.grace));
            }
            Stage::Asked(_) | Stage::Killed => self.kill(),
        }
    }

    fn kill(&mut self) {
        if self.lives() {
            self.group.kill();
        }
        self.stage = Stage::Killed;
    }

    /// Whether anything of the group is left. If not, its number may be another's by now.
    fn lives(&self) -> bool {
        self.ended.is_none() || self.group.lives()
    }

    /// Looks whether the group is gone, CMD with it; and tells.
    async fn is_over(&mut self) -> bool {
        self.reap().await;
        let lives = self.lives();
        let lives = match self.stage {
            Stage::Held(_) => lives,
            Stage::Asked(_) if lives => true,
            Stage::Asked(_) | Stage::Killed => {
                if lives {
                    self.group.kill();
                }
                // What has left the group has done so under a lock that is lost.
                group::kill_children() || lives
            }
        };
        match (self.ended, &self.stage) {
            (None, _) => return false,
            (Some(_), _) if lives => return false,
            (Some(code), Stage::Held(_)) => self.report(Report::Ended(code)).await,
            (Some(code), _) => self.report(Report::Stricken(code)).await,
        }
        true
    }

    async fn reap(&mut self) {
        for change in group::changes() {
            match change {
                Change::Ended(pid, code) if pid == self.child => self.ended = Some(code),
                Change::Stopped(pid) if pid == self.child => {
                    self.report(Report::Stopped).await;
                }
                Change::Ended(..) | Change::Stopped(_) => {}
            }
        }
    }

    /// The command may be gone, and then nobody is left to tell.
    async fn report(&mut self, report: Report) {
        let line = report.to_string();
        self.reports.write_all(line.as_bytes()).await.ok();
    }
}
