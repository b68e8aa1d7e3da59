//! A database of either kind. The SQL is the same for both; all numbers are 64 bits wide.

use super::children::Result;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::NoTls;
use tokio_postgres::types::ToSql;

#[derive(Clone)]
pub(crate) enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server, and a schema of our own in it.
    Postgres { url: String, schema: String },
}

impl Database {
    pub(crate) fn sqlite(directory: &Path) -> Self {
        Self::Sqlite(directory.join("patterns.sqlite"))
    }

    /// The one that `POSTGRES_URL` names, if it does.
    pub(crate) fn postgres() -> Option<Self> {
        let url = std::env::var("POSTGRES_URL").ok()?;
        let schema = format!("patterns_{}", std::process::id());
        Some(Self::Postgres { url, schema })
    }

    /// As it was given to a child process.
    pub(crate) fn from_args(args: &[&str]) -> Result<Self> {
        match args {
            [path] => Ok(Self::Sqlite(path.into())),
            [url, schema] => Ok(Self::Postgres {
                url: (*url).to_owned(),
                schema: (*schema).to_owned(),
            }),
            _ => Err("this example takes no arguments".into()),
        }
    }

    pub(crate) fn to_args(&self) -> Vec<&str> {
        match self {
            Self::Sqlite(path) => path.to_str().into_iter().collect(),
            Self::Postgres { url, schema } => vec![url, schema],
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        match self {
            Self::Sqlite(path) => {
                let file = rusqlite::Connection::open(path)?;
                // How long to wait for another that writes.
                file.busy_timeout(Duration::from_secs(10))?;
                Ok(Connection::Sqlite(file))
            }
            Self::Postgres { url, schema } => {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
                tokio::spawn(connection);
                let search = format!("SET search_path TO {schema}");
                client.batch_execute(&search).await?;
                Ok(Connection::Postgres(client))
            }
        }
    }

    pub(crate) async fn create(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        match self {
            Self::Sqlite(_) => connection.run("PRAGMA journal_mode = WAL").await?,
            Self::Postgres { schema, .. } => {
                connection.run(&format!("CREATE SCHEMA {schema}")).await?;
            }
        }
        for story in [
            super::withdrawal::TABLES,
            super::batch::TABLES,
            super::writer::TABLES,
        ] {
            connection.run(story).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove(&self) -> Result<()> {
        if let Self::Postgres { schema, .. } = self {
            let drop = format!("DROP SCHEMA {schema} CASCADE");
            self.connect().await?.run(&drop).await?;
        }
        Ok(())
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres { .. } => "PostgreSQL",
        })
    }
}

/// Takes `$1`, `$2` and so on; SQLite wants them in this order where they first appear.
pub(crate) enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
}

impl Connection {
    /// Begins a transaction that will write.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self {
            // A plain BEGIN would read first and fail when it comes to write, if others wrote meanwhile.
            Self::Sqlite(_) => self.run("BEGIN IMMEDIATE").await,
            // READ COMMITTED, the default.
            Self::Postgres(_) => self.run("BEGIN").await,
        }
    }

    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.run("COMMIT").await
    }

    pub(crate) async fn roll_back(&mut self) -> Result<()> {
        self.run("ROLLBACK").await
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(file) => Ok(file.execute_batch(sql)?),
            Self::Postgres(client) => Ok(client.batch_execute(sql).await?),
        }
    }

    /// Carries out one statement; gives how many rows it changed.
    pub(crate) async fn change(&mut self, sql: &str, args: &[i64]) -> Result<u64> {
        match self {
            Self::Sqlite(file) => {
                let changed = file.execute(sql, rusqlite::params_from_iter(args))?;
                Ok(changed.try_into()?)
            }
            Self::Postgres(client) => Ok(client.execute(sql, &postgres_args(args)).await?),
        }
    }

    /// Carries out one statement; gives the first number of each row.
    pub(crate) async fn numbers(&mut self, sql: &str, args: &[i64]) -> Result<Vec<i64>> {
        match self {
            Self::Sqlite(file) => {
                let mut statement = file.prepare(sql)?;
                let rows = statement.query_map(rusqlite::params_from_iter(args), |row| row.get(0));
                Ok(rows?.collect::<Result<_, _>>()?)
            }
            Self::Postgres(client) => {
                let rows = client.query(sql, &postgres_args(args)).await?;
                Ok(rows
                    .iter()
                    .map(|row| row.try_get(0))
                    .collect::<Result<_, _>>()?)
            }
        }
    }

    /// As `numbers`, for at most one row.
    pub(crate) async fn number(&mut self, sql: &str, args: &[i64]) -> Result<Option<i64>> {
        Ok(self.numbers(sql, args).await?.first().copied())
    }
}

fn postgres_args(args: &[i64]) -> Vec<&(dyn ToSql + Sync)> {
    args.iter().map(|arg| arg as &(dyn ToSql + Sync)).collect()
}
