//! What careless callers do harms nobody else:
//! - a runtime that goes away takes its sessions along, and who waits for their end is told so;

use std::time::Duration;

use etcd_lock::{Error, Session};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::support::{BOUND, Etcd};

const TTL: Duration = Duration::from_secs(2);

async fn open(etcd: &Etcd) -> Session {
    let session = Session::builder(etcd.client().await).ttl(TTL);
    session.open().await.unwrap()
}

#[test]
fn a_close_after_its_runtime_is_gone_is_unconfirmed() {
    let (servers, sessions) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let etcd = servers.block_on(Etcd::start());
    let session = sessions.block_on(open(&etcd));
    drop(sessions);
    let closed = servers.block_on(async { timeout(BOUND, session.close()).await });
    let closed = closed.expect("close returns");
    assert!(
        matches!(closed, Err(Error::Unconfirmed { .. })),
        "{closed:?}"
    );
}
