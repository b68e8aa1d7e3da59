//! The batch that outlived its lock: it goes through the chunks of a day and books an entry for each. In the middle
//! it stands still for longer than the TTL; another instance takes over and finishes; then it goes on. A lock that is
//! renewed does not run out because work is slow, but no renewal goes out where nothing runs.
//!
//! The cure is a column for the token, and every chunk in one transaction with the check.

use super::children::Result;
use super::database::{Connection, Database};
use super::instance::{Late, hold};
use super::telling::{cure, disaster, say};

pub(crate) const TABLES: &str = "
    CREATE TABLE batch (id BIGINT PRIMARY KEY, token BIGINT NOT NULL, done BIGINT NOT NULL);
    CREATE TABLE entry (batch BIGINT NOT NULL, chunk BIGINT NOT NULL, token BIGINT NOT NULL);
    INSERT INTO batch VALUES (1, 0, 0);";

/// Makes the row if need be, shows the token, and reads how far the batch has come: nobody older gets through from
/// here on. No row comes back: somebody newer was here.
pub(crate) const SHOW: &str = "
    INSERT INTO batch (id, token, done) VALUES ($1, $2, 0)
    ON CONFLICT (id) DO UPDATE SET token = excluded.token WHERE batch.token <= excluded.token
    RETURNING done";

/// The check and the progress in one statement. It locks the row until the transaction ends, so a newer holder cannot
/// come between it and the entries.
const ADVANCE: &str = "UPDATE batch SET token = $1, done = $2 WHERE id = $3 AND token <= $1";

pub(crate) const BOOK: &str = "INSERT INTO entry (batch, chunk, token) VALUES ($1, $2, $3)";

const CHUNKS: i64 = 4;
/// One batch that trusts the lock, and one that shows its token.
const CARELESS: i64 = 1;
const FENCED: i64 = 2;

pub(crate) async fn tell(database: &Database) -> Result<()> {
    let lock = format!("etcd-lock-example/{}/batch", std::process::id());
    let (of_late, late_lock) = (database.clone(), lock.clone());
    let late = Late::start(async move |pause| {
        let guard = hold(&late_lock, "the first").await?;
        let token = i64::from(guard.token());
        let mut connection = of_late.connect().await?;
        trusting(&mut connection, token, 0..1).await?;
        let done = show(&mut connection, FENCED, token).await?;
        let done = done.ok_or("refused, though it is the first")?;
        chunk(&mut connection, FENCED, token, done + 1).await?;
        let held = guard.is_held();
        say(format!(
            "the first holds with token {token}, has done 1 of {CHUNKS} chunks, and stands still"
        ));
        pause.stand_still()?;
        trusting(&mut connection, token, 1..CHUNKS).await?;
        let refused = !chunk(&mut connection, FENCED, token, done + 2).await?;
        let held_still = guard.is_held();
        say("the first goes on where it stood, and only then asks: its lock is lost");
        Ok((held, refused, held_still))
    })
    .await?;

    let guard = hold(&lock, "the second").await?;
    let token = i64::from(guard.token());
    let mut connection = database.connect().await?;
    let done = "SELECT done FROM batch WHERE id = $1";
    let from = connection.number(done, &[CARELESS]).await?;
    trusting(&mut connection, token, from.ok_or("no batch")?..CHUNKS).await?;
    let from = show(&mut connection, FENCED, token).await?;
    let from = from.ok_or("the newest is refused")?;
    say(format!(
        "the second holds with token {token}, and takes over after chunk {from}"
    ));
    for n in from..CHUNKS {
        if !chunk(&mut connection, FENCED, token, n + 1).await? {
            return Err("the newest is refused".into());
        }
    }
    let (held, refused, held_still) = late.go_on().await?;
    guard.release().await?;
    if !held || held_still {
        return Err("its lock was to be lost while it stood still".into());
    }

    let chunks = "SELECT chunk FROM entry WHERE batch = $1 ORDER BY chunk";
    let booked = connection.numbers(chunks, &[CARELESS]).await?;
    disaster(
        booked == [1, 2, 2, 3, 3, 4, 4],
        format!("with the lock alone, these chunks are booked: {booked:?}"),
    )?;
    let booked = connection.numbers(chunks, &[FENCED]).await?;
    cure(
        refused && booked == [1, 2, 3, 4],
        format!("with a column for the token: {booked:?}; the first was refused and wrote nothing"),
    )
}

/// Books chunks without asking anybody but the lock.
async fn trusting(
    connection: &mut Connection,
    token: i64,
    chunks: std::ops::Range<i64>,
) -> Result<()> {
    for n in chunks {
        connection.begin().await?;
        let advance = "UPDATE batch SET done = $1 WHERE id = $2";
        connection.change(advance, &[n + 1, CARELESS]).await?;
        connection.change(BOOK, &[CARELESS, n + 1, token]).await?;
        connection.commit().await?;
    }
    Ok(())
}

/// Shows the token before anything is read; gives how far the batch has come, or nothing to whom it is too late.
async fn show(connection: &mut Connection, batch: i64, token: i64) -> Result<Option<i64>> {
    connection.number(SHOW, &[batch, token]).await
}

/// Does one chunk, all of it or nothing; false if somebody newer was here.
async fn chunk(connection: &mut Connection, batch: i64, token: i64, n: i64) -> Result<bool> {
    connection.begin().await?;
    if connection.change(ADVANCE, &[token, n, batch]).await? == 0 {
        connection.roll_back().await?;
        return Ok(false);
    }
    connection.change(BOOK, &[batch, n, token]).await?;
    connection.commit().await?;
    Ok(true)
}
