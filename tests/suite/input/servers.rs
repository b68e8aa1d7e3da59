//! - Where nobody, a black hole or something that is no etcd answers, opening a session ends with advice after the 10 s
//!   that it tries.
//! - An etcd that wants a user: an error with advice when the session is opened, at once.
//! - A user without permission: an error with advice from whatever needs it, at once; the session lives, nothing is
//!   left. A user with the permissions that the advice names has all it needs.
//! - A transaction under a hold needs permission for what it is about, too, and fetches another token if need be.

use std::time::Duration;

use etcd_client::{Client, Txn, TxnOp};
use etcd_lock::{Error, Lost, Session};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::support::{
    Guarded, connect, keys, leases, lost, mutex, session, soon_keys, soon_nothing, waiter,
};

/// At once, on a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Answers each connection with these bytes and the end of the stream; with none, never.
async fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if answer.is_empty() {
                kept.push(stream);
            } else {
                stream.write_all(answer).await.ok();
            }
        }
    });
    endpoint
}

#[tokio::test]
async fn an_endpoint_without_etcd_is_told_after_ten_seconds() {
    let running = "is etcd running at the client's endpoints?";
    let other = "is it an etcd that listens at the client's endpoints, and does it want TLS or a client certificate?";
    let cases = [
        ("http://127.0.0.1:1".to_owned(), running),
        (impostor(b"").await, running),
        (impostor(b"220 mail.example.org ESMTP\r\n").await, other),
        (impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, other),
    ];
    let opened = cases.map(async |(endpoint, advice)| {
        let begun = Instant::now();
        let opened = Session::open(connect(&[endpoint]).await).await;
        let took = begun.elapsed();
        let error = opened.unwrap_err();
        assert!(matches!(error, Error::Etcd { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("open a session") && text.ends_with(advice),
            "{text}"
        );
        assert!((9..14).contains(&took.as_secs()), "{took:?}: {text}");
    });
    let [one, two, three, four] = opened;
    tokio::join!(one, two, three, four);
}

#[tokio::test]
async fn an_etcd_that_wants_a_user_is_told_at_opening() {
    let guarded = Guarded::start().await;
    let opened = timeout(AT_ONCE, Session::open(guarded.etcd.client().await)).await;
    let error = opened.expect("it is at once").unwrap_err();
    assert!(matches!(error, Error::Etcd { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("connect with ConnectOptions::with_user"),
        "{text}"
    );
    assert_eq!(leases(&guarded.root).await, [0; 0]);
}

#[tokio::test]
async fn a_user_without_permission_is_told_what_it_needs() {
    let guarded = Guarded::start().await;
    let session = session(guarded.anna().await, 60).await;
    let denied = |error: Error| {
        let text = error.to_string();
        assert!(text.contains("permission denied"), "{text}");
        assert!(
            text.contains("needs read and write on the lock's prefix"),
            "{text}"
        );
    };
    for name in ["none", "read", "write"] {
        let door = mutex(&session, name);
        let told = async {
            denied(door.lock().await.unwrap_err());
            denied(door.try_lock().await.unwrap_err());
            denied(door.lock_within(Duration::from_secs(60)).await.unwrap_err());
            match door.queue().await {
                Ok(line) => assert_eq!((name, line.len()), ("read", 0)),
                Err(error) => denied(error),
            }
        };
        let told = timeout(AT_ONCE, told).await;
        told.unwrap_or_else(|_| panic!("a call on {name:?} hangs"));
    }
    assert!(session.is_certain());
    assert_eq!(keys(&guarded.root, "").await, [""; 0]);
    session.close().await.unwrap();
    soon_nothing(&guarded.root).await;
}

#[tokio::test]
async fn read_and_write_on_the_prefix_is_all_that_a_user_needs() {
    let guarded = Guarded::start().await;
    let ours = session(guarded.anna().await, 2).await;
    let theirs = session(guarded.anna().await, 2).await;
    let first = mutex(&ours, "both").lock().await.unwrap();
    let second = waiter(&mutex(&theirs, "both")).await;
    let third = waiter(&mutex(&ours, "both")).await;
    assert_eq!(mutex(&ours, "both").queue().await.unwrap().len(), 3);
    first.release().await.unwrap();
    let second = second.await.unwrap();
    // Longer than the lease lives without renewal.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert!(second.is_held());
    guarded
        .root
        .kv_client()
        .delete(second.key(), None)
        .await
        .unwrap();
    assert_eq!(second.lost().await, Lost::KeyDeleted);
    let third = third.await.unwrap();
    assert_eq!(lost(second.release().await), Lost::KeyDeleted);
    drop(third);
    soon_keys(&guarded.root, "", &[]).await;
    ours.close().await.unwrap();
    theirs.close().await.unwrap();
    soon_nothing(&guarded.root).await;
}

/// Whether the server looks into nested transactions for what a user may: 3.4.23 does not.
async fn looks_into_nested(anna: &Client) -> bool {
    let inner = Txn::new().and_then([TxnOp::put("read/probe", "", None)]);
    let nested = Txn::new().and_then([TxnOp::txn(inner)]);
    anna.kv_client().txn(nested).await.is_err()
}

#[tokio::test]
async fn a_transaction_needs_permission_for_what_it_is_about() {
    let guarded = Guarded::start().await;
    let anna = guarded.anna().await;
    let ours = session(anna.clone(), 60).await;
    let guard = mutex(&ours, "both/a").lock().await.unwrap();
    guard.put("write/x", "1").await.unwrap();
    if !looks_into_nested(&anna).await {
        return;
    }
    for error in [
        guard.put("read/x", "1").await.unwrap_err(),
        guard.get("write/x").await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("permission denied") && text.ends_with("on what a transaction is about"),
            "{text}"
        );
    }
    assert!(guard.is_held());
    assert_eq!(keys(&guarded.root, "read/").await, [""; 0]);
}

#[tokio::test]
async fn a_transaction_with_an_old_token_fetches_another() {
    let guarded = Guarded::start().await;
    let anna = guarded.anna().await;
    let ours = session(anna.clone(), 60).await;
    let guard = mutex(&ours, "both/a").lock().await.unwrap();
    // This makes its token invalid.
    let mut auth = guarded.root.auth_client();
    auth.user_change_password("anna", "secret").await.unwrap();
    let stale = anna.kv_client().get("both/x", None).await.unwrap_err();
    assert!(stale.to_string().contains("invalid auth token"), "{stale}");
    guard.put("write/x", "1").await.unwrap();
    let found = guarded.root.kv_client().get("write/x", None).await.unwrap();
    assert_eq!(found.kvs()[0].value(), b"1");
}
