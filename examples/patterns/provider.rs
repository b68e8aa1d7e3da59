//! A payment provider as there are many: it takes a call every so often and refuses others, it remembers idempotency
//! keys, and it has never heard of fencing tokens.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Between two calls.
pub(crate) const PACE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Provider(Mutex<Books>);

#[derive(Default)]
struct Books {
    last_call: Option<Instant>,
    refused: usize,
    loses_next_answer: bool,
    keys: BTreeSet<String>,
    charged: Vec<i64>,
}

/// Why there is no receipt.
#[derive(Debug, PartialEq)]
pub(crate) enum Failed {
    /// 429: come again after this.
    TooMany(Duration),
    /// Nobody knows whether it was charged.
    NoAnswer,
}

impl Provider {
    /// Charges an invoice; with a key that it knows already, says yes and does nothing.
    pub(crate) fn charge(&self, invoice: i64, key: Option<String>) -> Result<(), Failed> {
        let mut books = self.books();
        let since = books.last_call.map_or(PACE, |last| last.elapsed());
        if since < PACE {
            books.refused += 1;
            return Err(Failed::TooMany(PACE.saturating_sub(since)));
        }
        books.last_call = Some(Instant::now());
        let is_new = key.is_none_or(|key| books.keys.insert(key));
        if is_new {
            books.charged.push(invoice);
        }
        if std::mem::take(&mut books.loses_next_answer) {
            return Err(Failed::NoAnswer);
        }
        Ok(())
    }

    /// As `charge`, for whoever waits as he is told.
    pub(crate) async fn charge_in_time(
        &self,
        invoice: i64,
        key: Option<String>,
    ) -> Result<(), Failed> {
        loop {
            match self.charge(invoice, key.clone()) {
                Err(Failed::TooMany(wait)) => sleep(wait).await,
                done => return done,
            }
        }
    }

    pub(crate) fn lose_next_answer(&self) {
        self.books().loses_next_answer = true;
    }

    /// How many calls it has refused so far.
    pub(crate) fn refused(&self) -> usize {
        self.books().refused
    }

    /// How often an invoice was charged.
    pub(crate) fn charged(&self, invoice: i64) -> usize {
        let books = self.books();
        books.charged.iter().filter(|n| **n == invoice).count()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
