//! `run` and `elect`: work under a hold.

use crate::acquire::{Patience, Sessions, Turn, Wish, acquire, end};
use crate::args::{Elect, Run};
use crate::exit::{self, Failure};
use crate::print;
use crate::signals::Signals;
use crate::supervise::{Ended, Errand, supervise};
use etcd_lock::etcd_client::Client;
use etcd_lock::{Error, Lost};
use serde_json::json;
use std::ffi::OsString;

pub(crate) async fn run(client: Client, args: Run) -> Result<u8, Failure> {
    let sessions = Sessions::new(client, &args.lease, args.label)?;
    let wish = Wish {
        name: &args.name,
        value: None,
        patience: Patience::new(args.wait, args.skip),
    };
    under(&sessions, &wish, args.command).await
}

pub(crate) async fn elect(client: Client, args: Elect) -> Result<u8, Failure> {
    let value = args.value.unwrap_or_else(who);
    let sessions = Sessions::new(client, &args.lease, Some(value.clone()))?;
    let wish = Wish {
        name: &args.name,
        value: Some(value.clone()),
        patience: Patience::new(args.wait, false),
    };
    if !args.command.is_empty() {
        return under(&sessions, &wish, args.command).await;
    }
    let mut signals = Signals::new()?;
    let (session, turn) = acquire(&sessions, &wish, &mut signals).await?;
    let (name, token) = (turn.name(), turn.token().get());
    print::line(if args.json {
        json!({ "name": name, "key": turn.key(), "value": value, "token": token }).to_string()
    } else {
        format!("leading {name} as {value} (token {token})")
    })?;
    let lost = tokio::select! {
        biased;
        lost = turn.lost() => Some(lost),
        _ = signals.next() => None,
    };
    let ended = match lost {
        Some(lost) => Err(lost_failure(&turn, lost, "").await),
        None => give_up(turn, 0).await,
    };
    end(&session).await;
    ended
}

/// Runs CMD under a hold, and gives that up.
async fn under(
    sessions: &Sessions,
    wish: &Wish<'_>,
    command: Vec<OsString>,
) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let (session, turn) = acquire(sessions, wish, &mut signals).await?;
    let errand = Errand {
        command,
        grace: sessions.grace,
    };
    let ended = match supervise(&turn, errand, &mut signals).await {
        Ok(Ended::Done(code)) => give_up(turn, code).await,
        Ok(Ended::Lost(lost)) => Err(lost_failure(&turn, lost, "; its command was stopped").await),
        Ok(Ended::Unguarded) => {
            give_up(turn, 0).await?;
            Err(Failure::failed(
                "the guard process was killed, and the command with it",
            ))
        }
        Err(failure) => {
            give_up(turn, 0).await?;
            Err(failure)
        }
    };
    end(&session).await;
    ended
}

/// Says whose fault it was, too, and who holds now.
async fn lost_failure(turn: &Turn, lost: Lost, and: &str) -> Failure {
    let (name, token) = (turn.name(), turn.token());
    let report = turn.loss_report().await;
    let why = report.map_or_else(|| lost.to_string(), |report| report.to_string());
    Failure::new(
        exit::LOST,
        format!("{name:?} (token {token}) is {}{and}", print::visible(&why)),
    )
}

/// Gives up what was held to the end; that it is not confirmed changes nothing for CMD.
async fn give_up(turn: Turn, code: u8) -> Result<u8, Failure> {
    let name = turn.name().to_owned();
    match turn.give_up().await {
        Ok(()) => Ok(code),
        Err(Error::Lost(lost)) => {
            let text = format!("{name:?} was {lost}, while the command ran or just after");
            Err(Failure::new(exit::LOST, text))
        }
        Err(error) => {
            print::say(&error);
            Ok(code)
        }
    }
}

/// As the library's label says it.
fn who() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{host} pid {}", std::process::id())
}
