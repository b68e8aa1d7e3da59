//! What goes wrong with members and between them.

use std::time::Duration;

use etcd_client::{Client, Error};
use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use crate::book::clock;
use crate::stage::Stage;
use crate::support::{Member, Proxy, soon};
use crate::worker::TTL;

const MILLISECOND: Duration = Duration::from_millis(1);

/// How long an operator waits for an answer, before the next try.
const REQUEST: Duration = Duration::from_secs(3);

/// The longest that a member is frozen. A leader that was frozen for so long that it has seen no renewal of a lease in
/// its TTL revokes that lease when it goes on, though its successor has seen them: etcd breaks its word then, and the
/// crate promises nothing. A lease is renewed every TTL/3, and another second is for a busy machine.
const FROZEN: Duration = Duration::from_secs(3);
const _: () = assert!(FROZEN.as_millis() + 1_000 <= TTL.as_millis() * 2 / 3);

impl Stage {
    /// One fault after the other befalls the members and the lines between them; after each, somebody gets in.
    pub async fn trouble_members(&self, mut rng: Rng, until: Instant) {
        while Instant::now() < until {
            sleep(rng.u32(100..1_000) * MILLISECOND).await;
            let healed = self.strike(&mut rng).await;
            self.somebody_gets_in(healed).await;
        }
    }

    /// Gives when it was over.
    async fn strike(&self, rng: &mut Rng) -> u64 {
        let time = rng.u32(200..6_000) * MILLISECOND;
        let which = rng.usize(..3);
        let member = &self.cluster.members[which];
        let other = &self.cluster.members[(which + 1) % 3];
        match rng.u8(..13) {
            0 => {
                self.count("member killed");
                member.kill();
                self.bring_back(&[member], time).await
            }
            1 => {
                self.count("two members killed");
                member.kill();
                other.kill();
                self.bring_back(&[member, other], time).await
            }
            2 => {
                self.count("member told to end");
                member.term().await;
                self.bring_back(&[member], time).await
            }
            3 => {
                self.count("member frozen");
                member.stop();
                sleep(time.min(FROZEN)).await;
                member.cont();
                clock()
            }
            4 => {
                self.count("leader frozen");
                let leader = self.cluster.leader().await;
                leader.stop();
                sleep(time.min(FROZEN)).await;
                leader.cont();
                clock()
            }
            5 => {
                self.count("member cut off from the others");
                self.links.of(which).for_each(Proxy::hold);
                sleep(time).await;
                self.links.heal();
                clock()
            }
            6 => {
                self.count("member half cut off from the others");
                let faults: [fn(&Proxy); 4] =
                    [Proxy::heal, Proxy::hold, Proxy::hold_answers, Proxy::cut];
                self.links
                    .of(which)
                    .for_each(|line| faults[rng.usize(..4)](line));
                sleep(time).await;
                self.links.heal();
                clock()
            }
            7 => {
                self.count("lines between members reset");
                self.links.of(which).for_each(Proxy::reset_all);
                clock()
            }
            8 => {
                self.count("lines between members slow");
                let delay = rng.u32(10..150) * MILLISECOND;
                self.links.of(which).for_each(|line| line.delay(delay));
                sleep(time).await;
                self.links.heal();
                clock()
            }
            9 => {
                self.count("leader moved");
                let followers = self.cluster.followers().await;
                self.cluster.move_leader(followers[rng.usize(..2)]).await;
                clock()
            }
            10 => {
                self.count("compaction");
                self.compact().await;
                clock()
            }
            11 => {
                self.count("defragmentation");
                let mut maintenance = member.client().await.maintenance_client();
                // It may not know of a leader yet, after what was done to it before.
                soon("it is defragmented", async || {
                    let done = maintenance.defragment().await;
                    done.map(drop).map_err(|error| error.to_string())
                })
                .await;
                clock()
            }
            _ => {
                self.count("member's data lost");
                self.lose_data(member).await
            }
        }
    }

    async fn bring_back(&self, members: &[&Member], time: Duration) -> u64 {
        sleep(time).await;
        for member in members {
            member.spawn();
        }
        let healed = clock();
        for member in members {
            member.ready().await;
        }
        healed
    }

    /// What operators do about it: the member is taken out of the cluster and comes back as a new one.
    async fn lose_data(&self, member: &Member) -> u64 {
        member.kill();
        let mut client = self.cluster.client().await;
        // etcd lets a change of members wait without end if it was proposed while nobody led.
        soon("the member without data is taken out", async || {
            let taken_out = timeout(REQUEST, take_out(&mut client, member.peer()));
            taken_out.await.unwrap_or(Err("no answer".to_owned()))
        })
        .await;
        soon("it is taken in anew", async || {
            let taken_in = timeout(REQUEST, client.member_add([member.peer()], None));
            match taken_in.await.map_err(|_elapsed| "no answer")? {
                Err(error) if !error.to_string().contains("Peer URLs already exists") => {
                    Err(error.to_string())
                }
                _added_now_or_before => Ok(()),
            }
        })
        .await;
        member.spawn_empty();
        let healed = clock();
        member.ready().await;
        healed
    }

    async fn compact(&self) {
        let mut kv = self.cluster.client().await.kv_client();
        soon("all revisions are compacted", async || {
            let now = kv
                .get("chaos", None)
                .await
                .map_err(|error| error.to_string())?;
            let revision = now.header().expect("a header").revision();
            let compacted = kv.compact(revision, None).await;
            compacted.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

async fn take_out(client: &mut Client, peer: &str) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let members = client.member_list().await.map_err(text)?;
    let mut members = members.members().iter();
    if let Some(member) = members.find(|member| member.peer_urls() == [peer]) {
        client.member_remove(member.id()).await.map_err(text)?;
    }
    Ok(())
}
