//! Children that speak in lines, and can be stopped and killed: ourselves once more, or etcdctl.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::{Leashed, Said};
use super::wait::BOUND;

/// A child process that speaks in lines: this very test binary run again, or `etcdctl lock`/`elect`.
pub struct Puppet {
    pub process: Leashed,
    lines: Said,
    prefix: &'static str,
}

/// Marks what a re-run test says to its parent among libtest's own output.
const SAYS: &str = "@@ ";
/// Environment variable that tells a re-run test which part to play.
const ROLE: &str = "ETCD_LOCK_TEST_ROLE";

impl Puppet {
    /// Starts `command`, of whose stdout every line counts.
    pub fn spawn(command: &Command) -> Self {
        Self::with_prefix(command, "")
    }

    /// Runs the test function `test` of this binary again in another process, where `role()` gives `role`.
    pub fn rerun<F: Copy>(test: F, role: &str, envs: &[(&str, &str)]) -> Self {
        let path = std::any::type_name_of_val(&test);
        let (_, name) = path.split_once("::").expect("crate::module::test");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", name, "--nocapture", "--include-ignored"]);
        command.env(ROLE, role).envs(envs.iter().copied());
        // A leash takes away what may configure an etcd; these only say where it is.
        for program in ["ETCD_BIN", "ETCDCTL_BIN"] {
            if let Some(path) = std::env::var_os(program) {
                command.env(program, path);
            }
        }
        Self::with_prefix(&command, SAYS)
    }

    fn with_prefix(command: &Command, prefix: &'static str) -> Self {
        let process = Leashed::spawn(command, Stdio::piped(), Stdio::inherit(), None);
        let lines = process.take_stdout();
        Self {
            process,
            lines,
            prefix,
        }
    }

    /// Waits for the next line it says; `None` once it has ended or closed its stdout.
    pub async fn next_line(&mut self) -> Option<String> {
        while let Some(line) = self.lines.next_line().await.expect("stdout can be read") {
            if let Some(said) = line.strip_prefix(self.prefix) {
                return Some(said.to_owned());
            }
        }
        None
    }

    /// Waits for the next line, which must come soon.
    pub async fn line(&mut self) -> String {
        let next = tokio::time::timeout(BOUND, self.next_line()).await;
        next.expect("the puppet says something soon")
            .expect("the puppet has not ended")
    }

    /// Fails if it says anything within `time`.
    pub async fn is_silent_for(&mut self, time: Duration) {
        if let Ok(Some(line)) = tokio::time::timeout(time, self.next_line()).await {
            panic!("the puppet said {line:?}");
        }
    }
}

/// The part that this process shall play if a parent test re-ran it; `None` in an ordinary run.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Says one line to the parent test.
pub fn say(line: impl std::fmt::Display) {
    println!("\n{SAYS}{line}");
}
