//! Running CMD under a hold: the command's side of it. The guard does the killing; if the guard
//! fails, this does.

use crate::clock::Uptime;
use crate::exit::Failure;
use crate::group::{self, Group};
use crate::guard;
use crate::print;
use crate::signals::Signals;
use crate::terminal::{self, Terminal};
use crate::this_program;
use crate::wire::{Order, Report, send_file};
use etcd_lock::{Hold, Lost};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

/// How often it looks for a renewal to tell the guard of; more often near the end.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// How long a guard may take to say that the group is gone, once it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be run, and how long it may take to end when the lock is lost.
pub(crate) struct Errand {
    pub(crate) command: Vec<OsString>,
    pub(crate) grace: Duration,
}

/// How CMD ended; nothing of its group is left.
pub(crate) enum Ended {
    /// By itself, with this code, and the lock was held all the time.
    Done(u8),
    /// The lock was lost before.
    Lost(Lost),
    /// Killed, as its guard was.
    Unguarded,
}

/// Runs CMD for as long as it takes or the hold lasts.
pub(crate) async fn supervise(
    hold: &Hold,
    errand: Errand,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    group::adopt_orphans();
    let terminal = Terminal::ours();
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    send_file(&ours, io::stdin())?;
    let orders = guard::Orders {
        grace: errand.grace,
        terminal: terminal.is_some(),
        command: errand.command,
    };
    // A group of its own: what stops or ends ours has to find the guard alive.
    let guard = Command::new(this_program())
        .arg0("etcd-lock")
        .args(orders.as_args())
        .env("ETCD_LOCK_NAME", hold.name())
        .env("ETCD_LOCK_KEY", hold.key())
        .env("ETCD_LOCK_TOKEN", hold.token().to_string())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .process_group(0)
        .spawn();
    let guard = guard.map_err(|error| Failure::failed(format!("cannot start a guard: {error}")))?;
    let mut supervised = Supervised {
        hold,
        grace: errand.grace,
        guard: Pid::from_child(&guard),
        group: None,
        terminal,
        orders: ours.try_clone()?,
        told: Uptime(0),
        lost: None,
        is_killed: false,
    };
    let reports = BufReader::new(UnixStream::from_std(ours)?).lines();
    let ended = supervised.run(reports, signals).await;
    if let Some(terminal) = &supervised.terminal {
        terminal.take_back();
    }
    Ok(ended)
}

struct Supervised<'a> {
    hold: &'a Hold,
    grace: Duration,
    guard: Pid,
    group: Option<Group>,
    terminal: Option<Terminal>,
    /// A second handle of the socket, which never waits: a guard that stands still must not make
    /// us stand still.
    orders: StdStream,
    /// Until when the guard knows it to be held.
    told: Uptime,
    lost: Option<Lost>,
    is_killed: bool,
}

impl Supervised<'_> {
    async fn run(
        &mut self,
        mut reports: Lines<BufReader<UnixStream>>,
        signals: &mut Signals,
    ) -> Ended {
        let mut pause = self.tell();
        let mut kill_at = None;
        loop {
            tokio::select! {
                biased;
                lost = self.hold.lost(), if self.lost.is_none() => {
                    self.lost = Some(lost);
                    kill_at = Some(self.after(lost));
                }
                () = passed(kill_at) => {
                    self.kill();
                    kill_at = Some(Uptime::now().plus(PATIENCE));
                }
                report = next(&mut reports) => match report {
                    Some(Report::Started(pid)) => self.group = Pid::from_raw(pid).map(Group),
                    Some(Report::Stopped) => self.stop(),
                    Some(Report::Ended(code)) => return self.ended(code),
                    Some(Report::Stricken(_)) => return Ended::Lost(self.lost.unwrap_or(Lost::Expired)),
                    None => return self.bury().await,
                },
                signal = signals.next() => self.order(Order::Signal(signal.as_raw())),
                () = sleep(pause), if self.lost.is_none() => pause = self.tell(),
            }
        }
    }

    /// Tells the guard of a renewal, if there was one. Gives the time until the next look.
    fn tell(&mut self) -> Duration {
        // First the time: should this process stand still between two lines, that makes it early.
        let now = Uptime::now();
        let Some(until) = self.hold.certain_until() else {
            return LONGEST_PAUSE;
        };
        let left = until.saturating_duration_since(Instant::now());
        let until = now.plus(left);
        // The sum differs by the time that these lines take; a renewal makes for more.
        if until > self.told.plus(Duration::from_millis(1)) {
            self.told = until;
            self.order(Order::Until(until.0));
        }
        (left / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    fn order(&mut self, order: Order) {
        // One write, or none: there is room for thousands, as long as the guard lives.
        self.orders.write_all(order.to_string().as_bytes()).ok();
    }

    /// Sees to the end of the group after a loss; gives the time at which to look after it.
    fn after(&mut self, lost: Lost) -> Uptime {
        if let Lost::Expired = lost {
            // The guard knows that time and asks it to end; etcd gives nothing away before this.
            return self.told.plus(self.grace);
        }
        // Somebody else may hold already.
        self.kill();
        Uptime::now().plus(PATIENCE)
    }

    /// Kills the group, past a guard that may stand still. If the group is gone and the guard has
    /// not said so when this is called again, kills the guard.
    fn kill(&mut self) {
        self.order(Order::Kill);
        match self.group {
            Some(group) if group.lives() => group.kill(),
            _ if self.is_killed => {
                kill_process(self.guard, Signal::KILL).ok();
            }
            _ => {}
        }
        self.is_killed = true;
    }

    fn stop(&mut self) {
        match (&self.terminal, self.group) {
            (Some(terminal), Some(group)) => {
                terminal.stop_with(group.0);
                self.order(Order::Signal(Signal::CONT.as_raw()));
            }
            _ if terminal::is_read() => {
                print::say(
                    "the command was stopped; it can read the terminal only if it also writes to it",
                );
            }
            _ => {}
        }
    }

    fn ended(&self, code: u8) -> Ended {
        match self.lost {
            Some(lost) => Ended::Lost(lost),
            None if self.hold.is_held() => Ended::Done(code),
            None => Ended::Lost(Lost::Expired),
        }
    }

    /// The guard is gone without a word: does its work.
    async fn bury(&mut self) -> Ended {
        loop {
            if let Some(group) = self.group
                && group.lives()
            {
                group.kill();
            }
            let found = group::kill_children();
            group::changes().for_each(drop);
            if !found && self.group.is_none_or(|group| !group.lives()) {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        match self.lost {
            Some(lost) => Ended::Lost(lost),
            None if self.hold.is_held() => Ended::Unguarded,
            None => Ended::Lost(Lost::Expired),
        }
    }
}

/// The next report; none if the guard is gone.
async fn next(reports: &mut Lines<BufReader<UnixStream>>) -> Option<Report> {
    reports.next_line().await.ok()??.parse().ok()
}

async fn passed(at: Option<Uptime>) {
    match at {
        Some(at) => at.passed().await,
        None => std::future::pending().await,
    }
}
