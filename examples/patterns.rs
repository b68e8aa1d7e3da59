//! Four disasters with locks, and what holds where the lock does not: in the data.
//!
//! ```text
//! ci/with-postgres ci/with-etcd cargo run --example patterns
//! ```
//!
//! Each story first lets the disaster happen and then shows the cure, under the very same fault, on a real SQLite
//! file and on a real PostgreSQL (named by `POSTGRES_URL`, as `ci/with-postgres` does; without it, on SQLite alone).
//! It takes a minute, checks every claim that it prints, and fails if a cure has not held or a disaster has not
//! happened.
//!
//! - `patterns/withdrawal.rs`: the withdrawal that ran twice. No lock needed.
//! - `patterns/batch.rs`: the batch that outlived its lock. A column for the token.
//! - `patterns/fence.rs`: where the check has to be: in the write, not before it.
//! - `patterns/api.rs`: somebody else's API, which can check no token.
//! - `patterns/writer.rs`: the writer that was stopped between its check and its write.
//!
//! `patterns/batch.rs` and `patterns/writer.rs` have the SQL to copy. The guide says when to use which:
//! `etcd_lock::guide`.
#![allow(clippy::print_stdout, reason = "the output is the point")]

#[path = "patterns/api.rs"]
mod api;
#[path = "patterns/batch.rs"]
mod batch;
#[expect(dead_code, reason = "the others need more of it")]
mod children;
#[path = "patterns/database.rs"]
mod database;
#[path = "patterns/fence.rs"]
mod fence;
#[path = "patterns/instance.rs"]
mod instance;
#[path = "patterns/provider.rs"]
mod provider;
#[path = "patterns/telling.rs"]
mod telling;
#[path = "patterns/withdrawal.rs"]
mod withdrawal;
#[path = "patterns/writer.rs"]
mod writer;

use children::{Result, told_to_end};
use database::Database;
use std::time::Duration;
use telling::title;
use tokio::time::sleep;

/// All of it takes a minute.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let run = async {
        match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => show().await,
            [lock, database @ ..] => writer::late(lock, &Database::from_args(database)?).await,
        }
    };
    let done = tokio::select! {
        done = run => done,
        () = told_to_end() => Err("told to end".into()),
        () = sleep(LIMIT) => Err("what was to come next did not come".into()),
    };
    if let Err(error) = done {
        eprintln!("patterns example: {error}");
        // Not by returning: that waits for an instance that still stands still.
        std::process::exit(1);
    }
}

async fn show() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut databases = vec![Database::sqlite(directory.path())];
    match Database::postgres() {
        Some(postgres) => databases.push(postgres),
        None => println!("PostgreSQL is skipped: POSTGRES_URL is not set (see ci/with-postgres)"),
    }
    for database in &databases {
        database.create().await?;
        let told = stories(database).await;
        database.remove().await?;
        told?;
    }
    title("Somebody else's API", "no database of ours");
    api::tell().await?;
    println!("\nEvery disaster has happened, and every cure has held.");
    Ok(())
}

async fn stories(database: &Database) -> Result<()> {
    title("The withdrawal that ran twice", database);
    withdrawal::tell(database).await?;
    title("The batch that outlived its lock", database);
    batch::tell(database).await?;
    title("The check that was not in the write", database);
    fence::tell(database).await?;
    title("The writer that came late", database);
    writer::tell(database).await
}
