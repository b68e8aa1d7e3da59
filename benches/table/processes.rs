//! The same in four processes of four contenders each.

use crate::bare::Line;
use crate::measure::per_second;
use crate::table::Table;
use crate::{Result, server};
use etcd_lock::{Mutex, Session};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// With this word the bench starts itself as one of the processes.
pub const ROLE: &str = "contend";

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
const PROCESSES: usize = 4;
const CONTENDERS: usize = 4;

pub async fn measure(table: &mut Table) -> Result<()> {
    let mut rounds = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (rounds, who) in rounds.iter_mut().zip(["ours", "bare"]) {
            rounds.push(all(who).await?);
        }
    }
    let [ours, bare] = rounds;
    table.row(
        "4 processes of 4, our connection",
        "/s",
        &ours,
        &[("bare", &bare)],
        ">= 0.85",
    );
    Ok(())
}

/// Sections a second in all processes.
async fn all(who: &str) -> Result<f64> {
    let mut processes = Vec::new();
    for i in 0..PROCESSES {
        processes.push(Process::start(who, i).await?);
    }
    for process in &mut processes {
        process.tell.write_all(b"go\n").await?;
    }
    let mut sum = 0.0;
    for process in &mut processes {
        sum += process.line().await?.parse::<f64>()?;
        process.child.wait().await?;
    }
    Ok(sum)
}

struct Process {
    child: Child,
    tell: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Started, connected and ready to begin.
    async fn start(who: &str, i: usize) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([ROLE, who, &i.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let tell = child.stdin.take().ok_or("stdin")?;
        let says = BufReader::new(child.stdout.take().ok_or("stdout")?).lines();
        let mut process = Self { child, tell, says };
        process.line().await?;
        Ok(process)
    }

    async fn line(&mut self) -> Result<String> {
        Ok(self
            .says
            .next_line()
            .await?
            .ok_or("a process of the bench has ended")?)
    }
}

/// What such a process does.
pub async fn contend(args: &[String]) -> Result<()> {
    let [who, process] = args else {
        return Err("which contender?".into());
    };
    let begin = || async {
        println!("ready");
        BufReader::new(tokio::io::stdin()).lines().next_line().await
    };
    let per_second = if who == "ours" {
        let session = Session::open(server::ours().await?).await?;
        let mutex = Mutex::new(&session, "bench/processes")?;
        begin().await?;
        let section = async |_| Ok(mutex.lock().await?.release().await?);
        per_second(CONTENDERS, ROUND, section).await?
    } else {
        let line = Line::follow(server::theirs().await?).await?;
        begin().await?;
        let section = async |i: usize| {
            line.release(line.lock(&format!("{process}-{i}")).await?)
                .await
        };
        per_second(CONTENDERS, ROUND, section).await?
    };
    println!("{per_second}");
    Ok(())
}
