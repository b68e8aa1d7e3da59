//! A connection of our own making, `etcd_lock::connect`:
//! - requests go to the raft leader, and to the next member when something is wrong with it: killed, frozen, silent,
//!   cut off from the others;
//! - where there is one member only, a line that died is replaced;
//! - endpoints come and go; nothing is left when the client is dropped; bad input is told.
//!
//! With `ETCD_TEST_CONNECTION=ours` the whole suite runs on such connections.

use std::time::Duration;

use etcd_lock::etcd_client::{Client, ConnectOptions, Error, GetOptions, GetResponse};
use tokio::time::{sleep, timeout};

use crate::support::{Cluster, Etcd, Guarded, Proxy, Setup, ensure, mutex, session, soon, within};

const SECOND: Duration = Duration::from_secs(1);

/// Long for an answer, even on a busy machine.
const SOON: Duration = Duration::from_secs(5);

async fn connect(endpoints: &[String]) -> Client {
    etcd_lock::connect(endpoints, None).await.unwrap()
}

/// Members with a line to each of them.
struct Lined {
    cluster: Cluster,
    lines: Vec<Proxy>,
}

impl Lined {
    async fn start() -> Self {
        let cluster = Cluster::start(3).await;
        let mut lines = Vec::new();
        for endpoint in cluster.endpoints() {
            lines.push(Proxy::to(&endpoint).await);
        }
        Self { cluster, lines }
    }

    fn endpoints(&self) -> Vec<String> {
        self.lines.iter().map(Proxy::endpoint).collect()
    }

    async fn client(&self) -> Client {
        connect(&self.endpoints()).await
    }

    /// Locks and releases, and sees that it is the leader alone who is asked.
    async fn only_one_is_asked(&self, leader: usize, client: Client) {
        let bytes = self.bytes_of(Box::pin(cycles(client, "a", 50))).await;
        for (member, bytes) in bytes.into_iter().enumerate() {
            // What is closed says good-bye.
            assert_eq!(bytes > 1000, member == leader, "{bytes} bytes to m{member}");
        }
    }

    /// Waits until requests go to the leader alone.
    async fn soon_only_one_is_asked(&self, leader: usize, client: &Client) {
        within(10 * SECOND, "the leader alone is asked", async || {
            let bytes = self.bytes_of(ask(client)).await;
            let others: u64 = bytes.iter().sum::<u64>() - bytes[leader];
            ensure(
                bytes[leader] > 0 && others == 0,
                format!("{bytes:?}, m{leader} leads"),
            )
        })
        .await;
    }

    /// How many bytes each member gets while something is done.
    async fn bytes_of(&self, done: impl Future) -> Vec<u64> {
        let bytes = || self.lines.iter().map(Proxy::bytes_up).collect::<Vec<_>>();
        let before = bytes();
        done.await;
        let now = bytes().into_iter().zip(before);
        now.map(|(now, before)| now - before).collect()
    }
}

/// Asks for a key that is not there, of whatever member, which need not know anybody else.
async fn ask(client: &Client) -> Result<GetResponse, Error> {
    let options = GetOptions::new().with_serializable();
    client.kv_client().get("nothing", Some(options)).await
}

