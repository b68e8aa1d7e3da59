//! Whatever is thought of (by proptest): taken as it is, or refused with advice, and nothing is left.
//! - names and labels of any text, values of any bytes, up to what etcd takes, and one byte more;
//! - TTLs and margins of any length;
//! - keys and values that others have put into the line.

use std::fmt::Debug;
use std::time::Duration;

use etcd_client::Client;
use etcd_lock::{Election, Error, Mutex, Session};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::support::{BOUND, Etcd, connect, keys, soon_nothing, unique};

/// Runs the claim on an etcd, with as many inputs; fails with the simplest that it does not hold for.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure, written where it is used"
)]
fn for_any<S: Strategy<Value: Clone + Debug>>(inputs: &S, claim: impl AsyncFn(&Client, S::Value)) {
    const CASES: u32 = 64;
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start());
    let client = runtime.block_on(etcd.client());
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(inputs, |input| {
        runtime.block_on(claim(&client, input));
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
    runtime.block_on(soon_nothing(&client));
}

/// Text with what may confuse those who read it.
fn text() -> impl Strategy<Value = String> {
    const ODD: [&str; 8] = [
        "/",
        "//",
        " since ",
        " since 2026-01-01T00:00:00Z",
        "\n",
        "\0",
        "=",
        "-0",
    ];
    let part = prop_oneof![
        any::<String>(),
        "[ a-z/]{0,20}",
        select(&ODD[..]).prop_map(str::to_owned)
    ];
    vec(part, 0..4).prop_map(|parts| parts.concat())
}

#[test]
fn any_name_and_label_are_taken_as_they_are_or_refused() {
    for_any(&(text(), text()), async |client, (name, label)| {
        let builder = Session::builder(client.clone()).label(label.as_str());
        let session = builder.ttl(Duration::from_secs(600)).open().await.unwrap();
        let refused = name.is_empty() || name.ends_with('/');
        match Mutex::new(&session, &name) {
            Ok(mutex) => {
                assert!(!refused);
                let guard = timeout(BOUND, mutex.lock()).await.expect("a turn").unwrap();
                let line = mutex.queue().await.unwrap();
                assert_eq!((line.len(), &*line[0].label), (1, &*label));
                assert_eq!(line[0].key, guard.key());
                assert!(line[0].since.is_some() && !line[0].foreign);
                assert_eq!(guard.named_token().name(), name);
                guard.release().await.unwrap();
            }
            Err(error) => {
                assert!(refused && matches!(error, Error::Invalid { .. }), "{error}");
            }
        }
        session.close().await.unwrap();
    });
}

#[test]
fn any_value_of_a_candidate_is_shown_as_it_is() {
    for_any(&vec(any::<u8>(), 0..2_000), async |client, value| {
        let session = Session::open(client.clone()).await.unwrap();
        let election = Election::new(&session, "any").unwrap();
        let leads = election.campaign(value.clone()).await.unwrap();
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!(leader.value, value);
        leads.proclaim(value.repeat(2)).await.unwrap();
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!(leader.value, value.repeat(2));
        leads.resign().await.unwrap();
        session.close().await.unwrap();
    });
}

#[tokio::test]
async fn a_value_as_large_as_etcd_takes_works_and_one_byte_more_is_an_error() {
    let etcd = Etcd::start().await;
    let session = Session::open(etcd.client().await).await.unwrap();
    let election = Election::new(&session, "large").unwrap();
    let (mut works, mut too_large) = (1_000_000_usize, 2_000_000);
    while works + 1 < too_large {
        let size = works.midpoint(too_large);
        let led = timeout(BOUND, election.campaign(vec![b'x'; size])).await;
        match led.expect("an answer") {
            Ok(leads) => {
                let leader = election.leader().await.unwrap().unwrap();
                assert_eq!(leader.value.len(), size);
                leads.resign().await.unwrap();
                works = size;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("give a shorter name or value"), "{text}");
                too_large = size;
            }
        }
    }
    // What etcd counts is the whole request, which is a little larger than the value.
    assert!((1_500_000..1_572_864).contains(&works), "{works}");
    let leads = election.campaign("small").await.unwrap();
    let refused = leads.proclaim(vec![b'x'; 2_000_000]).await.unwrap_err();
    assert!(refused.to_string().contains("give a shorter"), "{refused}");
    assert!(leads.is_held(), "it still leads, with its old value");
    assert_eq!(election.leader().await.unwrap().unwrap().value, b"small");
    leads.resign().await.unwrap();
    session.close().await.unwrap();
    soon_nothing(&etcd.client().await).await;
}

#[test]
fn any_ttl_and_margin_work_or_are_refused_before_anything_is_sent() {
    let long = || {
        prop_oneof![
            (0..3_000_u64).prop_map(Duration::from_millis),
            (0..10_000_000_000_u64, 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns)),
            any::<(u64, u32)>().prop_map(|(s, ns)| Duration::new(s / 2, ns)),
        ]
    };
    for_any(
        &(long(), option::of(long())),
        async |client, (ttl, margin)| {
            let (second, most) = (Duration::from_secs(1), Duration::from_secs(9_000_000_000));
            let fits = margin.is_none_or(|margin| !margin.is_zero() && margin <= ttl / 2);
            let good = ttl >= second && ttl <= most && fits;
            let nobody = connect(&["http://127.0.0.1:1".to_owned()]).await;
            let client = if good { client.clone() } else { nobody };
            let mut builder = Session::builder(client).ttl(ttl);
            if let Some(margin) = margin {
                builder = builder.margin(margin);
            }
            let opened = timeout(Duration::from_secs(5), builder.open()).await;
            match opened.expect("nobody is asked") {
                Ok(session) => {
                    assert!(good && session.is_certain() && session.ttl() >= ttl);
                    session.close().await.unwrap();
                }
                Err(Error::Invalid { .. }) => assert!(!good),
                Err(error) => panic!("{error}"),
            }
        },
    );
}

#[test]
fn anything_that_others_put_into_the_line_is_waited_for_and_shown() {
    let inputs = (vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..200));
    for_any(&inputs, async |client, (rest, value)| {
        let name = unique("foreign");
        let key = [name.as_bytes(), b"/", &rest].concat();
        let in_line = !rest.is_empty() && !rest.contains(&b'/');
        let mut kv = client.kv_client();
        kv.put(key.clone(), value, None).await.unwrap();
        let session = Session::open(client.clone()).await.unwrap();
        let mutex = Mutex::new(&session, &name).unwrap();
        let line = mutex.queue().await.unwrap();
        assert_eq!(line.len(), usize::from(in_line));
        assert!(line.iter().all(|waiter| waiter.foreign));
        let tried = mutex.try_lock().await.unwrap();
        assert_eq!(tried.is_err(), in_line);
        drop(tried);
        let waiting = tokio::spawn(mutex.lock());
        kv.delete(key, None).await.unwrap();
        let guard = timeout(BOUND, waiting)
            .await
            .expect("a turn")
            .unwrap()
            .unwrap();
        guard.release().await.unwrap();
        session.close().await.unwrap();
        assert_eq!(keys(client, &name).await, [""; 0]);
    });
}
