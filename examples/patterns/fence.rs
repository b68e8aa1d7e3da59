//! Where the check has to be. "Read the token, compare, then write" is two steps, and somebody newer comes between
//! them, even inside of a transaction: PostgreSQL's READ COMMITTED sees each statement's own moment. The check has to
//! be the condition of a write to the row that everybody else writes as well.

use super::batch::{BOOK, SHOW};
use super::children::Result;
use super::database::{Connection, Database};
use super::instance::instance;
use super::telling::{cure, disaster};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// Batches of this story.
const BARE: i64 = 11;
const IN_TRANSACTION: i64 = 12;
const CROWDED: i64 = 13;

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

    old.run("BEGIN").await?;
    let written = read_then_write(&mut old, &mut new, IN_TRANSACTION).await;
    match database {
        Database::Postgres { .. } => {
            old.commit().await?;
            written?;
            disaster(
                order(&mut new, IN_TRANSACTION).await? == [6, 5],
                "the same in one transaction (READ COMMITTED): no better",
            )?;
        }
        Database::Sqlite(_) => {
            old.roll_back().await?;
            cure(
                written.is_err_and(|error| error.to_string().contains("locked"))
                    && order(&mut new, IN_TRANSACTION).await? == [6],
                "the same in one transaction: SQLite refuses to write upon what is outdated",
            )?;
        }
    }
    crowd(database).await
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
async fn crowd(database: &Database) -> Result<()> {
    let mut connection = database.connect().await?;
    connection.numbers(SHOW, &[CROWDED, 1]).await?;
    let newest = Arc::new(AtomicI64::new(2));
    let running: Vec<_> = (0..CROWD)
        .map(|_| {
            let (database, newest) = (database.clone(), newest.clone());
            instance(async move || {
                let mut connection = database.connect().await?;
                let mut admitted = 0;
                for _ in 0..WRITES {
                    let token = newest.fetch_add(1, Ordering::SeqCst);
                    admitted += usize::from(count(&mut connection, token).await?);
                }
                Ok(admitted)
            })
        })
        .collect();
    let mut admitted = 0;
    for instance in running {
        admitted += instance.await??;
    }
    let refused_at_last = !count(&mut connection, 1).await?;
    let tokens = order(&mut connection, CROWDED).await?;
    cure(
        refused_at_last && tokens.len() == admitted && tokens.is_sorted(),
        format!(
            "the check in the write: of {} writes by {CROWD} at once {admitted} got through, \
             with tokens that only grow",
            CROWD * WRITES
        ),
    )
}

async fn count(connection: &mut Connection, token: i64) -> Result<bool> {
    sleep(Duration::from_micros(fastrand::u64(0..2000))).await;
    connection.begin().await?;
    // Either statement is a check.
    let shows = token % 2 == 0;
    if shows && connection.number(SHOW, &[CROWDED, token]).await?.is_none() {
        connection.roll_back().await?;
        return Ok(false);
    }
    let Some(n) = connection.number(COUNT, &[token, CROWDED]).await? else {
        connection.roll_back().await?;
        return Ok(false);
    };
    // The others wait for the row, and then look at what it has become.
    sleep(Duration::from_micros(fastrand::u64(0..500))).await;
    connection.change(BOOK, &[CROWDED, n, token]).await?;
    connection.commit().await?;
    Ok(true)
}
