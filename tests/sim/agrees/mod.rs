//! The model against real servers: the same requests, the same answers.

mod requests;

use crate::server::Server;
use crate::support::{Etcd, soon};
use crate::wire::Outbox;
use etcd_client::{Client, WatchFilterType, WatchOptions, WatchStream};
use requests::Requests;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Serves what comes at once, for as long as the runtime runs.
async fn serve(outbox: Outbox) {
    let start = Instant::now();
    let mut server = Server::default();
    loop {
        let mut say = server.advance(start.elapsed());
        for (_, out) in outbox.take() {
            say.extend(server.carry_out(out));
        }
        for say in say {
            server.say(say);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// A client of a model that serves without any faults.
async fn model() -> Client {
    let outbox = Outbox::default();
    tokio::spawn(serve(outbox.clone()));
    outbox.client(0).await
}

async fn agree(seed: u64, steps: usize) {
    let etcd = Etcd::start().await;
    let (mut real, mut model) = (etcd.client().await, model().await);
    let mut requests = Requests::new(seed);
    for step in 0..steps {
        let request = requests.next(step);
        let answers = (
            request.send(&mut real).await,
            request.send(&mut model).await,
        );
        assert_eq!(
            answers.0, answers.1,
            "seed {seed}, step {step}: {request:?}"
        );
    }
}

#[tokio::test]
async fn the_model_answers_as_etcd_does() {
    for seed in 1..=3 {
        Box::pin(agree(seed, 1_000)).await;
    }
}

/// What a watch stream says until `watches` of its watches have told of the key `last`.
async fn heard(stream: &mut WatchStream, last: &str, watches: usize) -> Vec<String> {
    let mut heard: Vec<String> = Vec::new();
    while heard.iter().filter(|line| line.contains(last)).count() < watches {
        let message = stream.message().await.unwrap().expect("it goes on");
        heard.push(requests::watched(&message));
    }
    heard
}

/// Watches of all kinds on one stream, and what they see while all sorts of things happen.
async fn watch_it_all(client: &mut Client) -> Vec<String> {
    client.put("k/old", "1", None).await.unwrap();
    let first = WatchOptions::new().with_prefix().with_watch_id(1);
    let mut stream = client.watch("k/", Some(first)).await.unwrap();
    let deletes = WatchOptions::new().with_filters([WatchFilterType::NoPut]);
    let puts = WatchOptions::new().with_filters([WatchFilterType::NoDelete]);
    let past = WatchOptions::new().with_prefix().with_start_revision(2);
    for (key, options) in [
        ("k/1", deletes.with_watch_id(2)),
        ("k/1", puts.with_watch_id(3)),
        // The same id twice is refused.
        ("k/2", WatchOptions::new().with_watch_id(3)),
        ("k/", past.with_watch_id(4)),
        ("", WatchOptions::new().with_all_keys().with_watch_id(6)),
    ] {
        stream.watch(key, Some(options)).await.unwrap();
    }
    // The one from the past is served later than others: from now on they see the same.
    let mut all = heard(&mut stream, "k/old", 1).await;
    while all
        .iter()
        .filter(|line| line.contains("created true"))
        .count()
        < 6
    {
        all.push(requests::watched(&stream.message().await.unwrap().unwrap()));
    }
    let mut requests = Requests::new(99);
    for step in 0..400 {
        requests.next(step).send(client).await;
    }
    client
        .put("k/end", "of the first part", None)
        .await
        .unwrap();
    all.extend(heard(&mut stream, "k/end", 3).await);
    stream.cancel(4).await.unwrap();
    stream.cancel(77).await.unwrap();
    stream.request_progress().await.unwrap();
    // Two leases end at different times, each with all its keys at one revision.
    for (key, lease) in [("k/a", 31), ("k/b", 31), ("k/1", 32), ("k/c", 31)] {
        let options = etcd_client::LeaseGrantOptions::new().with_id(lease);
        let _there_already = client.lease_grant(2, Some(options)).await;
        let leased = etcd_client::PutOptions::new().with_lease(lease);
        client.put(key, "leased", Some(leased)).await.unwrap();
    }
    client.lease_revoke(32).await.unwrap();
    soon("the lease expires", async || {
        let left = client.get("k/a", None).await.unwrap();
        crate::support::ensure(left.kvs().is_empty(), "it is there")
    })
    .await;
    client.put("k/last", "", None).await.unwrap();
    all.extend(heard(&mut stream, "k/last", 2).await);
    // Messages of different watches come in any order.
    all.sort_unstable();
    all
}

#[tokio::test]
async fn the_model_tells_watchers_what_etcd_tells_them() {
    let etcd = Etcd::start().await;
    let (mut real, mut model) = (etcd.client().await, model().await);
    let (real, model) = tokio::join!(watch_it_all(&mut real), watch_it_all(&mut model));
    assert!(real.len() > 300, "{}", real.len());
    for (real, model) in real.iter().zip(&model) {
        assert_eq!(real, model);
    }
    assert_eq!(real.len(), model.len());
}
