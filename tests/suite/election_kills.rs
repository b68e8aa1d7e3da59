//! Five candidates, each a process of its own, and a store that refuses old tokens (scenarios 43, 46):
//! - the leader killed with SIGKILL ten times in a row: no write is ever refused, so one leads at a time; every
//!   takeover takes a TTL + 1 s at the most; an observer sees these leaders and no others, in the order of tokens;
//! - a leader that stands still for too long drops its work when it goes on, and campaigns again (scenario 8);
//! - a leader that ends in any other way, by SIGTERM, SIGINT, a panic or an error of its work, hands over at once.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use etcd_lock::scheduler::{Leading, Outcome, Term};
use etcd_lock::{FencingToken, Observer, Session};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt;

use crate::support::{Etcd, Puppet, connect, ensure, keys, role, soon, unique};

const ENDPOINT: &str = "KILLS_ENDPOINT";
const NAME: &str = "KILLS_NAME";
const TTL: &str = "KILLS_TTL";

/// What the store keeps, in etcd but with no help of its leases: who wrote last, and with which token.
const STORE: &str = "store";
const REFUSED: &str = "refused";
/// Before a process id: how that one is to end by itself.
const END: &str = "end/";

/// A candidate's life: when it leads, it writes to the store all the time.
async fn candidate() {
    let var = |name| std::env::var(name).unwrap();
    let client = connect(&[var(ENDPOINT)]).await;
    let ttl = Duration::from_secs(var(TTL).parse().unwrap());
    let sessions = Session::builder(client.clone()).ttl(ttl);
    let mut sigterm = signal(SignalKind::terminate()).unwrap();
    let mut sigint = signal(SignalKind::interrupt()).unwrap();
    let shutdown = async {
        tokio::select! {
            _ = sigterm.recv() => {}
            _ = sigint.recv() => {}
        }
    };
    let leading = Leading::new(sessions, &var(NAME)).unwrap();
    let outcome = leading
        .value(std::process::id().to_string())
        .run(shutdown, |term| write_on(client.clone(), term))
        .await;
    assert!(matches!(outcome, Outcome::ShutDown(_)), "{outcome:?}");
}

async fn write_on(client: Client, term: Term) -> Result<(), etcd_client::Error> {
    let (token, mut kv) = (term.token(), client.kv_client());
    loop {
        let ours = format!("{:020} {}", token.get(), std::process::id());
        // '~' is larger than the blank: the same token passes, a larger one does not.
        let not_newer = Compare::value(STORE, CompareOp::Less, format!("{:020}~", token.get()));
        let write = Txn::new()
            .when([not_newer])
            .and_then([TxnOp::put(STORE, ours.clone(), None)])
            .or_else([TxnOp::put(format!("{REFUSED}/{ours}"), "", None)]);
        kv.txn(write).await?;
        let end = kv.get(format!("{END}{}", std::process::id()), None).await?;
        match end.kvs().first().map(etcd_client::KeyValue::value) {
            None => {}
            Some(b"panic") => panic!("as it was told"),
            Some(_) => return Err(etcd_client::Error::Internal("as it was told".into())),
        }
        tokio::select! {
            () = sleep(Duration::from_millis(10)) => {}
            () = term.stopping() => return Ok(()),
        }
    }
}

/// The candidates by their process ids, what they write to, and what is seen of them.
struct Scene {
    etcd: Etcd,
    name: String,
    ttl: u64,
    candidates: BTreeMap<i32, Puppet>,
    client: Client,
    /// Who led, by token, according to the store.
    led: BTreeMap<u64, i32>,
}

impl Scene {
    async fn begin(name: &str, ttl: u64, candidate: impl Fn(&Self) -> Puppet) -> Self {
        let etcd = Etcd::start().await;
        let mut client = etcd.client().await;
        client.put(STORE, "", None).await.unwrap();
        let mut scene = Self {
            etcd,
            name: unique(name),
            ttl,
            candidates: BTreeMap::new(),
            client,
            led: BTreeMap::new(),
        };
        for _ in 0..5 {
            scene.add(candidate(&scene)).await;
        }
        scene
    }

