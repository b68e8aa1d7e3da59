//! Single cases that no seed is likely to meet.

use crate::server::Server;
use crate::wire::{Out, Outbox};
use etcd_client::proto::{PbDeleteRequest, PbLeaseTimeToLiveRequest};
use etcd_lock::{Lost, Mutex, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

type Shared = Arc<std::sync::Mutex<Server>>;

const SHORT: Duration = Duration::from_millis(1);

/// Serves what comes, but no renewals while `deaf`.
async fn serve(server: Shared, outbox: Outbox, deaf: Arc<AtomicBool>) {
    let start = Instant::now();
    loop {
        {
            let mut server = server.lock().unwrap();
            let mut say = server.advance(start.elapsed());
            for (_, out) in outbox.take() {
                if !(deaf.load(Ordering::Relaxed) && matches!(out, Out::Renew(..))) {
                    say.extend(server.carry_out(out));
                }
            }
            for say in say {
                server.say(say);
            }
        }
        sleep(SHORT).await;
    }
}

/// What etcd says is left of a lease are whole seconds: 0 in the last one.
#[tokio::test(start_paused = true)]
async fn a_lease_in_its_last_second_is_not_taken_for_gone() {
    let (server, outbox, deaf) = (Shared::default(), Outbox::default(), Arc::default());
    tokio::spawn(serve(server.clone(), outbox.clone(), Arc::clone(&deaf)));
    let session = Session::builder(outbox.client(0).await);
    let session = session.ttl(Duration::from_secs(2)).open().await.unwrap();
    let guard = Mutex::new(&session, "a").unwrap().lock().await.unwrap();
    // Until its key is watched.
    sleep(Duration::from_millis(300)).await;
    deaf.store(true, Ordering::Relaxed);
    let ask = PbLeaseTimeToLiveRequest {
        id: session.lease_id(),
        keys: false,
    };
    while server.lock().unwrap().model.time_to_live(ask).ttl > 0 {
        sleep(SHORT).await;
    }
    let delete = PbDeleteRequest {
        key: guard.key().into(),
        ..PbDeleteRequest::default()
    };
    server.lock().unwrap().model.delete(&delete).unwrap();
    assert_eq!(guard.lost().await, Lost::KeyDeleted);
    assert!(session.is_certain());
}
