//! The terminal: CMD has it while it runs in a process group of its own, as under a shell.

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};
use std::io;

/// A terminal that was ours when CMD was started.
pub(crate) struct Terminal {
    /// Our own group.
    ours: Pid,
}

impl Terminal {
    /// If it is ours to give. With the output going elsewhere, as to a pager that reads the
    /// terminal as well, it is left where it is.
    pub(crate) fn ours() -> Option<Self> {
        let whole = is_read() && isatty(io::stdout());
        (whole && in_front()).then(|| Self { ours: getpgrp() })
    }

    pub(crate) fn take_back(&self) {
        give_to(self.ours);
    }

    /// CMD was stopped at the terminal: stops with it, so that the shell has its turn, and gives
    /// the terminal to it again if we are in front when we go on.
    pub(crate) fn stop_with(&self, group: Pid) {
        self.take_back();
        kill_current_process_group(Signal::TSTP).ok();
        if in_front() {
            give_to(group);
        }
    }
}

/// Whether CMD's stdin is a terminal.
pub(crate) fn is_read() -> bool {
    isatty(io::stdin())
}

fn in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|front| front == getpgrp())
}

/// Gives the terminal to a group, from the background, too: blocked, SIGTTOU does not stop us.
pub(crate) fn give_to(group: Pid) {
    let mut background = SigSet::empty();
    background.add(Blocked::SIGTTOU);
    let before = background.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    tcsetpgrp(io::stdin(), group).ok();
    if let Ok(before) = before {
        before.thread_set_mask().ok();
    }
}
