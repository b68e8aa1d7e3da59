//! Elections on a sound etcd:
//! - candidates lead in the order in which they came, with growing tokens; `leader()` says who does;
//! - a proclaimed value replaces the one before, once, and is never undone by an older one;
//! - resigning and dropping free the place, a cancelled campaign leaves nothing;
//! - a leadership is a hold; locks and elections of one name stand in one line.

use std::time::Duration;

use etcd_client::{EventType, Txn, TxnOp, WatchOptions};
use etcd_lock::{Election, Error, Leader, Leadership, Lost, Mutex, Session};
use tokio::time::{Instant, timeout};

use crate::support::{Etcd, Proxy, connect, ensure, keys, soon, unique};

const TTL: Duration = Duration::from_secs(2);

async fn session(etcd: &Etcd) -> Session {
    let builder = Session::builder(etcd.client().await).ttl(TTL);
    builder.open().await.unwrap()
}

async fn election(etcd: &Etcd, name: &str) -> Election {
    Election::new(&session(etcd).await, name).unwrap()
}

/// A candidate that is known to stand in the line when this returns.
async fn candidate(
    etcd: &Etcd,
    name: &str,
    value: &str,
) -> tokio::task::JoinHandle<etcd_lock::Result<Leadership>> {
    let (election, client) = (election(etcd, name).await, etcd.client().await);
    let before = keys(&client, &format!("{name}/")).await.len();
    let campaign = tokio::spawn(election.campaign(value));
    soon("the candidate stands in line", async || {
        let now = keys(&client, &format!("{name}/")).await.len();
        ensure(now == before + 1, now)
    })
    .await;
    campaign
}

async fn leader(election: &Election) -> Option<Leader> {
    election.leader().await.unwrap()
}

#[tokio::test]
async fn candidates_lead_in_the_order_in_which_they_came() {
    let (etcd, name) = (Etcd::start().await, unique("order"));
    let observer = election(&etcd, &name).await;
    assert_eq!(leader(&observer).await, None);
    let mut campaigns = Vec::new();
    for value in ["a", "b", "c"] {
        campaigns.push((value, candidate(&etcd, &name, value).await));
    }
    let mut last = None;
    for (value, campaign) in campaigns {
        let leadership = campaign.await.unwrap().unwrap();
        let seen = leader(&observer).await.unwrap();
        assert_eq!(seen.value, value.as_bytes());
        assert_eq!(seen.token, leadership.token());
        assert_eq!(seen.key, leadership.key());
        assert!(Some(seen.token) > last);
        last = Some(seen.token);
        leadership.resign().await.unwrap();
    }
    assert_eq!(leader(&observer).await, None);
}

#[tokio::test]
async fn an_election_below_a_name_is_another_election() {
    let (etcd, name) = (Etcd::start().await, unique("nested"));
    let (outer, inner) = (
        election(&etcd, &name).await,
        election(&etcd, &format!("{name}/below")).await,
    );
    let _inner = inner.campaign("inner").await.unwrap();
    assert_eq!(leader(&outer).await, None);
    let leadership = outer.campaign("outer").await.unwrap();
    assert_eq!(leader(&outer).await.unwrap().value, b"outer");
    assert_eq!(leader(&inner).await.unwrap().value, b"inner");
    leadership.resign().await.unwrap();
    assert_eq!(leader(&outer).await, None);
}

#[tokio::test]
async fn a_proclaimed_value_is_seen_under_the_same_token() {
    let (etcd, name) = (Etcd::start().await, unique("proclaim"));
    let election = election(&etcd, &name).await;
    let leadership = election.campaign("before").await.unwrap();
    let bytes = [0, 0xff, b'\n'];
    leadership.proclaim(bytes).await.unwrap();
    let seen = leader(&election).await.unwrap();
    assert_eq!(
        (&seen.value[..], seen.token),
        (&bytes[..], leadership.token())
    );
    assert_eq!(seen.lease, etcd_lease(&etcd, leadership.key()).await);
}

