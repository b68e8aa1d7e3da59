//! What goes wrong, and when. Each run has some kinds of faults only, so that rare things meet.

use super::holds::{Loss, first};
use super::net::{FROM, MEMBERS, TO, Weather};
use super::{FAULTS, World};
use fastrand::Rng;
use std::time::Duration;

pub struct Faults {
    /// Those still to come, the next one last.
    plan: Vec<(Duration, Fault)>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    FreezeMember,
    CutProcess,
    CutLink,
    Flap,
    BreakStreams,
    Down,
    NewLeader,
    Compact,
    DeleteKey,
    DeletePrefix,
    RevokeLease,
    Lie,
    Pause,
}

const ALL: [Fault; 13] = [
    Fault::FreezeMember,
    Fault::CutProcess,
    Fault::CutLink,
    Fault::Flap,
    Fault::BreakStreams,
    Fault::Down,
    Fault::NewLeader,
    Fault::Compact,
    Fault::DeleteKey,
    Fault::DeletePrefix,
    Fault::RevokeLease,
    Fault::Lie,
    Fault::Pause,
];

impl Faults {
    pub fn choose(world: &mut World) -> Self {
        let rng = &mut world.rng;
        let mut chance = |most| if rng.bool() { rng.u16(..most) } else { 0 };
        world.net.weather = Weather {
            lost: chance(60),
            unanswered: chance(60),
            late: chance(60),
            refused: chance(60),
            slow: chance(100),
            latency: [2, 10, 40][rng.usize(..3)],
        };
        let kinds: Vec<_> = ALL.into_iter().filter(|_| rng.u8(..3) == 0).collect();
        let count = if kinds.is_empty() { 0 } else { rng.usize(..16) };
        let end = u64::try_from(FAULTS.as_millis()).unwrap();
        let mut at: Vec<_> = (0..count).map(|_| rng.u64(..end)).collect();
        at.sort_unstable_by(|a, b| b.cmp(a));
        let plan = at.into_iter();
        let plan = plan.map(|at| (Duration::from_millis(at), kinds[rng.usize(..kinds.len())]));
        let plan = plan.collect();
        world
            .story
            .tell("", format!("{:?} {kinds:?}", world.net.weather));
        Self { plan }
    }

    /// Lets happen what is due.
    pub fn strike(&mut self, world: &mut World) {
        while let Some((_, fault)) = self.plan.pop_if(|(at, _)| *at <= world.now) {
            world.strike(fault);
        }
    }

    /// From now on everything goes well.
    pub fn end(world: &mut World) {
        world.story.tell("", "the faults are over");
        world.net.heal(world.now);
        world.server.lies_until = world.now;
        let pauses = world.hosts.iter().filter_map(|host| host.paused_until);
        let held_up = pauses.fold(world.net.last_on_a_stream(), Duration::max);
        world.healed = Some(world.now.max(held_up));
        // Something that is seen when all is well: an operator's delete.
        if world.rng.bool() {
            world.strike(Fault::DeleteKey);
        }
        for host in &mut world.hosts {
            host.post
                .calm
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

fn some_time(rng: &mut Rng) -> Duration {
    let most = [500, 2_000, 9_000][rng.usize(..3)];
    Duration::from_millis(rng.u64(50..most))
}

impl World {
    fn strike(&mut self, fault: Fault) {
        let until = self.now + some_time(&mut self.rng);
        let (process, member) = (
            self.rng.usize(..self.hosts.len()),
            self.rng.usize(..MEMBERS),
        );
        let mut what = format!("{fault:?}, p{process}, m{member}, until {until:?}");
        match fault {
            Fault::FreezeMember => {
                for process in 0..self.hosts.len() {
                    self.net.block((process, member), self.now, until);
                }
            }
            Fault::CutProcess => self.cut(process, self.now, until),
            Fault::CutLink => self.net.block((process, member), self.now, until),
            Fault::Flap => self.flap(process),
            Fault::BreakStreams => self.break_streams(|link| link.1 == member),
            Fault::Down => {
                self.net.down_until = until;
                self.break_streams(|_| true);
            }
            Fault::NewLeader => self.server.model.new_leader(),
            Fault::Compact => {
                let revision = self.server.model.revision();
                let _done_before = self.server.model.compact(revision);
            }
            Fault::Lie => self.server.lies_until = until,
            Fault::Pause => self.hosts[process].paused_until = Some(until),
            Fault::DeleteKey | Fault::DeletePrefix | Fault::RevokeLease => {
                what = self.operate(fault);
            }
        }
        self.story.tell("FAULT", what);
    }

    fn cut(&mut self, process: usize, from: Duration, until: Duration) {
        for member in 0..MEMBERS {
            self.net.block((process, member), from, until);
        }
    }

    /// Cuts a process off, with instants in which old answers come through, and no request.
    fn flap(&mut self, process: usize) {
        // At first, requests are still carried out, and only their answers are held up.
        let deaf = self.now + Duration::from_millis(self.rng.u64(..1_200));
        let mut from = self.now;
        for _ in 0..3 {
            let until = from + Duration::from_millis(self.rng.u64(300..1_800));
            for member in 0..MEMBERS {
                self.net.block_way((process, member), FROM, from, until);
                self.net.block_way((process, member), TO, deaf, until);
            }
            from = until + Duration::from_millis(self.rng.u64(1..40));
        }
    }

    fn break_streams(&mut self, meant: impl Fn(super::net::Link) -> bool) {
        for stream in self.net.streams(meant) {
            self.net.forget(stream);
            self.server.cut(stream, crate::wire::cut());
        }
    }

    /// What an operator does by hand. Those who lose a lock by it are exempt from some promises.
    fn operate(&mut self, fault: Fault) -> String {
        let model = &mut self.server.model;
        let keys: Vec<_> = model.keys().cloned().collect();
        let Some(victim) = (!keys.is_empty()).then(|| &keys[self.rng.usize(..keys.len())]) else {
            return format!("{fault:?} finds nothing");
        };
        let prefix = victim
            .key
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(0);
        let taken = keys.iter().filter(|kv| match fault {
            Fault::RevokeLease => kv.lease == victim.lease,
            Fault::DeletePrefix => kv.key.starts_with(&victim.key[..=prefix]),
            _ => kv.key == victim.key,
        });
        for kv in taken {
            let key = std::str::from_utf8(&kv.key).unwrap();
            let (name, _) = key.rsplit_once('/').unwrap();
            let this = (kv.create_revision, kv.key.clone());
            let loss = Loss {
                at: self.now,
                had_turn: first(model, name) == Some(this),
            };
            self.taken
                .insert((kv.key.clone(), kv.create_revision), loss);
            if !matches!(fault, Fault::RevokeLease) {
                let ask = etcd_client::proto::PbDeleteRequest {
                    key: kv.key.clone(),
                    ..Default::default()
                };
                model.delete(&ask).unwrap();
            }
        }
        if matches!(fault, Fault::RevokeLease) {
            model.revoke(victim.lease).unwrap();
        }
        format!("{fault:?} at {}", String::from_utf8_lossy(&victim.key))
    }
}
