//! The last step before CMD: this process becomes it.

use crate::exit::{self, Failure};
use crate::terminal;
use rustix::process::{getpgrp, getppid};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The hidden subcommand by which the guard starts it.
pub(crate) const WORD: &str = "__stage";

/// What the guard tells it: its own process id, whether CMD is to have the terminal, and CMD.
pub(crate) struct Orders {
    pub(crate) guard: i32,
    pub(crate) terminal: bool,
    pub(crate) command: Vec<OsString>,
}

impl Orders {
    pub(crate) fn as_args(&self) -> Vec<OsString> {
        let mut args = vec![
            WORD.into(),
            self.guard.to_string().into(),
            u8::from(self.terminal).to_string().into(),
        ];
        args.extend_from_slice(&self.command);
        args
    }

    fn from_args(args: &[OsString]) -> Option<Self> {
        let [guard, terminal, command @ ..] = args else {
            return None;
        };
        Some(Self {
            guard: guard.to_str()?.parse().ok()?,
            terminal: terminal == "1",
            command: command.to_vec(),
        })
    }
}

/// Becomes CMD; returns only if that cannot be.
pub(crate) fn main(args: &[OsString]) -> Failure {
    let Some(orders) = Orders::from_args(args) else {
        return Failure::failed("a stage is started by `etcd-lock run` only");
    };
    if let Err(failure) = die_with(orders.guard) {
        return failure;
    }
    if orders.terminal {
        terminal::give_to(getpgrp());
    }
    let Some((program, args)) = orders.command.split_first() else {
        return Failure::failed("no command to run");
    };
    let error = Command::new(program)
        .args(args)
        .stdin(Stdio::inherit())
        .exec();
    let program = program.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => {
            let text = format!("cannot find {program:?}; is it installed, and on the PATH?");
            Failure::new(exit::NOT_FOUND, text)
        }
        _ => Failure::new(exit::CANNOT_RUN, format!("cannot run {program:?}: {error}")),
    }
}

/// Lets the kernel kill CMD as soon as its guard is gone, on Linux. That outlasts becoming CMD,
/// unless CMD runs as another user.
fn die_with(guard: i32) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return Err(Failure::failed(error));
        }
    }
    // It may have died before that, and then nobody will tell.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != guard) {
        return Err(Failure::failed(
            "the guard has ended before CMD was started",
        ));
    }
    Ok(())
}
