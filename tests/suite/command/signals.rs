//! - Signals to the command are handed on to all that it has started.
//! - The lock is released only when that has ended.
//! - What is ignored stays ignored (`nohup`).
//! - At a terminal, the child has it: reads it, and is what Ctrl-C is for.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::tool::{Family, PAIR, program, run, soon_gone};
use crate::support::{BOUND, Etcd, Puppet, keys, mutex, session, soon_nothing};

#[tokio::test]
async fn signals_are_handed_on_and_the_lock_is_held_until_the_child_has_ended() {
    let etcd = Etcd::start().await;
    let client = etcd.client().await;
    let session = session(client.clone(), 60).await;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let script = "trap 'echo told; sleep 0.7; echo over; exit 5' INT TERM HUP; echo ready; \
                      while :; do sleep 0.05; done";
        let mut ours = run(&etcd.endpoint(), "a", script);
        assert_eq!(ours.line().await, "ready");
        ours.process.signal(signal);
        assert_eq!(ours.line().await, "told");
        let guard = mutex(&session, "a").lock().await.unwrap();
        // Said before the lock was free: nothing is to be waited for.
        let over = tokio::time::timeout(Duration::from_millis(500), ours.line()).await;
        assert_eq!(over.as_deref(), Ok("over"));
        assert_eq!(ours.process.exit().await.code(), Some(5));
        guard.release().await.unwrap();
    }
    session.close().await.unwrap();
    soon_nothing(&client).await;
}

#[tokio::test]
async fn grandchildren_are_told_too() {
    let etcd = Etcd::start().await;
    let mut ours = run(&etcd.endpoint(), "a", PAIR);
    let family = Family::of(&mut ours).await;
    ours.process.term();
    assert_eq!(ours.process.exit().await.code(), Some(143));
    assert!(family.alive().is_empty());
    soon_gone(&etcd.client().await, &family).await;
}

#[tokio::test]
async fn a_hangup_that_is_ignored_stays_ignored() {
    let etcd = Etcd::start().await;
    let inner = format!(
        "trap '' HUP; exec \"{}\" run a -- sh -c 'kill -HUP $$; echo alive; read -r _; sleep 1000'",
        env!("CARGO_BIN_EXE_etcd-lock")
    );
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &inner])
        .env("ETCDCTL_ENDPOINTS", etcd.endpoint());
    let mut ours = Puppet::spawn(&shell);
    assert_eq!(ours.line().await, "alive");
    ours.process.signal(Signal::HUP);
    ours.is_silent_for(Duration::from_millis(300)).await;
    assert_eq!(keys(&etcd.client().await, "a/").await.len(), 1);
    ours.process.term();
    assert_eq!(ours.process.exit().await.code(), Some(143));
    soon_nothing(&etcd.client().await).await;
}

#[tokio::test]
async fn a_child_that_stands_still_hears_term() {
    let etcd = Etcd::start().await;
    let script = "echo $$; kill -STOP $$";
    let args = ["run", "a", "--", "sh", "-c", script];
    let mut ours = Puppet::spawn(&program(&etcd.endpoint(), &args));
    let client = etcd.client().await;
    let child = ours.line().await;
    crate::support::soon("it stands still", async || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        crate::support::ensure(stat.contains(") T "), stat)
    })
    .await;
    ours.process.term();
    assert_eq!(ours.process.exit().await.code(), Some(143));
    soon_nothing(&client).await;
}

/// A pseudo terminal: our side, and the side of programs.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap());
    (File::from(ours), theirs.unwrap())
}

#[tokio::test]
async fn at_a_terminal_the_child_has_it() {
    let etcd = Etcd::start().await;
    let (mut ours, theirs) = terminal();
    let script = "read x; echo got $x; exec cat";
    let args = ["run", "--ttl", "3s", "a", "--", "sh", "-c", script];
    let program = program(&etcd.endpoint(), &args);
    let mut command = tokio::process::Command::new("setsid");
    command
        .args(["--ctty", "--wait"])
        .arg(program.get_program())
        .args(program.get_args())
        .env("ETCDCTL_ENDPOINTS", etcd.endpoint())
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs)
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    drop(command);
    // A terminal's file blocks, so it has a thread of its own.
    let mut reader = BufReader::new(ours.try_clone().unwrap());
    let (say, mut said) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            if say.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    ours.write_all(b"hello\n").unwrap();
    let mut seen = String::new();
    while !seen.contains("got hello") {
        let next = timeout(BOUND, said.recv()).await.expect(&seen);
        seen += &next.expect(&seen);
    }
    // Ctrl-C, which the terminal makes a signal of.
    ours.write_all(b"\x03").unwrap();
    let ended = timeout(BOUND, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(130), "{seen}");
    soon_nothing(&etcd.client().await).await;
}
