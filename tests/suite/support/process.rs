//! Child processes on a leash: they die with the test process, however that one ends.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

use super::wait::soon;

/// Becomes the wanted program, after leaving behind a watcher that waits for the end of stdin. The write end of that
/// pipe is in the test process alone; when it closes, the watcher kills the program, its data and its process group.
/// (`PR_SET_PDEATHSIG` would fire as soon as the spawning *thread* ends.)
const LEASH: &str = r#"
exec 3<&0
{ trap '' HUP INT TERM
  read -r _ <&3; kill -9 $$
  if [ -n "$LEASH_DATA" ]; then rm -rf "$LEASH_DATA"; sleep 0.3; rm -rf "$LEASH_DATA"; fi
  kill -9 -- -$$; } >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
"#;

/// What a process says.
pub type Said = Lines<BufReader<pipe::Receiver>>;

/// A process in a group of its own that is killed when dropped and when the test process dies.
pub struct Leashed {
    pid: Pid,
    child: Mutex<Child>,
    killed: Mutex<bool>,
    _leash: ChildStdin,
}

impl Leashed {
    /// Starts `command` (its program, arguments and environment); `data` is removed if the test process dies.
    pub fn spawn(command: &Command, stdout: Stdio, stderr: Stdio, data: Option<&Path>) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", LEASH, "leash"])
            .arg(command.get_program())
            .args(command.get_args());
        for (key, _) in std::env::vars_os().filter(|(key, _)| configures_etcd(key)) {
            shell.env_remove(key);
        }
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        shell.env("LEASH_DATA", data.unwrap_or(Path::new("")));
        shell
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        let mut child = shell.spawn().expect("/bin/sh starts");
        let leash = child.stdin.take().expect("stdin is a pipe");
        let pid = Pid::from_child(&child);
        Self {
            pid,
            child: Mutex::new(child),
            killed: Mutex::new(false),
            _leash: leash,
        }
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Exit status, if the process has ended.
    pub fn exited(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().expect("our child")
    }

    /// Waits for the process to end by itself.
    pub async fn exit(&self) -> ExitStatus {
        soon("the child process ends", async || {
            self.exited().ok_or("still running".into())
        })
        .await
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) {
        if self.exited().is_none() {
            kill_process(self.pid, signal).expect("our child can be signalled");
        }
    }

    /// Freezes the process (SIGSTOP); on return every thread of it stands still.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.is_stopped() {
            assert!(self.exited().is_none(), "a dead process cannot be stopped");
            assert!(
                Instant::now() < deadline,
                "process {} does not stop",
                self.pid()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Lets a stopped process go on (SIGCONT).
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the process to end (SIGTERM).
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the process and its children (SIGKILL) and waits for its end; a stopped one too.
    pub fn kill(&self) {
        let mut killed = self.killed.lock().unwrap();
        if !*killed {
            // The watcher is in the group and keeps its id from being given to anybody else; but once only.
            let _ = kill_process_group(self.pid, Signal::KILL);
            self.child.lock().unwrap().wait().expect("our child");
            *killed = true;
        }
    }

    /// True if every thread stands still.
    pub fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
        tasks.is_ok_and(|tasks| tasks.flatten().all(|task| state(&task.path()) == Some('T')))
    }

    /// Its stdout, if piped, line by line; once only.
    pub fn take_stdout(&self) -> Said {
        let stdout = self
            .child
            .lock()
            .unwrap()
            .stdout
            .take()
            .expect("stdout is a pipe");
        let stdout =
            pipe::Receiver::from_owned_fd(OwnedFd::from(stdout)).expect("stdout is a pipe");
        BufReader::new(stdout).lines()
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// True for the variables by which etcd and etcdctl can be configured: tests start them without.
pub fn configures_etcd(key: &std::ffi::OsStr) -> bool {
    key.to_str()
        .is_some_and(|key| key.starts_with("ETCD_") || key.starts_with("ETCDCTL_"))
}

/// State letter of a process or thread directory in /proc (`R`, `S`, `T`, `Z`…), `None` if it is gone.
pub fn state(dir: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// True if a process of that id exists and is more than a zombie.
pub fn is_alive(pid: i32) -> bool {
    state(Path::new(&format!("/proc/{pid}"))).is_some_and(|state| state != 'Z')
}

/// Program named by the variable, else by its plain name on the PATH.
pub fn program(variable: &str, name: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| name.into())
}