async fn etcd_lease(etcd: &Etcd, key: &str) -> i64 {
    let answer = etcd.client().await.get(key, None).await.unwrap();
    answer.kvs()[0].lease()
}

#[tokio::test]
async fn a_proclaim_whose_answer_is_lost_puts_once() {
    let (etcd, name) = (Etcd::start().await, unique("swallowed"));
    let proxy = Proxy::to(&etcd.endpoint()).await;
    // A TTL that outlasts the fault.
    let builder = Session::builder(connect(&[proxy.endpoint()]).await);
    let session = builder.ttl(Duration::from_secs(30)).open().await.unwrap();
    let election = Election::new(&session, &name).unwrap();
    let leadership = election.campaign("before").await.unwrap();
    proxy.drop_answers();
    let key = leadership.key().to_owned();
    let proclaim = tokio::spawn(async move {
        leadership.proclaim("after").await.unwrap();
        leadership
    });
    let mut direct = etcd.client().await;
    soon("the value is put and its answer lost", async || {
        let found = direct.kv_client().get(&*key, None).await.unwrap();
        let put = found.kvs()[0].value() == b"after";
        ensure(put && proxy.bytes_lost() > 0, "not yet")
    })
    .await;
    assert!(!proclaim.is_finished());
    proxy.heal();
    let leadership = proclaim.await.unwrap();
    let found = direct.get(&*key, None).await.unwrap();
    assert_eq!(
        found.kvs()[0].version(),
        2,
        "the campaign's put and one more"
    );
    leadership.proclaim("last").await.unwrap();
    assert_eq!(leader(&election).await.unwrap().value, b"last");
}

#[tokio::test]
async fn a_dropped_proclaim_never_undoes_a_later_one() {
    let (etcd, name) = (Etcd::start().await, unique("dropped"));
    let election = election(&etcd, &name).await;
    let leadership = election.campaign("").await.unwrap();
    let options = WatchOptions::new().with_prefix();
    let watcher = etcd.client().await.watch_client();
    let mut watch = watcher.clone().watch(&*name, Some(options)).await.unwrap();
    for i in 0..300 {
        let limit = Duration::from_micros(fastrand::u64(..1000));
        let draft = leadership.proclaim(format!("{i} draft"));
        let _dropped_or_done = timeout(limit, draft).await;
        leadership.proclaim(format!("{i} final")).await.unwrap();
        let value = leader(&election).await.unwrap().value;
        assert_eq!(String::from_utf8(value).unwrap(), format!("{i} final"));
    }
    leadership.resign().await.unwrap();
    // As it was at every revision, not only when we looked: "draft" < "final".
    let (mut last, mut drafts) = ((0, String::new()), 0);
    loop {
        let message = watch.message().await.unwrap().unwrap();
        for event in message.events() {
            if event.event_type() == EventType::Delete {
                assert_eq!(last, (299, "final".to_owned()));
                assert!(drafts > 0, "every draft was dropped before it was sent");
                return;
            }
            let value = event.kv().unwrap().value_str().unwrap();
            let (i, kind) = value.split_once(' ').unwrap();
            let now = (i.parse::<u32>().unwrap(), kind.to_owned());
            assert!(now > last, "{now:?} after {last:?}");
            drafts += u32::from(kind == "draft");
            last = now;
        }
    }
}

#[tokio::test]
async fn a_proclaim_without_a_key_says_lost_and_so_does_the_leadership() {
    let (etcd, name) = (Etcd::start().await, unique("deleted"));
    let election = election(&etcd, &name).await;
    let leadership = election.campaign("x").await.unwrap();
    let mut client = etcd.client().await;
    client.delete(leadership.key(), None).await.unwrap();
    let error = leadership.proclaim("y").await.unwrap_err();
    assert!(matches!(error, Error::Lost(Lost::KeyDeleted)), "{error}");
    assert!(!leadership.is_held());
    assert_eq!(keys(&client, &name).await, [""; 0], "nothing was written");
    let error = leadership.resign().await.unwrap_err();
    assert!(matches!(error, Error::Lost(Lost::KeyDeleted)), "{error}");
}

