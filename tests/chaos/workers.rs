//! What goes wrong with workers, on their lines, and by hand.

use std::borrow::Borrow;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, LeaseStatus, Txn, TxnOp};
use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use crate::stage::Stage;
use crate::support::Proxy;
use crate::worker::NAMES;

const MILLISECOND: Duration = Duration::from_millis(1);

/// An operator's request may meet a member that is away.
const REQUEST: Duration = Duration::from_secs(5);

impl Stage {
    /// One fault after the other befalls the workers, their lines, their keys and leases.
    pub async fn trouble_workers(&self, mut rng: Rng, until: Instant) {
        while Instant::now() < until {
            sleep(rng.u32(50..1_000) * MILLISECOND).await;
            self.strike_a_worker(&mut rng).await;
        }
    }

    async fn strike_a_worker(&self, rng: &mut Rng) {
        let time = rng.u32(50..9_000) * MILLISECOND;
        let host = &self.hosts[rng.usize(..self.hosts.len())];
        let (one, all) = (&host[rng.usize(..3)], &host[..]);
        match rng.u8(..13) {
            0 => self.shake("line silent", &[one], Proxy::hold, time).await,
            1 => self.shake("line cut", &[one], Proxy::cut, time).await,
            2 => {
                let fault = Proxy::drop_answers;
                self.shake("answers lost", &[one], fault, time).await;
            }
            3 => {
                let fault = Proxy::hold_answers;
                self.shake("answers late", &[one], fault, time).await;
            }
            4 => self.shake("host silent", all, Proxy::hold, time).await,
            5 => self.shake("host cut off", all, Proxy::cut, time).await,
            6 => {
                let fault = Proxy::drop_answers;
                self.shake("host's answers lost", all, fault, time).await;
            }
            7 => {
                let fault = Proxy::reset_all;
                self.shake("host's lines reset", all, fault, Duration::ZERO)
                    .await;
            }
            8 => {
                let delay = rng.u32(5..100) * MILLISECOND;
                let fault = |line: &Proxy| line.delay(delay);
                self.shake("host's lines slow", all, fault, time).await;
            }
            9 => {
                self.count("worker paused");
                let workers = self.workers.lock().await;
                let process = &workers[rng.usize(..workers.len())].process;
                process.stop();
                sleep(time).await;
                process.cont();
            }
            10 => {
                self.count("worker killed");
                let mut workers = self.workers.lock().await;
                let worker = rng.usize(..workers.len());
                workers[worker].process.kill();
                workers[worker] = self.start(worker);
            }
            11 => self.revoke(rng).await,
            _ => self.delete(rng).await,
        }
    }

    async fn shake<T: Borrow<Proxy>>(
        &self,
        what: &str,
        lines: &[T],
        fault: impl Fn(&Proxy),
        time: Duration,
    ) {
        self.count(what);
        for line in lines {
            fault(line.borrow());
        }
        sleep(time).await;
        for line in lines {
            line.borrow().heal();
        }
    }

    async fn revoke(&self, rng: &mut Rng) {
        let mut leases = self.cluster.client().await.lease_client();
        let asked = timeout(REQUEST, leases.leases()).await;
        let Ok(Ok(found)) = asked else { return };
        let Some(lease) = rng.choice(found.leases()).map(LeaseStatus::id) else {
            return;
        };
        self.count("lease revoked");
        self.book.take_lease(lease);
        // In doubt it was done.
        let _in_doubt = timeout(REQUEST, leases.revoke(lease)).await;
    }

    /// A key of a line, or all of them.
    async fn delete(&self, rng: &mut Rng) {
        let prefix = NAMES[rng.usize(..3)];
        let options = GetOptions::new().with_prefix().with_keys_only();
        let mut kv = self.cluster.client().await.kv_client();
        let asked = timeout(REQUEST, kv.get(prefix, Some(options))).await;
        let Ok(Ok(found)) = asked else { return };
        let mut found = found.kvs().to_vec();
        if found.is_empty() {
            return;
        }
        if rng.bool() {
            found = vec![found.swap_remove(rng.usize(..found.len()))];
            self.count("key deleted");
        } else {
            self.count("line deleted");
        }
        let (mut still, mut deletes) = (Vec::new(), Vec::new());
        for kv in &found {
            let (key, created) = (kv.key(), kv.create_revision());
            self.book.take_token(created.unsigned_abs());
            still.push(Compare::create_revision(key, CompareOp::Equal, created));
            deletes.push(TxnOp::delete(key, None));
        }
        let txn = Txn::new().when(still).and_then(deletes);
        let _in_doubt = timeout(REQUEST, kv.txn(txn)).await;
    }
}
