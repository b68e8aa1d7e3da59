//! TLS between the client and etcd:
//! - with client certificates, and members of different addresses, of which one is gone;
//! - a server that is not trusted, a client that shows nothing, or something untrusted: a clear error.

use std::path::Path;

use etcd_lock::etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use etcd_lock::{Error, Session};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::support::{BOUND, Etcd, Pki, Setup, Signed, connect_with, mutex, soon_nothing, waiter};

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// A client that trusts `ca` and shows `signed`.
async fn client(endpoints: &[String], ca: &Pki, signed: Option<&Signed>) -> Client {
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&ca.ca())));
    if let Some(Signed { cert, key }) = signed {
        tls = tls.identity(Identity::from_pem(read(cert), read(key)));
    }
    let options = ConnectOptions::new().with_tls(tls);
    connect_with(endpoints, Some(options)).await.unwrap()
}

#[tokio::test]
async fn with_client_certificates_and_a_dead_member_a_lock_is_held_waited_for_and_released() {
    let pki = Pki::new();
    let cluster = Setup::default().tls(&pki).many(3).await;
    let endpoints = cluster.members.iter().map(Etcd::https_endpoint);
    let endpoints: Vec<_> = endpoints.collect();
    let anna = pki.sign("anna");
    let open = async || {
        let client = client(&endpoints, &pki, Some(&anna)).await;
        Session::builder(client).open().await.unwrap()
    };
    let (ours, theirs) = (open().await, open().await);
    for dead in [false, true] {
        if dead {
            cluster.members[cluster.followers().await[0]].kill();
        }
        for _ in 0..20 {
            let guard = mutex(&ours, "a").lock().await.unwrap();
            let next = waiter(&mutex(&theirs, "a")).await;
            guard.release().await.unwrap();
            let next = timeout(BOUND, next).await.expect("the turn").unwrap();
            next.release().await.unwrap();
        }
    }
    ours.close().await.unwrap();
    theirs.close().await.unwrap();
    soon_nothing(&cluster.leader().await.client().await).await;
}

#[tokio::test]
async fn who_is_not_trusted_is_told_so() {
    let (pki, stranger) = (Pki::new(), Pki::new());
    let etcd = Setup::default().tls(&pki).one().await;
    let endpoints = [etcd.https_endpoint()];
    let (anna, mallory) = (pki.sign("anna"), stranger.sign("mallory"));
    let cases = [
        (
            "a CA that did not sign the server's",
            &stranger,
            Some(&anna),
        ),
        ("no certificate", &pki, None),
        ("a certificate of another CA", &pki, Some(&mallory)),
    ];
    // Each is tried for ten seconds.
    let told = cases.map(async |(what, ca, shown)| {
        let client = client(&endpoints, ca, shown).await;
        let opened = timeout(BOUND, Session::open(client)).await;
        let error = opened.unwrap_or_else(|_| panic!("{what}: hangs"));
        let error = error.expect_err(what);
        assert!(matches!(error, Error::Etcd { .. }), "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains("certificate"), "{what}: {text}");
    });
    join_all(told).await;
    let client = client(&endpoints, &pki, Some(&anna)).await;
    let session = Session::open(client).await.unwrap();
    session.close().await.unwrap();
}
