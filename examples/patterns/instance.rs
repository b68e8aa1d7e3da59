//! Instances of a service, each a thread with a runtime of its own: one that stands still holds up nobody else, and
//! nothing of it goes on meanwhile, its renewals included.

use super::children::Result;
use etcd_lock::{LockGuard, Mutex, Session};
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The shortest that etcd grants.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// Longer than any of them has to stand still.
const TOO_LONG: Duration = Duration::from_secs(30);

pub(crate) fn instance<T: Send + 'static>(
    work: impl AsyncFnOnce() -> Result<T> + Send + 'static,
) -> JoinHandle<Result<T>> {
    tokio::task::spawn_blocking(|| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    })
}

/// Waits for the lock in a session of its own. The session lives as long as the guard.
pub(crate) async fn hold(lock: &str, label: &str) -> Result<LockGuard> {
    hold_for(TTL, lock, label).await
}

pub(crate) async fn hold_for(ttl: Duration, lock: &str, label: &str) -> Result<LockGuard> {
    let endpoints = std::env::var("ETCD_ENDPOINTS")
        .map_err(|_| "ETCD_ENDPOINTS is not set; try: ci/with-etcd cargo run --example patterns")?;
    let endpoints: Vec<_> = endpoints.split(',').collect();
    let client = etcd_lock::connect(endpoints, None).await?;
    let session = Session::builder(client)
        .ttl(ttl)
        .label(label)
        .open()
        .await?;
    Ok(Mutex::new(&session, lock)?.lock().await?)
}

/// An instance that stands still in the middle of its work: garbage is collected, a disk hangs, a debugger is attached,
/// or somebody computes on the runtime's thread.
pub(crate) struct Late<T> {
    go_on: mpsc::Sender<()>,
    ended: JoinHandle<Result<T>>,
}

/// The moment in which it stands still.
pub(crate) struct Pause {
    tell: oneshot::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl<T: Send + 'static> Late<T> {
    /// Starts it and waits until it stands still.
    pub(crate) async fn start(
        work: impl AsyncFnOnce(Pause) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let (tell, told) = oneshot::channel();
        let (send, go_on) = mpsc::channel();
        let pause = Pause { tell, go_on };
        let ended = instance(async move || work(pause).await);
        if told.await.is_err() {
            ended.await??;
            return Err("it ended without standing still".into());
        }
        Ok(Self { go_on: send, ended })
    }

    /// Lets it go on, and waits for its end.
    pub(crate) async fn go_on(self) -> Result<T> {
        self.go_on.send(()).ok();
        self.ended.await?
    }
}

impl Pause {
    /// Blocks the thread, as what is meant by it does.
    pub(crate) fn stand_still(self) -> Result<()> {
        self.tell.send(()).ok();
        Ok(self.go_on.recv_timeout(TOO_LONG)?)
    }
}
