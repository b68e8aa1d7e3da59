//! One connection through the proxy.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::rules::{Flow, Mode, Rules, Shared, Way};

/// Most bytes that wait in one direction because of a delay.
const MOST_WAITING: usize = 1 << 20;

/// Carries bytes between client and target until both have ended, or either fails, or the rules demand a reset.
pub async fn serve(
    number: u64,
    mut client: TcpStream,
    target: SocketAddr,
    rules: watch::Receiver<Rules>,
    shared: &Shared,
    since: u64,
) {
    let torn = AtomicBool::new(false);
    let mut server = None;
    let carried = async {
        // A server that is out of reach must not see the connection either.
        let mut open = rules.clone();
        open.wait_for(|rules| rules.mode.flow(Way::Up) == Flow::Pass)
            .await
            .map_err(io::Error::other)?;
        let server = server.insert(TcpStream::connect(target).await?);
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let up = Pump {
            way: Way::Up,
            moved: &shared.up,
            lost: &shared.lost,
            torn: &torn,
        };
        let down = Pump {
            way: Way::Down,
            moved: &shared.down,
            ..up
        };
        tokio::try_join!(
            up.run(from_client, to_server, rules.clone()),
            down.run(from_server, to_client, rules.clone()),
        )
    };
    let ended_well = tokio::select! {
        biased;
        () = doomed(number, rules.clone(), shared, since, &torn) => false,
        carried = carried => carried.is_ok(),
    };
    if !ended_well {
        // Dropped like this, a socket sends RST.
        for socket in [Some(client), server].into_iter().flatten() {
            socket.set_zero_linger().ok();
        }
    }
}

/// Ends when the connection is to be reset; until then notes that it obeys the rules.
async fn doomed(
    number: u64,
    mut rules: watch::Receiver<Rules>,
    shared: &Shared,
    since: u64,
    torn: &AtomicBool,
) {
    loop {
        let now = *rules.borrow_and_update();
        let useless = torn.load(Relaxed) && now.mode == Mode::Pass;
        if now.mode == Mode::Cut || now.reset_at > since || useless {
            return;
        }
        shared.open.lock().unwrap().insert(number, now.version);
        if rules.changed().await.is_err() {
            return;
        }
    }
}

/// Chunks read and not written yet, each with the moment before which it may not be written.
type Waiting = VecDeque<(Instant, Vec<u8>)>;

/// One direction of a connection.
#[derive(Clone, Copy)]
struct Pump<'a> {
    way: Way,
    moved: &'a AtomicU64,
    lost: &'a AtomicU64,
    /// Set once bytes are missing in the stream.
    torn: &'a AtomicBool,
}

impl Pump<'_> {
    async fn run(
        &self,
        from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        mut rules: watch::Receiver<Rules>,
    ) -> io::Result<()> {
        let mut waiting = Waiting::new();
        let mut ended = false;
        loop {
            if ended && waiting.is_empty() {
                return to.shutdown().await;
            }
            let flow = rules.borrow_and_update().mode.flow(self.way);
            if flow == Flow::Lose {
                waiting
                    .drain(..)
                    .for_each(|(_, bytes)| self.lose(bytes.len()));
            }
            let due = waiting.front().map(|(due, _)| *due);
            let room = waiting.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() < MOST_WAITING;
            tokio::select! {
                changed = rules.changed() => changed.map_err(io::Error::other)?,
                ready = from.readable(), if flow != Flow::Keep && room && !ended => {
                    ready?;
                    ended = self.read(&from, &rules, &mut waiting)?;
                }
                ready = writable_at(&to, due), if flow == Flow::Pass && due.is_some() => {
                    ready?;
                    self.write(&to, &rules, &mut waiting)?;
                }
            }
        }
    }

    /// Reads one chunk as the rules of this moment say; true at the end of the stream. While we look at the rules
    /// nobody can change them, so that no byte flows under a rule that is over.
    fn read(
        &self,
        from: &ReadHalf<'_>,
        rules: &watch::Receiver<Rules>,
        waiting: &mut Waiting,
    ) -> io::Result<bool> {
        let now = rules.borrow();
        let flow = now.mode.flow(self.way);
        if flow == Flow::Keep {
            return Ok(false);
        }
        let mut bytes = vec![0; 16 * 1024];
        match from.try_read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(count) if flow == Flow::Lose => self.lose(count),
            Ok(count) => {
                bytes.truncate(count);
                waiting.push_back((Instant::now() + now.delay, bytes));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    fn write(
        &self,
        to: &WriteHalf<'_>,
        rules: &watch::Receiver<Rules>,
        waiting: &mut Waiting,
    ) -> io::Result<()> {
        let now = rules.borrow();
        let Some((_, bytes)) = waiting.front_mut() else {
            return Ok(());
        };
        if now.mode.flow(self.way) != Flow::Pass {
            return Ok(());
        }
        match to.try_write(bytes) {
            Ok(count) => {
                self.moved.fetch_add(count as u64, Relaxed);
                bytes.drain(..count);
                if bytes.is_empty() {
                    waiting.pop_front();
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn lose(&self, count: usize) {
        self.torn.store(true, Relaxed);
        self.lost.fetch_add(count as u64, Relaxed);
    }
}

async fn writable_at(to: &WriteHalf<'_>, due: Option<Instant>) -> io::Result<()> {
    sleep_until(due.unwrap_or_else(|| Instant::now() + Duration::from_secs(1))).await;
    to.writable().await
}
