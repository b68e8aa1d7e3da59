//! Several etcd processes that are one cluster.

use etcd_client::Client;

use super::client::connect;
use super::etcd::Member;
use super::setup::Setup;
use super::wait::{ensure, soon};

/// Members of one cluster.
pub struct Cluster {
    pub members: Vec<Member>,
}

impl Cluster {
    /// Starts a cluster and waits until every member serves.
    pub async fn start(size: usize) -> Self {
        Setup::default().many(size).await
    }

    /// Every member's endpoint, in order.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Member::endpoint).collect()
    }

    /// A client of all members, unconfigured.
    pub async fn client(&self) -> Client {
        connect(&self.endpoints()).await
    }

    /// Waits until a running member leads, by its own word and in the highest term that any running one knows.
    pub async fn leader_index(&self) -> usize {
        soon("some member leads", async || {
            let mut seen = Vec::new();
            for (i, member) in self.members.iter().enumerate() {
                if let Some(status) = member.status().await {
                    let me = status.header().expect("a header").member_id();
                    seen.push((status.raft_term(), status.leader() == me, i));
                }
            }
            let last = seen.iter().max().copied();
            last.filter(|(_, leads, _)| *leads)
                .map(|(_, _, i)| i)
                .ok_or(format!("(term, leads, member): {seen:?}"))
        })
        .await
    }

    /// The member that leads.
    pub async fn leader(&self) -> &Member {
        &self.members[self.leader_index().await]
    }

    /// The members that do not lead, the dead and the frozen among them.
    pub async fn followers(&self) -> Vec<usize> {
        let leader = self.leader_index().await;
        (0..self.members.len()).filter(|i| *i != leader).collect()
    }

    /// Makes another member the leader, by the operator's means.
    pub async fn move_leader(&self, to: usize) {
        // Who leads may change meanwhile, or nobody may for a while.
        soon("the wanted member leads", async || {
            if self.leader_index().await == to {
                return Ok(());
            }
            let status = self.members[to].status().await;
            let status = status.ok_or("the member to lead does not answer")?;
            let id = status.header().expect("a header").member_id();
            let mut maintenance = self.leader().await.client().await.maintenance_client();
            let moved = maintenance.move_leader(id).await;
            Err(moved.map_or_else(|error| error.to_string(), |_| "another leads".to_owned()))
        })
        .await;
    }
}