async fn cycles(client: Client, name: &str, count: usize) {
    let session = session(client, 10).await;
    let mutex = mutex(&session, name);
    for _ in 0..count {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    session.close().await.unwrap();
}

#[tokio::test]
async fn requests_go_to_the_raft_leader_alone_whoever_that_is() {
    let lined = Lined::start().await;
    for moved in [false, true] {
        let leader = lined.cluster.leader_index().await;
        if moved {
            lined.cluster.move_leader((leader + 1) % 3).await;
        }
        let leader = lined.cluster.leader_index().await;
        let client = lined.client().await;
        lined.only_one_is_asked(leader, client).await;
    }
}

/// A cluster, the member that a client asks first, and the client, which knows two members: neither leads, so the cluster
/// does not mind what becomes of one.
async fn two_followers() -> (Cluster, usize, Client) {
    let cluster = Cluster::start(3).await;
    let followers = cluster.followers().await;
    let endpoints: Vec<_> = followers
        .iter()
        .map(|i| cluster.members[*i].endpoint())
        .collect();
    let client = connect(&endpoints).await;
    ask(&client).await.unwrap();
    (cluster, followers[0], client)
}

#[tokio::test]
async fn a_member_killed_costs_one_request_at_most_of_who_never_asks_again() {
    let (cluster, asked, client) = two_followers().await;
    cluster.members[asked].kill();
    let mut failed = 0;
    for _ in 0..300 {
        failed += u32::from(ask(&client).await.is_err());
    }
    assert!(failed <= 1, "{failed} of 300 requests have failed");
}

#[tokio::test]
async fn a_member_frozen_costs_those_who_ask_within_a_fifth_of_a_second_no_more() {
    let (cluster, asked, client) = two_followers().await;
    let frozen = &cluster.members[asked];
    frozen.stop();
    let hangs = tokio::spawn({
        let client = client.clone();
        async move { ask(&client).await }
    });
    sleep(SECOND / 4).await;
    for _ in 0..100 {
        timeout(SOON, ask(&client)).await.unwrap().unwrap();
    }
    assert!(!hangs.is_finished());
    frozen.cont();
    timeout(SOON, hangs).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_leader_that_goes_on_after_a_while_gets_the_requests_again() {
    let lined = Lined::start().await;
    let client = lined.client().await;
    let leader = lined.cluster.leader_index().await;
    // For less than the others would wait before they elect another.
    lined.lines[leader].hold();
    let abandoned = timeout(SECOND / 4, ask(&client)).await;
    abandoned.unwrap_err();
    ask(&client).await.unwrap();
    lined.lines[leader].heal();
    lined.soon_only_one_is_asked(leader, &client).await;
}

#[tokio::test]
async fn members_that_were_silent_once_are_asked_when_the_others_are_gone() {
    let lined = Lined::start().await;
    // Two that do not lead, so that the cluster does not mind what becomes of one.
    let followers = lined.cluster.followers().await;
    let theirs: Vec<_> = followers.iter().map(|i| &lined.lines[*i]).collect();
    let endpoints: Vec<_> = theirs.iter().map(|line| line.endpoint()).collect();
    let client = connect(&endpoints).await;
    ask(&client).await.unwrap();
    for line in &theirs {
        line.hold();
    }
    for _ in 0..6 {
        timeout(SECOND / 4, ask(&client)).await.unwrap_err();
    }
    for line in &theirs {
        line.heal();
    }
    theirs[0].cut();
    let mut failed = 0;
    for _ in 0..100 {
        // What is under way when a line breaks cannot be told.
        failed += u32::from(timeout(SOON, ask(&client)).await.unwrap().is_err());
    }
    assert!(failed <= 1, "{failed} of 100 requests have failed");
}

#[tokio::test]
async fn a_line_that_is_silent_is_left_for_another() {
    let lined = Lined::start().await;
    let client = lined.client().await;
    let leader = lined.cluster.leader_index().await;
    lined.lines[leader].hold();
    timeout(SECOND / 4, ask(&client)).await.unwrap_err();
    for _ in 0..100 {
        timeout(SOON, ask(&client)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_member_that_the_others_have_left_behind_is_left_by_requests_too() {
    let (cluster, links) = Setup::default().linked(3).await;
    let client = connect(&cluster.endpoints()).await;
    let leader = cluster.leader_index().await;
    links.of(leader).for_each(Proxy::hold);
    // A read that the whole cluster has to agree to; the member may be asked, and fail, a few times.
    let mut kv = client.kv_client();
    within(10 * SECOND, "the others are asked", async || {
        let answer = timeout(SECOND, kv.get("nothing", None)).await;
        ensure(matches!(answer, Ok(Ok(_))), format!("{answer:?}"))
    })
    .await;
    for _ in 0..100 {
        let answer = timeout(SOON, client.kv_client().get("nothing", None)).await;
        answer.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_leader_gets_the_requests_again_after_it_was_killed_and_another_elected() {
    let lined = Lined::start().await;
    let client = lined.client().await;
    ask(&client).await.unwrap();
    let killed = lined.cluster.leader_index().await;
    lined.cluster.members[killed].kill();
    ask(&client).await.ok();
    let leader = lined.cluster.leader_index().await;
    assert_ne!(leader, killed);
    lined.soon_only_one_is_asked(leader, &client).await;
}

#[tokio::test]
async fn the_only_member_is_reached_anew_when_the_line_to_it_has_died() {
    let etcd = Etcd::start().await;
    let line = Proxy::to(&etcd.endpoint()).await;
    let client = connect(&[line.endpoint()]).await;
    ask(&client).await.unwrap();
    assert_eq!(line.opened(), 1);
    line.hold();
    within(5 * SECOND, "a new connection is tried", async || {
        timeout(SECOND / 4, ask(&client)).await.unwrap_err();
        let opened = line.opened();
        ensure(opened > 1, format!("{opened} opened"))
    })
    .await;
    line.heal();
    timeout(SOON, ask(&client)).await.unwrap().unwrap();
}

#[tokio::test]
async fn with_nobody_there_a_request_says_so_at_once_and_later_ones_are_answered() {
    let etcd = Etcd::start().await;
    let client = connect(&[etcd.endpoint()]).await;
    etcd.kill();
    let refused = async || timeout(SOON, ask(&client)).await.unwrap().unwrap_err();
    // The first may have been under way when the connection broke.
    drop(refused().await);
    let text = refused().await.to_string();
    assert!(
        text.contains("not sent to etcd") && text.contains(&etcd.endpoint()),
        "{text}"
    );
    assert!(text.contains("refused"), "{text}");
    etcd.restart().await;
    ask(&client).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_ended_meanwhile_costs_no_request() {
    let etcd = Etcd::start().await;
    let client = connect(&[etcd.endpoint()]).await;
    ask(&client).await.unwrap();
    etcd.kill();
    etcd.restart().await;
    ask(&client).await.unwrap();
}

#[tokio::test]
async fn endpoints_come_and_go() {
    let cluster = Cluster::start(3).await;
    let [first, second, third] = &cluster.endpoints()[..] else {
        panic!("three members");
    };
    let client = connect(std::slice::from_ref(first)).await;
    ask(&client).await.unwrap();
    for endpoint in [second, third] {
        client.add_endpoint(endpoint).await.unwrap();
    }
    for endpoint in [first, second] {
        client.remove_endpoint(endpoint).await.unwrap();
    }
    cluster.members[0].kill();
    cluster.members[1].kill();
    ask(&client).await.unwrap();
    client.remove_endpoint(third).await.unwrap();
    let error = ask(&client).await.unwrap_err().to_string();
    assert!(error.contains("no endpoint"), "{error}");
}

#[tokio::test]
async fn a_client_that_is_dropped_leaves_no_connection_open() {
    let lined = Lined::start().await;
    let client = lined.client().await;
    cycles(client, "a", 3).await;
    soon("all connections are closed", async || {
        let open: usize = lined.lines.iter().map(Proxy::open).sum();
        ensure(open == 0, format!("{open} are open"))
    })
    .await;
}

#[tokio::test]
async fn a_user_is_logged_in_and_a_stranger_refused() {
    let etcd = Guarded::start().await;
    let endpoint = etcd.etcd.endpoint();
    let options = |user, password| Some(ConnectOptions::new().with_user(user, password));
    let client = etcd_lock::connect([&endpoint], options("anna", "secret")).await;
    cycles(client.unwrap(), "both/a", 3).await;
    let refused = etcd_lock::connect([&endpoint], options("mallory", "secret")).await;
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("authentication failed"), "{text}");
}

#[tokio::test]
async fn a_user_is_logged_in_though_the_first_member_is_silent() {
    let etcd = Guarded::start().await;
    let silent = Proxy::to(&etcd.etcd.endpoint()).await;
    silent.hold();
    let endpoints = [silent.endpoint(), etcd.etcd.endpoint()];
    let options = ConnectOptions::new().with_user("anna", "secret");
    let client = etcd_lock::connect(endpoints, Some(options)).await;
    cycles(client.unwrap(), "both/a", 3).await;
}

#[tokio::test]
async fn with_authentication_the_raft_leader_is_found_as_well() {
    let lined = Lined::start().await;
    let leader = lined.cluster.leader_index().await;
    let mut admin = lined.cluster.members[leader].client().await;
    admin.role_add("root").await.unwrap();
    admin.user_add("root", "secret", None).await.unwrap();
    admin.user_grant_role("root", "root").await.unwrap();
    admin.auth_enable().await.unwrap();
    let options = ConnectOptions::new().with_user("root", "secret");
    let client = etcd_lock::connect(lined.endpoints(), Some(options)).await;
    lined.only_one_is_asked(leader, client.unwrap()).await;
}

#[tokio::test]
async fn what_is_no_endpoint_is_refused_before_anything_is_sent() {
    let none: [&str; 0] = [];
    let error = etcd_lock::connect(none, None).await.err().unwrap();
    assert!(error.to_string().contains("empty endpoints"), "{error}");
    let error = etcd_lock::connect(["http://a b"], None)
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("uri"), "{error}");
}