#[tokio::test]
async fn a_resigned_and_a_dropped_leadership_leave_no_key() {
    let (etcd, name) = (Etcd::start().await, unique("resign"));
    let (election, client) = (election(&etcd, &name).await, etcd.client().await);
    let leadership = election.campaign("x").await.unwrap();
    leadership.resign().await.unwrap();
    assert_eq!(keys(&client, &name).await, [""; 0]);
    drop(election.campaign("y").await.unwrap());
    soon("the key of a dropped leadership is gone", async || {
        let left = keys(&client, &name).await;
        ensure(left.is_empty(), format!("{left:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_campaign_leaves_nothing() {
    let (etcd, name) = (Etcd::start().await, unique("cancel"));
    let (election, client) = (election(&etcd, &name).await, etcd.client().await);
    // In flight or just won…
    for _ in 0..100 {
        let limit = Duration::from_micros(fastrand::u64(..2000));
        let _dropped_or_won = timeout(limit, election.campaign("x")).await;
    }
    // … and while waiting.
    let leadership = election.campaign("leads").await.unwrap();
    let waiting = candidate(&etcd, &name, "waits").await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    soon("only the leader stands", async || {
        let left = keys(&client, &name).await;
        ensure(left == [leadership.key()], format!("{left:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_leadership_has_the_vocabulary_of_a_hold() {
    let (etcd, name) = (Etcd::start().await, unique("hold"));
    let election = election(&etcd, &name).await;
    let leadership = election.campaign("x").await.unwrap();
    let mut client = etcd.client().await;
    assert_eq!((leadership.name(), election.name()), (&*name, &*name));
    assert!(leadership.key().starts_with(&format!("{name}/")));
    assert!(leadership.is_held());
    assert!(leadership.certain_until().unwrap() > Instant::now());
    let write = |fence| {
        Txn::new()
            .when([fence])
            .and_then([TxnOp::put("w", "", None)])
    };
    let written = client.txn(write(leadership.fence())).await.unwrap();
    assert!(written.succeeded());
    assert_eq!(leadership.run_until_lost(async { 7 }).await, Ok(7));
    client.delete(leadership.key(), None).await.unwrap();
    let work = leadership.run_until_lost(std::future::pending::<()>());
    let lost = timeout(Duration::from_secs(1), work).await;
    assert_eq!(lost.expect("told within a second"), Err(Lost::KeyDeleted));
    assert_eq!(leadership.lost().await, Lost::KeyDeleted);
    assert!(!leadership.is_held() && leadership.certain_until().is_none());
    let written = client.txn(write(leadership.fence())).await.unwrap();
    assert!(!written.succeeded());
}

#[tokio::test]
async fn locks_and_elections_of_one_name_share_one_line() {
    let (etcd, name) = (Etcd::start().await, unique("shared"));
    let election = election(&etcd, &name).await;
    let mutex = Mutex::new(&session(&etcd).await, &name).unwrap();
    let guard = mutex.lock().await.unwrap();
    let campaign = candidate(&etcd, &name, "the leader").await;
    let line = mutex.queue().await.unwrap();
    assert_eq!((line.len(), &*line[1].label), (2, "the leader"));
    assert!(!campaign.is_finished());
    guard.release().await.unwrap();
    let leadership = campaign.await.unwrap().unwrap();
    let busy = mutex.try_lock().await.unwrap().unwrap_err();
    assert_eq!(busy.holder().label, "the leader");
    assert_eq!(busy.holder().token, leadership.token());
    leadership.resign().await.unwrap();
    assert_eq!(leader(&election).await, None);
}
