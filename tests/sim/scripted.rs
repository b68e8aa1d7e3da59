//! Single cases that no seed is likely to meet.

use crate::server::{Say, Server};
use crate::wire::{Out, Outbox};
use etcd_client::proto::{PbDeleteRequest, PbLeaseKeepAliveResponse, PbLeaseTimeToLiveRequest};
use etcd_lock::{Error, Lost, Mutex, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

type Shared = Arc<std::sync::Mutex<Server>>;

const SHORT: Duration = Duration::from_millis(1);

/// What is odd about a server.
#[derive(Default)]
struct Odd {
    /// It does not answer renewals.
    deaf: AtomicBool,
    /// It says of leases that it has none, as a member does that has not heard of them yet.
    lags: AtomicBool,
    /// Its clock has jumped by so many seconds.
    ahead: AtomicU64,
}

async fn serve(server: Shared, outbox: Outbox, odd: Arc<Odd>) {
    let start = Instant::now();
    loop {
        {
            let mut server = server.lock().unwrap();
            let ahead = Duration::from_secs(odd.ahead.load(Ordering::Relaxed));
            let mut say = server.advance(start.elapsed() + ahead);
            for (_, out) in outbox.take() {
                match out {
                    Out::Renew(..) if odd.deaf.load(Ordering::Relaxed) => {}
                    Out::Renew(stream, id) if odd.lags.load(Ordering::Relaxed) => {
                        let header = server.model.header();
                        let none = PbLeaseKeepAliveResponse { header, id, ttl: 0 };
                        say.push(Say::Renewal(stream, none));
                    }
                    out => say.extend(server.carry_out(out)),
                }
            }
            for say in say {
                server.say(say);
            }
        }
        sleep(SHORT).await;
    }
}

/// Starts one.
fn start() -> (Shared, Outbox, Arc<Odd>) {
    let (server, outbox, odd) = (Shared::default(), Outbox::default(), Arc::default());
    tokio::spawn(serve(server.clone(), outbox.clone(), Arc::clone(&odd)));
    (server, outbox, odd)
}

async fn session(outbox: &Outbox, ttl: u64) -> Session {
    let session = Session::builder(outbox.client(0).await);
    let session = session.ttl(Duration::from_secs(ttl));
    session.open().await.unwrap()
}

/// What etcd says is left of a lease are whole seconds: 0 in the last one.
#[tokio::test(start_paused = true)]
async fn a_lease_in_its_last_second_is_not_taken_for_gone() {
    let (server, outbox, odd) = start();
    let session = session(&outbox, 2).await;
    let guard = Mutex::new(&session, "a").unwrap().lock().await.unwrap();
    // Until its key is watched.
    sleep(Duration::from_millis(300)).await;
    odd.deaf.store(true, Ordering::Relaxed);
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

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_lagging_member_does_not_know_yet_is_no_loss() {
    let (_server, outbox, odd) = start();
    odd.lags.store(true, Ordering::Relaxed);
    let session = session(&outbox, 6).await;
    let guard = Mutex::new(&session, "a").unwrap().lock().await.unwrap();
    // The first renewal was due after 2 s.
    sleep(Duration::from_secs(4)).await;
    assert!(guard.is_held());
    odd.lags.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert!(guard.is_held() && session.is_certain());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_etcds_clock_jumps_by_an_hour_every_loss_is_told_and_all_goes_on() {
    let (_server, outbox, odd) = start();
    let (ours, theirs) = (session(&outbox, 6).await, session(&outbox, 6).await);
    let guard = Mutex::new(&ours, "a").unwrap().lock().await.unwrap();
    let waiting = tokio::spawn(Mutex::new(&theirs, "a").unwrap().lock());
    sleep(Duration::from_secs(10)).await;
    assert!(guard.is_held());
    odd.ahead.store(3_600, Ordering::Relaxed);
    let told = timeout(Duration::from_secs(1), guard.lost()).await;
    assert_eq!(told.expect("told within a second"), Lost::LeaseGone);
    let told = timeout(Duration::from_secs(1), waiting).await;
    let told = told.expect("told within a second").unwrap();
    assert!(
        matches!(told, Err(Error::Lost(Lost::LeaseGone))),
        "{told:?}"
    );
    let again = session(&outbox, 6).await;
    let next = Mutex::new(&again, "a").unwrap().lock().await.unwrap();
    assert!(next.token() > guard.token() && next.is_held() && !guard.is_held());
}
