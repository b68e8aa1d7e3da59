//! Where the check has to be. "Read the token, compare, then write" is two steps, and somebody newer comes between
//! them, even inside of a transaction, whatever its isolation: SERIALIZABLE finds an order in which both are fine, the
//! old one first. The check has to be the condition of a write to the row that everybody else writes as well.

use super::batch::{BOOK, SHOW};
use super::children::Result;
use super::database::{Connection, Database};
use super::instance::instance;
use super::telling::{cure, disaster};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;

/// A batch for each scene.
const BARE: i64 = 11;
const IN_TRANSACTION: i64 = 12;
const CROWDED: i64 = 20;

const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// Checks, counts and leaves the row locked to the end of the transaction.
const COUNT: &str =
    "UPDATE batch SET token = $1, done = done + 1 WHERE id = $2 AND token <= $1 RETURNING done";

const CROWD: usize = 8;
const WRITES: usize = 20;

pub(crate) async fn tell(database: &Database) -> Result<()> {
    let mut old = database.connect().await?;
    let mut new = database.connect().await?;

    read_then_write(&mut old, &mut new, BARE).await?;
    disaster(
        order(&mut new, BARE).await? == [6, 5],
        "reads token 5, compares, writes: the write of 5 comes after that of 6",
    )?;

    match database {
        Database::Postgres { .. } => {
            for (batch, isolation) in (IN_TRANSACTION..).zip(ISOLATIONS) {
                for connection in [&mut old, &mut new] {
                    isolate(connection, isolation).await?;
                }
                old.begin().await?;
                read_then_write(&mut old, &mut new, batch).await?;
                old.commit().await?;
                disaster(
                    order(&mut new, batch).await? == [6, 5],
                    format!("the same in one transaction ({isolation}): no better"),
                )?;
            }
            for (batch, isolation) in (CROWDED..).zip(ISOLATIONS) {
                crowd(database, batch, Some(isolation)).await?;
            }
            Ok(())
        }
        Database::Sqlite(_) => {
            // Not IMMEDIATE: then the newer one could not come at all.
            old.run("BEGIN").await?;
            let written = read_then_write(&mut old, &mut new, IN_TRANSACTION).await;
            old.roll_back().await?;
            cure(
                written.is_err_and(|error| error.to_string().contains("locked"))
                    && order(&mut new, IN_TRANSACTION).await? == [6],
                "the same in one transaction: SQLite refuses to write upon what is outdated",
            )?;
            crowd(database, CROWDED, None).await
        }
    }
}

/// How PostgreSQL isolates the transactions of this connection.
async fn isolate(connection: &mut Connection, isolation: &str) -> Result<()> {
    let set = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL";
    connection.run(&format!("{set} {isolation}")).await
}

/// The holder of token 5 reads and compares, that of 6 comes and goes, then 5 writes.
async fn read_then_write(old: &mut Connection, new: &mut Connection, batch: i64) -> Result<()> {
    new.numbers(SHOW, &[batch, 4]).await?;
    let newest = "SELECT token FROM batch WHERE id = $1";
    let newest = old.number(newest, &[batch]).await?;
    if newest.is_some_and(|newest| newest <= 5) {
        new.begin().await?;
        new.numbers(SHOW, &[batch, 6]).await?;
        new.change(BOOK, &[batch, 1, 6]).await?;
        new.commit().await?;
        old.change(BOOK, &[batch, 2, 5]).await?;
    }
    Ok(())
}

/// The tokens of a batch's entries in the order of their chunks.
async fn order(connection: &mut Connection, batch: i64) -> Result<Vec<i64>> {
    let tokens = "SELECT token FROM entry WHERE batch = $1 ORDER BY chunk";
    connection.numbers(tokens, &[batch]).await
}

/// Many at once, each write with a token that was new when it was taken.
async fn crowd(database: &Database, batch: i64, isolation: Option<&'static str>) -> Result<()> {
    let mut connection = database.connect().await?;
    connection.numbers(SHOW, &[batch, 1]).await?;
    let newest = Arc::new(AtomicI64::new(2));
    let running: Vec<_> = (0..CROWD)
        .map(|_| {
            let (database, newest) = (database.clone(), newest.clone());
            instance(async move || {
                let mut connection = database.connect().await?;
                if let Some(isolation) = isolation {
                    isolate(&mut connection, isolation).await?;
                }
                let mut admitted = 0;
                for _ in 0..WRITES {
                    let token = newest.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
                    admitted += usize::from(count(&mut connection, batch, token).await?);
                }
                Ok(admitted)
            })
        })
        .collect();
    let mut admitted = 0;
    for instance in running {
        admitted += instance.await??;
    }
    let refused_at_last = !count(&mut connection, batch, 1).await?;
    let tokens = order(&mut connection, batch).await?;
    cure(
        refused_at_last && tokens.len() == admitted && tokens.is_sorted(),
        format!(
            "the check in the write{}: of {} writes by {CROWD} at once {admitted} got through, \
             with tokens that only grow",
            isolation.map_or_else(String::new, |isolation| format!(" ({isolation})")),
            CROWD * WRITES
        ),
    )
}

/// Writes in one transaction, which is repeated if the database asks for that; false if it is too late.
async fn count(connection: &mut Connection, batch: i64, token: i64) -> Result<bool> {
    loop {
        connection.begin().await?;
        match count_once(connection, batch, token).await {
            Ok(true) => match connection.commit().await {
                Err(error) if is_conflict(&*error) => {}
                committed => return committed.map(|()| true),
            },
            Ok(false) => return connection.roll_back().await.map(|()| false),
            Err(error) if is_conflict(&*error) => connection.roll_back().await?,
            Err(error) => return Err(error),
        }
    }
}

async fn count_once(connection: &mut Connection, batch: i64, token: i64) -> Result<bool> {
    // Either statement is a check.
    let shows = token % 2 == 0;
    if shows && connection.number(SHOW, &[batch, token]).await?.is_none() {
        return Ok(false);
    }
    let Some(n) = connection.number(COUNT, &[token, batch]).await? else {
        return Ok(false);
    };
    // The others wait for the row, and then look at what it has become.
    sleep(Duration::from_micros(fastrand::u64(0..500))).await;
    connection.change(BOOK, &[batch, n, token]).await?;
    Ok(true)
}

/// Error 40001, in REPEATABLE READ and above: somebody else has changed the row; roll back, and repeat all of it.
fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>();
    error.and_then(tokio_postgres::Error::code) == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}
