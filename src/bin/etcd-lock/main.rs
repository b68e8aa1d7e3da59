//! The command `etcd-lock`: commands under a lock, and a look at who holds and who waits.
//!
//! `run` consists of three processes: this command, which talks to etcd; a guard between it and
//! CMD, which kills what CMD has started when the time of the lock or the command is over; and CMD.

#[cfg(not(unix))]
compile_error!(
    "the command needs process groups, which only Unix has; leave the feature `cli` away"
);

mod acquire;
mod args;
mod breaking;
mod clock;
mod connect;
mod duration;
mod exit;
mod group;
mod guard;
mod ls;
mod observe;
mod print;
mod queue;
mod run;
mod signals;
mod stage;
mod supervise;
mod terminal;
mod wire;

use args::{Cli, Command};
use clap::Parser;
use exit::Failure;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// This very program: on Linux even if its file was replaced since it was started.
fn this_program() -> PathBuf {
    let program = if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    };
    program.unwrap_or_else(|_| "etcd-lock".into())
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let ended = match args.get(1).and_then(|word| word.to_str()) {
        Some(guard::WORD) => guard::main(&args[2..]).map(|()| 0),
        Some(stage::WORD) => Err(stage::main(&args[2..])),
        _ => match Cli::try_parse_from(args) {
            Ok(cli) => command(cli),
            Err(error) if !error.use_stderr() => {
                error.print().ok();
                Ok(0)
            }
            Err(error) => Err(usage(&error)),
        },
    };
    ExitCode::from(ended.unwrap_or_else(|failure| {
        if !failure.text.is_empty() {
            print::say(failure.text);
        }
        failure.code
    }))
}

/// clap's error in one line.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // What follows the first empty line is usage.
    let what = text.lines().take_while(|line| !line.is_empty());
    let what: Vec<_> = what.map(str::trim).collect();
    Failure::failed(format!("{}; see --help", what.join(" ")))
}

fn command(cli: Cli) -> Result<u8, Failure> {
    if cli.verbose {
        show_events();
    }
    // One thread: CMD's guard is started by the one that lives as long as the process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let client = connect::connect(&cli.etcd).await?;
        let within = cli.etcd.command_timeout;
        // Boxed: what waits for etcd is large.
        match cli.command {
            Command::Run(args) => Box::pin(run::run(client, args)).await,
            Command::Elect(args) => Box::pin(run::elect(client, args)).await,
            Command::Observe(args) => Box::pin(observe::observe(client, args)).await,
            Command::Ls(args) => in_time(within, Box::pin(ls::ls(client, args))).await,
            Command::Queue(args) => in_time(within, Box::pin(queue::queue(client, args))).await,
            Command::Break(args) => {
                in_time(within, Box::pin(breaking::breaking(client, args))).await
            }
        }
    });
    // A look-up of a name may hang in a thread of its own.
    runtime.shutdown_background();
    ended
}

async fn in_time(
    within: std::time::Duration,
    asking: impl Future<Output = Result<u8, Failure>>,
) -> Result<u8, Failure> {
    let asked = tokio::time::timeout(within, asking).await;
    asked.unwrap_or_else(|_elapsed| {
        let text =
            format!("etcd has not answered within {within:?}; is it running at --endpoints?");
        Err(Failure::failed(text))
    })
}

/// The library's events and our own. Not those of what is below: they could show a password.
fn show_events() {
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::prelude::*;
    let ours = filter_fn(|event| {
        event.target().starts_with("etcd_lock") && *event.level() <= tracing::Level::DEBUG
    });
    let events = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_filter(ours);
    tracing_subscriber::registry().with(events).init();
}
