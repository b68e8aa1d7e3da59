//! The resource: a tiny server that checks tokens, and the client that the schedulers call it with.
//!
//! It keeps one number, the largest token that it was ever shown, and refuses whoever comes with a
//! smaller one. In a database that is a column and a condition; no row was changed: refused.
//!
//! ```sql
//! -- begin: show the token before you read
//! UPDATE job SET token = $token WHERE id = $job AND token <= $token RETURNING tick;
//! -- write
//! UPDATE job SET token = $token, tick = $tick WHERE id = $job AND token <= $token;
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// As if the job had run before: ticks that begin at 101 are not mistaken for tokens.
const TICKS_BEFORE: u64 = 100;

/// Where the store is.
pub(crate) struct Store {
    address: String,
}

/// What the store says to a request.
pub(crate) enum Answer {
    /// It was done; the last tick that is written now.
    Accepted { tick: u64 },
    /// Somebody has come with this token, which is newer.
    Refused { newest: u64 },
}

impl Store {
    pub(crate) fn at(address: &str) -> Self {
        let address = address.to_owned();
        Self { address }
    }

    /// Shows the token and asks for the last tick that was written.
    pub(crate) fn begin(&self, token: u64) -> io::Result<Answer> {
        self.ask(&format!("begin {token}"))
    }

    pub(crate) fn write(&self, token: u64, tick: u64) -> io::Result<Answer> {
        self.ask(&format!("write {token} {tick}"))
    }

    fn ask(&self, request: &str) -> io::Result<Answer> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        match words(&answer)[..] {
            ["accepted", tick] => Ok(Answer::Accepted {
                tick: number(tick)?,
            }),
            ["refused", newest] => Ok(Answer::Refused {
                newest: number(newest)?,
            }),
            _ => Err(nonsense(&answer)),
        }
    }
}

/// What the store holds.
#[derive(Default)]
pub(crate) struct Book {
    /// The largest token that was ever shown.
    newest: u64,
    /// The ticks that were written, each with the token it was written with.
    pub(crate) written: Vec<(u64, u64)>,
    /// Those that were refused.
    pub(crate) refused: Vec<(u64, u64)>,
}

impl Book {
    /// The check. Nothing may come between it and what the request does.
    fn admit(&mut self, token: u64) -> bool {
        self.newest = self.newest.max(token);
        token == self.newest
    }

    fn serve(&mut self, request: &str) -> io::Result<Answer> {
        let (token, tick) = match words(request)[..] {
            ["begin", token] => (number(token)?, None),
            ["write", token, tick] => (number(token)?, Some(number(tick)?)),
            _ => return Err(nonsense(request)),
        };
        if !self.admit(token) {
            self.refused.extend(tick.map(|tick| (tick, token)));
            let newest = self.newest;
            return Ok(Answer::Refused { newest });
        }
        self.written.extend(tick.map(|tick| (tick, token)));
        let last = self.written.last();
        let tick = last.map_or(TICKS_BEFORE, |(tick, _)| *tick);
        Ok(Answer::Accepted { tick })
    }
}

/// The store itself: serves on a port of its own until this process ends.
pub(crate) struct Server {
    pub(crate) address: String,
    book: Arc<Mutex<Book>>,
}

impl Server {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let book = Arc::<Mutex<Book>>::default();
        let server = Self {
            address,
            book: book.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = book.clone();
                // A request that cannot be read or answered is its client's trouble.
                std::thread::spawn(move || answer(stream, &book).ok());
            }
        });
        Ok(server)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

fn answer(mut stream: TcpStream, book: &Mutex<Book>) -> io::Result<()> {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let answer = lock(book).serve(&request)?;
    match answer {
        Answer::Accepted { tick } => writeln!(stream, "accepted {tick}"),
        Answer::Refused { newest } => writeln!(stream, "refused {newest}"),
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn number(word: &str) -> io::Result<u64> {
    word.parse().map_err(|_| nonsense(word))
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot read {what:?}"))
}
