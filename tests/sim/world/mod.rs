//! A world in one thread: processes, a network, an etcd of three members, an operator.
//!
//! Time goes on in steps of some milliseconds. In each, every process runs on its own clock up
//! to the end of the step; then what it has sent sets out, what has arrived is carried out, and
//! everybody who claims to hold something is checked. All chance comes from one seed.

mod faults;
mod holds;
mod host;
mod net;
mod runs;
mod story;
mod worker;

use crate::server::{Say, Server};
use crate::wire::{Out, Outbox};
use fastrand::Rng;
use faults::Faults;
use holds::{Holds, Taken};
use host::Host;
use net::{Net, Packet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use story::Story;

/// The names that everybody wants. One is below another.
pub const DOORS: [&str; 3] = ["a", "a/b", "c"];

/// How long the faults last, and how long the world may then take to come to rest.
const FAULTS: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(120);

/// Within that, who has lost a lock to an operator is told, once the faults are over.
const TOLD: Duration = Duration::from_secs(3);

/// The most requests of one process in a second.
const MOST: usize = 400;

pub struct World {
    now: Duration,
    rng: Rng,
    outbox: Outbox,
    server: Server,
    net: Net,
    hosts: Vec<Host>,
    holds: Holds,
    taken: Taken,
    /// When the faults were over, and what they had held up had arrived.
    healed: Option<Duration>,
    story: Story,
    /// How many requests each process has sent in this second.
    sent: Vec<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        // The library's own jitter and lease ids come from here.
        fastrand::seed(seed);
        let (story, holds, outbox) = (Story::default(), Holds::default(), Outbox::default());
        let mut rng = Rng::with_seed(seed);
        let crowd = rng.u8(..4) == 0;
        let processes = if crowd { 4 } else { rng.usize(2..=4) };
        let hosts: Vec<_> = (0..processes)
            .map(|process| Host::start(process, &outbox, &holds, &story, crowd, &mut rng))
            .collect();
        Self {
            now: Duration::ZERO,
            rng,
            outbox,
            server: Server::default(),
            net: Net::default(),
            sent: vec![0; hosts.len()],
            hosts,
            holds,
            taken: Taken::default(),
            healed: None,
            story,
        }
    }

    /// Everything that follows from a seed: the story, and what was wrong.
    fn run(seed: u64) -> (String, Option<String>) {
        let mut world = Self::new(seed);
        let mut faults = Faults::choose(&mut world);
        while world.now < FAULTS && !world.story.is_wrong() {
            faults.strike(&mut world);
            world.step();
        }
        Faults::end(&mut world);
        let at_work = |world: &Self| {
            let at_work = |host: &Host| host.post.at_work.load(Ordering::Relaxed);
            world.hosts.iter().map(at_work).sum::<usize>()
        };
        world.until("everybody who waits has got in", |world| {
            at_work(world) == 0
        });
        // Of a process, one at most goes on: whoever observes an election.
        world.until("no key or watch is left behind", |world| {
            let model = &world.server.model;
            model.keys().next().is_none() && model.watches() <= world.hosts.len()
        });
        for host in &world.hosts {
            host.post.closing.store(true, Ordering::Relaxed);
        }
        world.until("no lease, watch or stream is left behind", |world| {
            let model = &world.server.model;
            let leases = model.lease_ids().next().is_none();
            leases && model.watches() == 0 && world.server.streams() == 0
        });
        // Whatever the tasks still tell while they are dropped is no part of the story.
        let end = world.story.end();
        drop(world);
        end
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = self.now + PATIENCE;
        while !self.story.is_wrong() && !done(self) {
            self.step();
            if self.now > deadline {
                self.story.wrong(format!("not within {PATIENCE:?}: {what}"));
            }
        }
        self.story.tell("", what);
    }

    fn step(&mut self) {
        let to = self.now + Duration::from_micros(self.rng.u64(1_000..30_000));
        for host in &mut self.hosts {
            host.run(to);
        }
        self.check_gone();
        if self.now.as_secs() != to.as_secs() {
            self.count();
        }
        self.now = to;
        self.story.set_now(to);
        for (process, out) in self.outbox.take() {
            self.send(process, out);
        }
        while let Some((at, packet)) = self.net.next(to) {
            self.advance(at);
            self.arrive(packet);
        }
        self.advance(to);
        for (process, host) in self.hosts.iter().enumerate() {
            if !host.is_paused() {
                let (model, taken) = (&self.server.model, &self.taken);
                let told = to.saturating_sub(TOLD);
                let told = self.healed.filter(|at| *at < told).map(|_| told);
                host.ask(|| self.holds.check(process, model, taken, told, &self.story));
            }
        }
    }

    /// What is said to be gone was, before this step; a copy of its grant may have come late.
    fn check_gone(&self) {
        let model = &self.server.model;
        for (process, host) in self.hosts.iter().enumerate() {
            for lease in host.post.gone.lock().unwrap().drain(..) {
                let lives = model.lease_ids().any(|id| id == lease);
                if lives && !model.has_ended(lease) {
                    let what = format!("p{process} says that lease {lease:x} is gone, which lives");
                    self.story.wrong(what);
                }
            }
        }
    }

    /// No loop is without a pause.
    fn count(&mut self) {
        for (process, sent) in self.sent.iter_mut().enumerate() {
            if *sent > MOST {
                self.story.wrong(format!(
                    "p{process} has sent {sent} requests within a second"
                ));
            }
            *sent = 0;
        }
    }

    fn send(&mut self, process: usize, out: Out) {
        // Whoever hangs up has asked for nothing more.
        self.sent[process] += usize::from(!matches!(out, Out::HangUp(_)));
        let what = describe(&out);
        let fate = self.net.send(self.now, process, out, &mut self.rng);
        self.story
            .tell(format!("p{process}"), format!("{what} {fate}"));
    }

    fn advance(&mut self, to: Duration) {
        let say = self.server.advance(to);
        self.answer(say, (0, 0));
    }

    fn answer(&mut self, say: Vec<Say>, link: net::Link) {
        for say in say {
            self.net.answer(self.now, link, say, &mut self.rng);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Ask(link, out) => {
                if let Out::HangUp(stream) = out {
                    self.net.forget(stream);
                }
                self.story.tell(
                    format!("m{}", link.1),
                    format!("p{}: {}", link.0, describe(&out)),
                );
                let say = self.server.carry_out(out);
                self.answer(say, link);
            }
            Packet::AskOnly(link, call, error) => {
                let what = format!("p{}: {} (unanswered)", link.0, call.what);
                self.story.tell(format!("m{}", link.1), what);
                let answer = (call.apply)(&mut self.server.model);
                drop(answer);
                let say = self.server.advance(self.server.model.now());
                self.answer(say, link);
                if let Some(error) = error {
                    drop(call.reply.send(Err(error)));
                } else {
                    self.net.keep_silent(call.reply);
                }
            }
            Packet::Tell(link, say) => {
                self.story
                    .tell(format!("p{}", link.0), format!("hears {}", heard(&say)));
                self.server.say(say);
            }
            Packet::Refuse(call, error) => drop(call.reply.send(Err(error))),
        }
    }
}

fn describe(out: &Out) -> String {
    match out {
        Out::Call(call) => call.what.clone(),
        Out::Open(stream, _) => format!("opens stream {stream}"),
        Out::Watch(stream, ask) => format!("stream {stream}: {}", crate::tell::watch(ask)),
        Out::Renew(stream, lease) => format!("stream {stream}: renew {lease:x}"),
        Out::HangUp(stream) => format!("hangs up stream {stream}"),
    }
}

fn heard(say: &Say) -> String {
    match say {
        Say::Answer(_, Ok(_)) => "an answer".to_owned(),
        Say::Answer(_, Err(error)) => error.message().to_owned(),
        Say::Watch(stream, answer) => format!("stream {stream}: {}", crate::tell::watched(answer)),
        Say::Renewal(stream, answer) => {
            format!(
                "stream {stream}: {:x} lives for {} s",
                answer.id, answer.ttl
            )
        }
    }
}

/// Gives a future up, drops it, after so many polls; `None` if that came first.
async fn giving_up<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|cx| {
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polled >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
