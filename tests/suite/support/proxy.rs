//! A byte proxy between a client and a member, whose line can be made to fail in several ways.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::listener::accept;
use super::ports::Port;
use super::rules::{Mode, Rules, Shared};

/// A proxy with a thread of its own, so that a test may block its own runtime; gone with its connections when dropped.
///
/// Every verb acts at once and on all connections: when it returns, no byte flows under the old rule any more.
pub struct Proxy {
    port: Port,
    rules: Option<watch::Sender<Rules>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Puts a proxy before an endpoint (`http://127.0.0.1:port`).
    pub async fn to(endpoint: &str) -> Self {
        let target = endpoint.strip_prefix("http://").unwrap_or(endpoint);
        let target: SocketAddr = target.parse().expect("an address");
        assert!(target.ip().is_loopback(), "the proxy stays on this machine");
        let port = Port::take();
        let first = Rules {
            mode: Mode::Pass,
            delay: Duration::ZERO,
            version: 1,
            reset_at: 0,
        };
        let (rules, watching) = watch::channel(first);
        let shared = Arc::new(Shared::default());
        let (listens, listening) = oneshot::channel();
        let addr = port.addr();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(accept(addr, target, watching, shared, listens));
            }
        });
        listening.await.expect("the proxy listens");
        Self {
            port,
            rules: Some(rules),
            shared,
            thread: Some(thread),
        }
    }

    /// `http://127.0.0.1:port` for clients.
    pub fn endpoint(&self) -> String {
        self.port.url()
    }

    /// The same as an address.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Silent black hole in both directions: no byte passes, no reset, no end; new connections are taken and ignored.
    pub fn hold(&self) {
        self.set(|rules| rules.mode = Mode::Hold);
    }

    /// Requests reach the server, its answers are kept; `heal` delivers them.
    pub fn hold_answers(&self) {
        self.set(|rules| rules.mode = Mode::HoldAnswers);
    }

    /// Requests reach the server, its answers are lost for good; `heal` resets the connections that lost any.
    pub fn drop_answers(&self) {
        self.set(|rules| rules.mode = Mode::DropAnswers);
    }

    /// Resets all connections and refuses new ones.
    pub fn cut(&self) {
        self.set(|rules| rules.mode = Mode::Cut);
    }

    /// Resets all connections once; new ones are taken at once.
    pub fn reset_all(&self) {
        self.set(|rules| rules.reset_at = rules.version);
    }

    /// Makes every byte take this much longer, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.set(|rules| rules.delay = delay);
    }

    /// Makes something go wrong for so long, then nothing for 30 ms, and so on for ever.
    pub async fn shake(&self, wrong: Duration) {
        let faults: [fn(&Self); 4] = [Self::reset_all, Self::cut, Self::drop_answers, Self::hold];
        for fault in faults.iter().cycle() {
            fault(self);
            tokio::time::sleep(wrong).await;
            self.heal();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Makes the line sound: kept bytes flow on, new connections are taken, no delay.
    pub fn heal(&self) {
        self.set(|rules| (rules.mode, rules.delay) = (Mode::Pass, Duration::ZERO));
    }

    /// Connections opened so far.
    pub fn opened(&self) -> u64 {
        self.shared.opened.load(Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }

    /// Bytes that have reached the server.
    pub fn bytes_up(&self) -> u64 {
        self.shared.up.load(Relaxed)
    }

    /// Bytes that have reached clients.
    pub fn bytes_down(&self) -> u64 {
        self.shared.down.load(Relaxed)
    }

    /// Bytes of answers that were lost by `drop_answers`.
    pub fn bytes_lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Changes the rules and waits, for less than a millisecond, until the listener and every connection obey.
    fn set(&self, change: impl FnOnce(&mut Rules)) {
        let mut version = 0;
        self.rules.as_ref().expect("alive").send_modify(|rules| {
            rules.version += 1;
            change(rules);
            version = rules.version;
        });
        let obeyed = || {
            let listener = self.shared.listener.load(Relaxed) >= version;
            listener
                && self
                    .shared
                    .open
                    .lock()
                    .unwrap()
                    .values()
                    .all(|obeys| *obeys >= version)
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !obeyed() {
            assert!(Instant::now() < deadline, "the proxy does not obey");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.rules.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the proxy did not panic");
        }
    }
}
