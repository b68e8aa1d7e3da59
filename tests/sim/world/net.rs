//! The network between processes and members: latencies, losses, cuts, and members that freeze.

use crate::server::Say;
use crate::wire::{Answer, Call, Out, cut};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;

pub const MEMBERS: usize = 3;

/// How often which thing goes wrong with a request, of 1,000.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// It never arrives.
    pub lost: u16,
    /// It is carried out, and the answer is lost.
    pub unanswered: u16,
    /// It is carried out long after it was given up.
    pub late: u16,
    /// It is refused by a member that has no leader.
    pub refused: u16,
    /// The usual way takes up to so many milliseconds, the slow one ten times that.
    pub latency: u64,
    pub slow: u16,
}

/// What is on its way, and when it is to arrive.
pub enum Packet {
    Ask(Link, Out),
    /// The answer to a call is not to arrive.
    AskOnly(Link, Call, Option<Status>),
    Tell(Link, Say),
    /// A call fails without having been carried out.
    Refuse(Call, Status),
}

/// Between a process and a member.
pub type Link = (usize, usize);

/// To a member, and from it.
type Way = usize;
pub const TO: Way = 0;
pub const FROM: Way = 1;

#[derive(Default)]
pub struct Net {
    pub weather: Weather,
    queue: BTreeMap<(Duration, u64), Packet>,
    sent: u64,
    /// When nothing gets through on a link in one direction; it is not lost.
    blocked: BTreeMap<(Link, Way), Vec<(Duration, Duration)>>,
    /// No member takes requests until then.
    pub down_until: Duration,
    /// The link of each stream, and when the last thing arrived there or back.
    streams: BTreeMap<u64, (Link, [Duration; 2])>,
    /// Who asked there waits for ever.
    silent: Vec<oneshot::Sender<Answer>>,
}

impl Net {
    /// Nothing passes on a link in that time.
    pub fn block(&mut self, link: Link, from: Duration, until: Duration) {
        self.block_way(link, TO, from, until);
        self.block_way(link, FROM, from, until);
    }

    /// Nothing passes in one direction.
    pub fn block_way(&mut self, link: Link, way: Way, from: Duration, until: Duration) {
        let blocked = self.blocked.entry((link, way)).or_default();
        blocked.push((from, until));
    }

    /// Everything passes again.
    pub fn heal(&mut self, now: Duration) {
        self.blocked.clear();
        self.down_until = now;
        let latency = self.weather.latency;
        self.weather = Weather {
            latency,
            ..Weather::default()
        };
    }

    /// When the last thing arrives that is on its way on a stream.
    pub fn last_on_a_stream(&self) -> Duration {
        let lasts = self.streams.values().flat_map(|(_, lasts)| lasts);
        lasts.max().copied().unwrap_or_default()
    }

    /// The streams on links that are meant.
    pub fn streams(&self, meant: impl Fn(Link) -> bool) -> Vec<u64> {
        let streams = self.streams.iter().filter(|(_, (link, _))| meant(*link));
        streams.map(|(stream, _)| *stream).collect()
    }

    pub fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    /// Whether it is on a stream that has broken on the way.
    fn is_stray(&self, packet: &Packet) -> bool {
        let Packet::Ask(_, out) = packet else {
            return false;
        };
        out.stream()
            .is_some_and(|stream| !self.streams.contains_key(&stream))
    }

