//! Three schedulers, one lock: who holds it runs the job, until it crashes, is paused, or leaves.
//!
//! ```text
//! ci/with-etcd cargo run --example scheduler
//! ```
//!
//! No terminals to open: the program starts itself three more times, as the schedulers A, B and C,
//! real processes that are killed and paused by real signals. It prints what happens, checks it,
//! and fails if anything is not as it should be. It takes a quarter of a minute.
//!
//! Watch for:
//! - the crash: the holder gets a SIGKILL while it works; the next takes over within TTL + 1 s,
//!   with a larger token;
//! - the pause: the next holder is stopped between its check and its write for longer than the
//!   TTL, and the lock goes on to the third. Then the stopped one goes on and writes, late. No
//!   lock can prevent that, the store does: the write carries an old token. Without it a tick
//!   would have been written twice;
//! - the release: who leaves in good order is followed within milliseconds.
//!
//! This file is what a service does; `scheduler/store.rs` is a resource that checks tokens. The
//! others (`play`, `stage`, `cast`) only put them on a stage. `RUST_LOG=etcd_lock=debug` shows
//! what the library does.

#![allow(clippy::print_stdout, reason = "a program that shows something")]

#[path = "scheduler/cast.rs"]
mod cast;
#[path = "scheduler/play.rs"]
mod play;
#[path = "scheduler/stage.rs"]
mod stage;
#[path = "scheduler/store.rs"]
mod store;

use etcd_lock::etcd_client::Client;
use etcd_lock::{Error, LockGuard, Lost, Mutex, Session};
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::{Answer, Store};
use tokio::sync::Notify;
use tokio::task::block_in_place;

/// How long the others wait after a crash. It does not limit how long the lock can be held.
const TTL: Duration = Duration::from_secs(5);

/// How long one tick of the job takes, and the pause between two.
const WORK: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let ended = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => play::show().await,
        [me, lock, store] => Box::pin(scheduler(me, lock, &Store::at(store))).await,
        _ => Err("this example takes no arguments".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scheduler example: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One scheduler, as a service would run it: stands in line, works while it holds, begins anew
/// after a loss, and leaves when it is told to.
async fn scheduler(me: &str, lock: &str, store: &Store) -> Result<()> {
    let log = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(log)
        .with_writer(std::io::stderr)
        .init();
    let client = connect().await?;
    let stop = stop_with_stdin();
    loop {
        // A session that is lost stays lost: each round opens another.
        let session = Session::builder(client.clone())
            .ttl(TTL)
            .label(me)
            .open()
            .await?;
        tokio::select! {
            lost = stand_in_line(&session, lock, store) => say("lost", lost?),
            () = told_to_stop(&stop) => {
                // Dropping `stand_in_line` has given up the lock or the place in line. This waits
                // until etcd has confirmed that nothing is left.
                session.close().await?;
                return Ok(());
            }
        }
    }
}

/// Waits for the turn, then does the job for as long as the lock is held. Gives how it was lost.
async fn stand_in_line(session: &Session, lock: &str, store: &Store) -> Result<Lost> {
    let mutex = Mutex::new(session, lock)?;
    say("waits", "");
    let guard = match mutex.lock().await {
        Err(Error::Lost(lost)) => return Ok(lost),
        locked => locked?,
    };
    say("holds", guard.token());
    match guard.run_until_lost(job(&guard, store)).await {
        Err(lost) => return Ok(lost),
        Ok(ended) => ended?,
    }
    // The store has refused us, so somebody else holds: our lock is lost. Releasing it says how.
    match guard.release().await {
        Err(Error::Lost(lost)) => Ok(lost),
        _ => Err("the store refused the holder of the lock".into()),
    }
}

/// One tick after the other. Ends when the store refuses one.
async fn job(guard: &LockGuard, store: &Store) -> Result<()> {
    let token = guard.token().get();
    // Reads how far the one before us came. The store sees our token, and from here on nobody with
    // an older one can write.
    let Answer::Accepted { mut tick } = block_in_place(|| store.begin(token))? else {
        return Ok(());
    };
    loop {
        tokio::time::sleep(PAUSE).await; // while it awaits, `run_until_lost` can stop the job
        if !guard.is_held() {
            continue; // to that await
        }
        say("works", tick + 1);
        // Nothing can stop us between here and the store. If we stand still now, we write late.
        let answer = block_in_place(|| {
            std::thread::sleep(WORK);
            store.write(token, tick + 1)
        });
        match answer? {
            Answer::Accepted { tick: written } => {
                tick = written;
                say("wrote", tick);
            }
            Answer::Refused { newest } => {
                say(
                    "refused",
                    format_args!("{} (the store has seen token {newest})", tick + 1),
                );
                return Ok(());
            }
        }
    }
}

async fn connect() -> Result<Client> {
    let endpoints = std::env::var("ETCD_ENDPOINTS").map_err(
        |_| "ETCD_ENDPOINTS is not set; try: ci/with-etcd cargo run --example scheduler",
    )?;
    let endpoints: Vec<_> = endpoints.split(',').collect();
    Ok(etcd_lock::connect(endpoints, None).await?)
}

async fn told_to_stop(stop: &Notify) {
    stop.notified().await;
    say("leaves", "");
}

/// Rings when stdin ends: we are told to stop, or who started us is no more. A service would
/// listen for SIGTERM instead.
fn stop_with_stdin() -> Arc<Notify> {
    let stop = Arc::new(Notify::new());
    let ring = stop.clone();
    std::thread::spawn(move || {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        ring.notify_one();
    });
    stop
}

/// Tells the stage what we do.
fn say(verb: &str, what: impl std::fmt::Display) {
    let me = std::env::args().nth(1).unwrap_or_default();
    let line = format!("{me} {verb} {what}\n");
    // If nobody listens any more, we are told to stop anyway.
    std::io::stdout().write_all(line.as_bytes()).ok();
}
