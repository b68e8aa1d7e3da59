//! A model that serves streams: what it is told, and what it has to say.

use crate::model::{Model, Renewal};
use crate::wire::{Answer, Hear, Out};
use etcd_client::proto::{PbLeaseKeepAliveResponse, PbWatchResponse};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Status;

/// The TTL, in seconds, that is made up for leases which are gone.
const LIE: i64 = 3;

#[derive(Default)]
pub struct Server {
    pub model: Model,
    streams: BTreeMap<u64, Hear>,
    /// Renewals of leases that have expired and are not revoked yet: stream and lease.
    waiting: Vec<(u64, i64)>,
    /// Until then, renewals of leases that are gone are answered as if they were not.
    pub lies_until: Duration,
}

/// What is to be said to a client.
pub enum Say {
    Answer(oneshot::Sender<Answer>, Answer),
    Watch(u64, PbWatchResponse),
    Renewal(u64, PbLeaseKeepAliveResponse),
}

impl Say {
    /// The stream that it is on.
    pub fn stream(&self) -> Option<u64> {
        match self {
            Self::Answer(..) => None,
            Self::Watch(stream, _) | Self::Renewal(stream, _) => Some(*stream),
        }
    }
}

impl Server {
    /// Lets time pass.
    pub fn advance(&mut self, to: Duration) -> Vec<Say> {
        self.model.advance(to);
        let waiting = std::mem::take(&mut self.waiting);
        let mut say = Vec::new();
        for (stream, lease) in waiting {
            say.extend(self.renew(stream, lease));
        }
        say.extend(self.watched());
        say
    }

    pub fn carry_out(&mut self, out: Out) -> Vec<Say> {
        let mut say = Vec::new();
        match out {
            Out::Call(call) => {
                let answer = (call.apply)(&mut self.model);
                say.push(Say::Answer(call.reply, answer));
            }
            Out::Open(stream, hear) => drop(self.streams.insert(stream, hear)),
            Out::Watch(stream, ask) if self.streams.contains_key(&stream) => {
                self.model.watch(stream, ask);
            }
            Out::Renew(stream, lease) if self.streams.contains_key(&stream) => {
                say.extend(self.renew(stream, lease));
            }
            Out::Watch(..) | Out::Renew(..) => {}
            Out::HangUp(stream) => {
                self.model.hang_up(stream);
                self.streams.remove(&stream);
            }
        }
        say.extend(self.watched());
        say
    }

    /// Says something; what nobody hears any more is lost.
    pub fn say(&self, say: Say) {
        match say {
            Say::Answer(reply, answer) => drop(reply.send(answer)),
            Say::Watch(stream, answer) => {
                if let Some(Hear::Watch(hear)) = self.streams.get(&stream) {
                    let _gone = hear.send(Ok(answer));
                }
            }
            Say::Renewal(stream, answer) => {
                if let Some(Hear::Renewals(hear)) = self.streams.get(&stream) {
                    let _gone = hear.send(Ok(answer));
                }
            }
        }
    }

    /// Ends a stream with an error.
    pub fn cut(&mut self, stream: u64, error: Status) {
        self.model.hang_up(stream);
        match self.streams.remove(&stream) {
            Some(Hear::Watch(hear)) => drop(hear.send(Err(error))),
            Some(Hear::Renewals(hear)) => drop(hear.send(Err(error))),
            None => {}
        }
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    fn watched(&mut self) -> impl Iterator<Item = Say> + use<> {
        let outbox = self.model.take_outbox().into_iter();
        outbox.map(|(stream, answer)| Say::Watch(stream, answer))
    }

    fn renew(&mut self, stream: u64, id: i64) -> Option<Say> {
        let ttl = match self.model.renew(id) {
            Renewal::Renewed(ttl) => ttl,
            Renewal::Missing if self.model.now() < self.lies_until => LIE,
            Renewal::Missing => 0,
            Renewal::Expired => {
                self.waiting.push((stream, id));
                return None;
            }
        };
        let header = self.model.header();
        Some(Say::Renewal(
            stream,
            PbLeaseKeepAliveResponse { header, id, ttl },
        ))
    }
}
