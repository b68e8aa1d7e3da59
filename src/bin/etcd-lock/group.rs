//! Process groups, and what becomes of their processes.

use crate::exit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, wait,
};

/// The process group that CMD was started in: everything it has started, unless that left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(pub(crate) Pid);

impl Group {
    /// Whatever cannot be signalled is gone, or another user's, and then nothing helps.
    pub(crate) fn signal(self, signal: Signal) {
        kill_process_group(self.0, signal).ok();
    }

    /// Asks it to end, also if it stands still.
    pub(crate) fn term(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Whether any process of it still runs, or could.
    pub(crate) fn lives(self) -> bool {
        match test_kill_process_group(self.0) {
            Err(Errno::SRCH) => false,
            Ok(()) | Err(_) => runs(self.0).unwrap_or(true),
        }
    }
}

/// Whether more than zombies are left of a group. Those may wait for ever for a parent outside of
/// it, and do no harm meanwhile.
fn runs(group: Pid) -> Option<bool> {
    let group = group.as_raw_nonzero().to_string();
    let mut seen = false;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else {
            continue;
        };
        seen = true;
        // `PID (NAME) STATE PARENT GROUP …`, and a name may have anything in it.
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut rest = rest.split(' ');
        let (state, of) = (rest.next(), rest.nth(1));
        if of == Some(&group) && !matches!(state, Some("Z" | "X" | "x")) {
            return Some(true);
        }
    }
    seen.then_some(false)
}

/// Kills the children of this very process, which on Linux is where those end up whose own parent
/// has ended: what has left the group as well. To be repeated until it finds none.
pub(crate) fn kill_children() -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    let mut found = false;
    for thread in threads.flatten() {
        let children = std::fs::read_to_string(thread.path().join("children"));
        for child in children.unwrap_or_default().split_whitespace() {
            if let Some(pid) = child.parse().ok().and_then(Pid::from_raw) {
                found |= rustix::process::kill_process(pid, Signal::KILL).is_ok();
            }
        }
    }
    found
}

/// What became of a child.
pub(crate) enum Change {
    /// Its exit code, as a shell would give it.
    Ended(Pid, u8),
    Stopped(Pid),
}

/// What has become of children since the last call. Takes those of whoever ended first, too.
pub(crate) fn changes() -> impl Iterator<Item = Change> {
    std::iter::from_fn(|| {
        loop {
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            let (pid, status) = match wait(options) {
                Ok(changed) => changed?,
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            if status.stopped() {
                return Some(Change::Stopped(pid));
            }
            if let Some(signal) = status.terminating_signal() {
                return Some(Change::Ended(pid, exit::of_signal(signal)));
            }
            if let Some(code) = status.exit_status() {
                return Some(Change::Ended(pid, u8::try_from(code).unwrap_or(u8::MAX)));
            }
        }
    })
}

/// Makes this process the parent of whatever its descendants leave behind, to see it end.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
}
