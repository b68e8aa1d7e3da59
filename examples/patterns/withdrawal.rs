//! The withdrawal that ran twice: one click, two requests, two instances. A balance of 1000 pays 500 and 500, and says
//! 500.
//!
//! No lock is needed. A unique key makes of the same request the same withdrawal; a conditional update never spends
//! what is not there; a version column lets nobody overwrite what he has not seen. They have no TTL, nothing to renew,
//! and no opinion about who is paused.

use super::children::Result;
use super::database::{Connection, Database};
use super::instance::instance;
use super::telling::{cure, disaster, say};
use std::sync::{Arc, Barrier};

pub(crate) const TABLES: &str = "
    CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);
    CREATE TABLE payout (account BIGINT NOT NULL, amount BIGINT NOT NULL);
    CREATE TABLE withdrawal (request BIGINT PRIMARY KEY, account BIGINT NOT NULL, amount BIGINT NOT NULL);
    CREATE TABLE settings (id BIGINT PRIMARY KEY, daily BIGINT NOT NULL, single BIGINT NOT NULL, version BIGINT NOT NULL);
    INSERT INTO account VALUES (1, 1000), (2, 1000), (3, 1000);
    INSERT INTO settings VALUES (1, 100, 10, 1);";

/// What the second of two that came at once is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Paid,
    /// This very request was paid before: answer as then.
    PaidBefore,
    NotEnough,
}

pub(crate) async fn tell(database: &Database) -> Result<()> {
    let mut books = database.connect().await?;

    say("one click becomes two requests; both instances read a balance of 1000");
    at_once(database, [1, 1], async |connection, both, _request| {
        careless(connection, both).await
    })
    .await?;
    let paid = sum(&mut books, "SELECT amount FROM payout WHERE account = 1").await?;
    let balance = balance(&mut books, 1).await?;
    disaster(
        paid == 1000 && balance == 500,
        format!("one click paid {paid}, and the account still has {balance}"),
    )?;

    let both = at_once(database, [71, 71], async |connection, both, request| {
        both.wait();
        withdraw(connection, request, 2, 500).await
    })
    .await?;
    cure(
        both == [Answer::Paid, Answer::PaidBefore] && paid_from(&mut books, 2).await? == (500, 500),
        "a unique key on the request: paid once, and the second is told so",
    )?;

    let both = at_once(database, [72, 73], async |connection, both, request| {
        both.wait();
        withdraw(connection, request, 3, 600).await
    })
    .await?;
    cure(
        both == [Answer::Paid, Answer::NotEnough] && paid_from(&mut books, 3).await? == (600, 400),
        "a conditional update: of two withdrawals of 600 one is paid, never more than is there",
    )?;

    let tries = at_once(database, [1, 2], edit).await?;
    let sum = sum(&mut books, "SELECT daily + single FROM settings").await?;
    cure(
        tries == [1, 2] && sum == 112,
        "a version column: of two edits at once the second sees the first, and none is lost",
    )
}

/// Two instances, each with a request; gives their answers in order.
async fn at_once<T: Ord + Send + 'static>(
    database: &Database,
    requests: [i64; 2],
    handle: impl AsyncFn(&mut Connection, &Barrier, i64) -> Result<T> + Copy + Send + 'static,
) -> Result<Vec<T>> {
    let both = Arc::new(Barrier::new(2));
    let running = requests.map(|request| {
        let (database, both) = (database.clone(), both.clone());
        instance(async move || handle(&mut database.connect().await?, &both, request).await)
    });
    let mut answers = Vec::new();
    for instance in running {
        answers.push(instance.await??);
    }
    answers.sort_unstable();
    Ok(answers)
}

/// Reads, checks and writes, one after the other.
async fn careless(connection: &mut Connection, both: &Barrier) -> Result<()> {
    let balance = balance(connection, 1).await?;
    both.wait();
    if balance >= 500 {
        let left = "UPDATE account SET balance = $1 WHERE id = 1";
        connection.change(left, &[balance - 500]).await?;
        let pay = "INSERT INTO payout VALUES (1, 500)";
        connection.change(pay, &[]).await?;
    }
    Ok(())
}

/// One transaction: the request is new, and the money is there; or nothing has happened.
async fn withdraw(
    connection: &mut Connection,
    request: i64,
    account: i64,
    amount: i64,
) -> Result<Answer> {
    connection.begin().await?;
    // Waits for another that is just inserting the same request, and then sees it.
    let once = "INSERT INTO withdrawal (request, account, amount) VALUES ($1, $2, $3) \
                ON CONFLICT (request) DO NOTHING";
    if connection.change(once, &[request, account, amount]).await? == 0 {
        connection.roll_back().await?;
        return Ok(Answer::PaidBefore);
    }
    let take = "UPDATE account SET balance = balance - $1 WHERE id = $2 AND balance >= $1";
    if connection.change(take, &[amount, account]).await? == 0 {
        // Takes the insert back, too: the request may come again when there is enough.
        connection.roll_back().await?;
        return Ok(Answer::NotEnough);
    }
    connection.commit().await?;
    Ok(Answer::Paid)
}

/// Adds what it was asked to, to a record that others edit as well; gives how many tries it took.
async fn edit(connection: &mut Connection, both: &Barrier, what: i64) -> Result<i64> {
    for tries in 1.. {
        let read = "SELECT version FROM settings WHERE id = 1";
        let version = connection.number(read, &[]).await?.ok_or("no settings")?;
        if tries == 1 {
            both.wait();
        }
        let column = if what == 1 { "daily" } else { "single" };
        let write = format!(
            "UPDATE settings SET {column} = {column} + 1, version = version + 1
             WHERE id = 1 AND version = $1"
        );
        if connection.change(&write, &[version]).await? == 1 {
            return Ok(tries);
        }
    }
    unreachable!("there are many numbers")
}

async fn balance(books: &mut Connection, account: i64) -> Result<i64> {
    let read = "SELECT balance FROM account WHERE id = $1";
    Ok(books.number(read, &[account]).await?.ok_or("no account")?)
}

/// What was paid from an account, and what it says it has.
async fn paid_from(books: &mut Connection, account: i64) -> Result<(i64, i64)> {
    let paid = books
        .numbers(
            "SELECT amount FROM withdrawal WHERE account = $1",
            &[account],
        )
        .await?;
    Ok((paid.iter().sum(), balance(books, account).await?))
}

async fn sum(books: &mut Connection, sql: &str) -> Result<i64> {
    Ok(books.numbers(sql, &[]).await?.iter().sum())
}