    /// Takes what a process sends.
    pub fn send(&mut self, now: Duration, process: usize, out: Out, rng: &mut Rng) -> &'static str {
        if let Out::Open(stream, _) = out {
            if now < self.down_until {
                // Dropped: to the client, a connection that broke.
                return "in vain";
            }
            let link = (process, rng.usize(..MEMBERS));
            self.streams.insert(stream, (link, [now; 2]));
        }
        let out = match out {
            Out::Call(call) => return self.call(now, (process, rng.usize(..MEMBERS)), call, rng),
            out => out,
        };
        let stream = out.stream().expect("all but calls are on one");
        let Some((link, _)) = self.streams.get(&stream) else {
            return "on a dead stream";
        };
        let link = *link;
        let at = self.in_order(stream, TO, now + self.latency(rng));
        self.push(at, Packet::Ask(link, out));
        ""
    }

    fn call(&mut self, now: Duration, link: Link, call: Call, rng: &mut Rng) -> &'static str {
        let at = now + self.latency(rng);
        let weather = self.weather.clone();
        let (dice, mut edge) = (rng.u16(..1_000), 0);
        let mut is = |chance: u16| {
            edge += chance;
            dice < edge
        };
        let error = rng.bool().then(cut);
        if now < self.down_until || is(weather.refused) {
            self.push(at, Packet::Refuse(call, refused()));
            return "(will be refused)";
        }
        if is(weather.lost) {
            match error {
                Some(error) => self.push(at, Packet::Refuse(call, error)),
                None => self.keep_silent(call.reply),
            }
            return "(will be lost)";
        }
        if is(weather.unanswered) {
            self.push(at, Packet::AskOnly(link, call, error));
            return "(its answer will be lost)";
        }
        if is(weather.late) {
            let late = at + Duration::from_millis(rng.u64(100..8_000));
            self.push(late, Packet::AskOnly(link, call, error));
            return "(will be late)";
        }
        self.push(at, Packet::Ask(link, Out::Call(call)));
        ""
    }

    /// A call that nobody will ever answer.
    pub fn keep_silent(&mut self, reply: oneshot::Sender<Answer>) {
        self.silent.push(reply);
    }

    /// Takes what members answer.
    pub fn answer(&mut self, now: Duration, link: Link, say: Say, rng: &mut Rng) {
        let mut at = now + self.latency(rng);
        let mut link = link;
        if let Some(stream) = say.stream() {
            let Some((of, _)) = self.streams.get(&stream) else {
                return;
            };
            link = *of;
            at = self.in_order(stream, FROM, at);
        }
        self.push(at, Packet::Tell(link, say));
    }

    /// The next that is due.
    pub fn next(&mut self, now: Duration) -> Option<(Duration, Packet)> {
        loop {
            let (at, _) = *self.queue.first_key_value()?.0;
            if at > now {
                return None;
            }
            let (_, packet) = self.queue.pop_first()?;
            if self.is_stray(&packet) {
                continue;
            }
            let Some(later) = self.held_up(at, &packet) else {
                return Some((at, packet));
            };
            self.push(later, packet);
        }
    }

    /// What meets a block arrives when it ends, in order.
    fn held_up(&mut self, at: Duration, packet: &Packet) -> Option<Duration> {
        let (link, stream, way) = match packet {
            Packet::Ask(link, out) => (link, out.stream(), TO),
            Packet::Tell(link, say) => (link, say.stream(), FROM),
            Packet::AskOnly(link, ..) => (link, None, TO),
            Packet::Refuse(..) => return None,
        };
        let blocked = self.blocked.get(&(*link, way))?.iter();
        let ends = blocked.filter(|(from, until)| (*from..*until).contains(&at));
        let end = ends.map(|(_, until)| *until).max()?;
        Some(stream.map_or(end, |stream| self.in_order(stream, way, end)))
    }

    fn in_order(&mut self, stream: u64, way: Way, at: Duration) -> Duration {
        let Some((_, last)) = self.streams.get_mut(&stream) else {
            return at;
        };
        last[way] = at.max(last[way]);
        last[way]
    }

    fn push(&mut self, at: Duration, packet: Packet) {
        self.sent += 1;
        self.queue.insert((at, self.sent), packet);
    }

    fn latency(&self, rng: &mut Rng) -> Duration {
        let usual = rng.u64(1..=1_000 * self.weather.latency);
        let slow = rng.u16(..1_000) < self.weather.slow;
        Duration::from_micros(if slow { usual * 10 } else { usual })
    }
}

pub fn refused() -> Status {
    Status::unavailable("tcp connect error")
}
