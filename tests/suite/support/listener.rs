//! Where the proxy takes connections, or refuses them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::line::serve;
use super::ports::listen;
use super::rules::{Mode, Rules, Shared};

/// Takes connections until the proxy is dropped.
pub async fn accept(
    addr: SocketAddr,
    target: SocketAddr,
    mut rules: watch::Receiver<Rules>,
    shared: Arc<Shared>,
    listens: oneshot::Sender<()>,
) {
    let mut listener = Some(listen(addr));
    listens.send(()).expect("the proxy waits");
    let mut obeyed = rules.borrow().version;
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        // Biased: whoever connected before a change of rules is an old connection.
        tokio::select! {
            biased;
            accepted = accepted => {
                let (client, _) = accepted.expect("a connection");
                let number = shared.opened.fetch_add(1, Relaxed);
                shared.open.lock().unwrap().insert(number, obeyed);
                let shared = Arc::clone(&shared);
                tokio::spawn(connection(number, client, target, rules.clone(), shared, obeyed));
            },
            changed = rules.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = *rules.borrow_and_update();
                if now.mode == Mode::Cut {
                    listener = None;
                } else if listener.is_none() {
                    listener = Some(listen(addr));
                }
                obeyed = now.version;
                shared.listener.store(obeyed, Relaxed);
            }
        }
    }
}

async fn connection(
    number: u64,
    client: TcpStream,
    target: SocketAddr,
    rules: watch::Receiver<Rules>,
    shared: Arc<Shared>,
    since: u64,
) {
    serve(number, client, target, rules, &shared, since).await;
    shared.open.lock().unwrap().remove(&number);
}
