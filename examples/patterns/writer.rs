//! The writer that came late: a process that asks "do I hold?", hears yes, and is stopped (SIGSTOP) before it writes,
//! for longer than the TTL. No lock of any kind can prevent its write. The row's token can.

use super::children::{Children, Result};
use super::database::{Connection, Database};
use super::instance::hold_for;
use super::telling::{cure, disaster, say};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;
use tokio::time::{sleep_until, timeout};

pub(crate) const TABLES: &str = "
    CREATE TABLE report (id BIGINT PRIMARY KEY, token BIGINT NOT NULL, value BIGINT NOT NULL);
    INSERT INTO report VALUES (1, 0, 0), (2, 0, 0);";

/// The check is a condition of the write itself. No row changed: somebody newer was here.
const WRITE: &str = "UPDATE report SET token = $1, value = $2 WHERE id = $3 AND token <= $1";

/// One report that trusts the lock, and one that looks at the token.
const CARELESS: i64 = 1;
const FENCED: i64 = 2;

const TTL: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_secs(20);

const OLD: i64 = 100;
const NEW: i64 = 200;

pub(crate) async fn tell(database: &Database) -> Result<()> {
    let lock = format!("etcd-lock-example/{}/writer", std::process::id());
    let mut args = vec![lock.as_str()];
    args.extend(database.to_args());
    let mut children = Children::default();
    let pid = children.start(&args)?;
    let (_, asked) = children.next_line().await?;
    let stopped = tokio::time::Instant::now();
    children.signal(pid, Signal::STOP)?;
    say(format!("process {pid} {asked}; is stopped (SIGSTOP)"));

    let guard = timeout(TTL * 4, hold_for(TTL, &lock, "the next")).await??;
    let token = i64::from(guard.token());
    let mut connection = database.connect().await?;
    write(&mut connection, token, NEW).await?;
    say(format!(
        "the next holds with token {token} and writes {NEW}"
    ));
    sleep_until(stopped + PAUSE).await;
    let paused = stopped.elapsed().as_secs_f64();
    children.signal(pid, Signal::CONT)?;
    let (_, told) = children.next_line().await?;
    say(format!(
        "process {pid} goes on after {paused:.1} s, with a TTL of {TTL:?}, and {told}"
    ));
    if !children.ended_well(pid).await? {
        return Err("the late one has failed".into());
    }
    guard.release().await?;

    let value = "SELECT value FROM report WHERE id = $1";
    let careless = connection.number(value, &[CARELESS]).await?;
    disaster(
        careless == Some(OLD),
        format!("with the lock alone, the old {OLD} stands where {NEW} was written"),
    )?;
    let fenced = connection.number(value, &[FENCED]).await?;
    cure(
        fenced == Some(NEW),
        format!("with a token in the row, {NEW} stands"),
    )
}

/// The process that is stopped.
pub(crate) async fn late(lock: &str, database: &Database) -> Result<()> {
    let guard = hold_for(TTL, lock, "the late one").await?;
    let mut connection = database.connect().await?;
    let token = i64::from(guard.token());
    if !guard.is_held() {
        return Err("it was to hold".into());
    }
    let asked = Instant::now();
    println!("holds with token {token}, has asked and is told so, and will write {OLD}");
    block_in_place(|| be_stopped(asked));
    let (careless, fenced) = write(&mut connection, token, OLD).await?;
    if guard.is_held() {
        return Err("it was to be lost".into());
    }
    println!(
        "writes {careless} row without the token, {fenced} with it; now it asks: {}",
        guard.lost().await
    );
    Ok(())
}

/// Writes both reports; gives how many rows of each were changed.
async fn write(connection: &mut Connection, token: i64, value: i64) -> Result<(u64, u64)> {
    let careless = "UPDATE report SET value = $1 WHERE id = $2";
    let careless = connection.change(careless, &[value, CARELESS]).await?;
    let fenced = connection.change(WRITE, &[token, value, FENCED]).await?;
    Ok((careless, fenced))
}

/// Returns when this process has stood still for longer than the TTL.
fn be_stopped(mut last: Instant) {
    while last.elapsed() < TTL {
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
    }
}