    fn env(&self) -> [(&'static str, String); 3] {
        let (endpoint, name, ttl) = (self.etcd.endpoint(), &self.name, self.ttl);
        [
            (ENDPOINT, endpoint),
            (NAME, name.clone()),
            (TTL, ttl.to_string()),
        ]
    }

    /// Adds a candidate and waits until it stands in line.
    async fn add(&mut self, candidate: Puppet) {
        self.candidates.insert(candidate.process.pid(), candidate);
        let wanted = self.candidates.len();
        soon("the candidate stands in line", async || {
            let line = keys(&self.client, &format!("{}/", self.name)).await;
            ensure(line.len() == wanted, format!("{line:?}"))
        })
        .await;
    }

    /// Waits until somebody writes with a token larger than before; tells who.
    async fn next_leader(&mut self) -> i32 {
        let last = self.led.keys().last().copied().unwrap_or(0);
        let (token, pid) = soon("another leader writes", async || {
            let answer = self.client.kv_client().get(STORE, None).await.unwrap();
            let text = answer.kvs()[0].value_str().unwrap().to_owned();
            let found = text
                .split_once(' ')
                .map(|(token, pid)| (token.parse::<u64>().unwrap(), pid.parse::<i32>().unwrap()));
            found.filter(|(token, _)| *token > last).ok_or(text)
        })
        .await;
        self.led.insert(token, pid);
        pid
    }

    /// How often the store was written to.
    async fn writes(&self) -> i64 {
        let answer = self.client.kv_client().get(STORE, None).await.unwrap();
        answer.kvs()[0].version()
    }

    async fn none_was_refused(&self) {
        assert_eq!(keys(&self.client, REFUSED).await, [""; 0]);
    }
}

fn puppet<F: Copy>(test: F, scene: &Scene) -> Puppet {
    let env = scene.env();
    let env: Vec<_> = env.iter().map(|(key, value)| (*key, &**value)).collect();
    Puppet::rerun(test, "candidate", &env)
}

#[tokio::test]
async fn ten_leaders_killed_in_a_row_are_followed_one_by_one_in_time() {
    if role().is_some() {
        return candidate().await;
    }
    let this = ten_leaders_killed_in_a_row_are_followed_one_by_one_in_time;
    let mut scene = Scene::begin("kills", 2, |scene| puppet(this, scene)).await;
    let mut observer = Observer::new(scene.client.clone(), &scene.name).unwrap();
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 11 {
            if let Some(leader) = observer.next().await.unwrap().unwrap() {
                seen.push((leader.token, leader.value));
            }
        }
        seen
    });
    let mut leader = scene.next_leader().await;
    for _ in 0..10 {
        let killed = scene.candidates.remove(&leader).expect("one of ours");
        killed.process.kill();
        let begun = Instant::now();
        leader = scene.next_leader().await;
        let took = begun.elapsed();
        assert!(took <= Duration::from_secs(scene.ttl + 1), "took {took:?}");
        let next = puppet(this, &scene);
        scene.add(next).await;
    }
    scene.none_was_refused().await;
    let seen = seen.await.unwrap();
    let as_seen = |(token, value): &(FencingToken, Vec<u8>)| {
        let pid = String::from_utf8_lossy(value).parse().unwrap();
        (token.get(), pid)
    };
    let seen: Vec<(u64, i32)> = seen.iter().map(as_seen).collect();
    let led: Vec<(u64, i32)> = scene.led.clone().into_iter().collect();
    assert_eq!(seen, led);
}

#[tokio::test]
async fn a_leader_that_ends_in_any_other_way_hands_over_at_once() {
    if role().is_some() {
        return Box::pin(candidate()).await;
    }
    // Far longer than what counts as "at once" on a busy machine.
    let this = a_leader_that_ends_in_any_other_way_hands_over_at_once;
    let mut scene = Scene::begin("exits", 30, |scene| puppet(this, scene)).await;
    let mut leader = scene.next_leader().await;
    for how in ["SIGTERM", "SIGINT", "panic", "error"] {
        let ending = scene.candidates.remove(&leader).expect("one of ours");
        match how {
            "SIGTERM" => ending.process.term(),
            "SIGINT" => ending.process.signal(Signal::INT),
            _ => {
                let told = scene.client.put(format!("{END}{leader}"), how, None);
                told.await.map(drop).unwrap();
            }
        }
        let begun = Instant::now();
        leader = scene.next_leader().await;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(3), "{how}: took {took:?}");
        let ended = ending.process.exit().await;
        assert_eq!(ended.success(), how.starts_with("SIG"), "{how}: {ended}");
    }
    scene.none_was_refused().await;
}

#[tokio::test]
async fn a_leader_that_stood_still_for_too_long_leads_no_more() {
    if role().is_some() {
        return Box::pin(candidate()).await;
    }
    let this = a_leader_that_stood_still_for_too_long_leads_no_more;
    let mut scene = Scene::begin("still", 2, |scene| puppet(this, scene)).await;
    let first = scene.next_leader().await;
    scene.candidates[&first].process.stop();
    let second = scene.next_leader().await;
    let writes = scene.writes().await;
    scene.candidates[&first].process.cont();
    // It campaigns again, and with its new session stands behind the other four.
    soon("five stand in line", async || {
        let line = keys(&scene.client, &format!("{}/", scene.name)).await;
        ensure(line.len() == 5, format!("{line:?}"))
    })
    .await;
    soon("the second leads on", async || {
        ensure(scene.writes().await > writes + 20, "it writes")
    })
    .await;
    for _ in 0..4 {
        let (_, pid) = scene.led.last_key_value().expect("somebody led");
        scene.candidates[pid].process.term();
        scene.next_leader().await;
    }
    let led: Vec<i32> = scene.led.values().copied().collect();
    assert_eq!((led[0], led[1], led[5]), (first, second, first));
    // One write may have been under way when it was stopped: it came with the old token.
    let late = format!(
        "{REFUSED}/{:020} {first}",
        scene.led.first_key_value().unwrap().0
    );
    let refused = scene
        .client
        .get(REFUSED, Some(GetOptions::new().with_prefix()))
        .await;
    for kv in refused.unwrap().kvs() {
        assert_eq!((kv.key_str().unwrap(), kv.version()), (&*late, 1));
    }
}
