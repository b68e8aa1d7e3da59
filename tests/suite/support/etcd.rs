//! A real etcd process.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use etcd_client::{Client, StatusResponse};
use tempfile::TempDir;
use tokio::time::timeout;

use super::client::connect;
use super::ports::Port;
use super::process::{Leashed, program};
use super::setup::Setup;
use super::wait::{ensure, soon};

/// A cluster of one member: what most tests need.
pub type Etcd = Member;

/// One etcd process with ports and data of its own, which outlive a kill; all of it goes when dropped.
pub struct Member {
    process: Mutex<Option<Leashed>>,
    /// The id of that process, or of the one before, for whoever must know it without keeping the member.
    latest_pid: Arc<AtomicI32>,
    program: Mutex<OsString>,
    name: String,
    ports: [Port; 2],
    /// Where it serves over TLS, if it does, and what keeps the port.
    https: Option<(String, Port)>,
    /// Where the other members reach it.
    peer: String,
    args: Mutex<Vec<String>>,
    dir: TempDir,
}

impl Member {
    /// Starts a cluster of one member and waits until it serves.
    pub async fn start() -> Self {
        Setup::default().one().await
    }

    pub(super) fn new(
        name: String,
        ports: [Port; 2],
        https: Option<(String, Port)>,
        peer: String,
        args: Vec<String>,
        dir: TempDir,
    ) -> Self {
        Self {
            process: Mutex::new(None),
            latest_pid: Arc::default(),
            program: Mutex::new(program("ETCD_BIN", "etcd")),
            name,
            ports,
            https,
            peer,
            args: Mutex::new(args),
            dir,
        }
    }

    /// `http://127.0.0.1:port` for clients.
    pub fn endpoint(&self) -> String {
        self.ports[0].url()
    }

    /// `https://127.0.0.x:port` for clients, of a member that was set up for it.
    pub fn https_endpoint(&self) -> String {
        self.https.as_ref().expect("it serves over TLS").0.clone()
    }

    /// Port for clients.
    pub fn port(&self) -> u16 {
        self.ports[0].number()
    }

    /// Its name in the cluster: `m0`, `m1`…
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Directory of its data and its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where the other members reach it.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.with(Leashed::pid)
    }

    /// Its process id, whatever happens to it from now on.
    pub(super) fn latest_pid(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.latest_pid)
    }

    /// Freezes it (SIGSTOP); on return it stands still.
    pub fn stop(&self) {
        self.with(Leashed::stop);
    }

    /// Lets it go on after `stop`.
    pub fn cont(&self) {
        self.with(Leashed::cont);
    }

    /// Kills it (SIGKILL), stopped or not, and waits for its end. Ports and data are kept.
    pub fn kill(&self) {
        self.with(Leashed::kill);
    }

    /// Asks it to end (SIGTERM) and waits until it has. Ports and data are kept.
    pub async fn term(&self) {
        self.with(Leashed::term);
        soon("etcd ends after SIGTERM", async || {
            ensure(!self.is_running(), self.log_tail())
        })
        .await;
    }

    /// Kills it if need be, starts it again on the same ports with its data, and waits until it serves.
    pub async fn restart(&self) {
        self.spawn();
        self.ready().await;
    }

    /// As `restart`, from now on with the newer etcd that `ETCD_NEXT_BIN` names.
    pub async fn upgrade(&self) {
        let next = std::env::var_os("ETCD_NEXT_BIN").expect("ETCD_NEXT_BIN names an etcd");
        *self.program.lock().unwrap() = next;
        self.restart().await;
    }

    /// As `restart`, without waiting: for members that will have no quorum yet.
    pub fn spawn(&self) {
        let log = File::create(self.log_file()).expect("etcd's log can be written");
        let mut command = Command::new(&*self.program.lock().unwrap());
        command.args(&*self.args.lock().unwrap());
        let mut process = self.process();
        drop(process.take());
        let spare = log.try_clone().expect("a file handle");
        let leashed = Leashed::spawn(
            &command,
            spare.into(),
            Stdio::from(log),
            Some(self.dir.path()),
        );
        self.latest_pid.store(leashed.pid(), Relaxed);
        *process = Some(leashed);
    }

    /// As `spawn`, without the data that it had: for a cluster that has been told to take it in anew.
    pub fn spawn_empty(&self) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path().join("data")).expect("its data is ours");
        // Of a flag given twice the last one counts.
        let existing = "--initial-cluster-state=existing".to_owned();
        self.args.lock().unwrap().push(existing);
        self.spawn();
    }

    /// Waits until it serves clients (so it has joined a quorum with a leader); fails with the end of its log.
    pub async fn ready(&self) {
        // Its own log cannot be another server's, as an answering port could.
        soon("etcd serves its clients", async || {
            let log = self.log();
            assert!(
                self.is_running(),
                "{} ended at once, its log ends with\n{}",
                self.name,
                self.log_tail()
            );
            ensure(log.contains("serving client traffic"), self.log_tail())
        })
        .await;
    }

    /// True if the process exists and is not stopped.
    pub fn is_running(&self) -> bool {
        self.process()
            .as_ref()
            .is_some_and(|process| process.exited().is_none() && !process.is_stopped())
    }

    /// A client of this member alone, unconfigured.
    pub async fn client(&self) -> Client {
        connect(&[self.endpoint()]).await
    }

    /// The member's view of itself and its leader; answered without a quorum, `None` if it does not answer.
    pub async fn status(&self) -> Option<StatusResponse> {
        if !self.is_running() {
            return None;
        }
        let status = async { self.client().await.maintenance_client().status().await };
        timeout(Duration::from_secs(2), status).await.ok()?.ok()
    }

    /// What it has logged since it was last started.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn process(&self) -> MutexGuard<'_, Option<Leashed>> {
        self.process.lock().unwrap()
    }

    fn with<T>(&self, act: impl FnOnce(&Leashed) -> T) -> T {
        act(self.process().as_ref().expect("it was started"))
    }
}
