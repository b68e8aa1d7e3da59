//! Three instances, one of which is killed.

use super::children::{Children, Result};
use super::{EVERY, TICKS, label};
use rustix::process::Signal;
use std::time::SystemTime;

pub(crate) async fn show() -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let (first, mut instances) = (now.as_secs() + 2, Children::default());
    for name in ["anna", "bert", "cleo"] {
        instances.start(&[name, &first.to_string()])?;
    }
    let all: Vec<_> = (0..TICKS)
        .map(|n| label(first + n * EVERY.as_secs()))
        .collect();
    let (mut killed, mut told, mut done) = (None, 0, Vec::new());
    // Two see five ticks through, the third one two.
    while told < 2 * TICKS + 2 {
        let (pid, line) = instances.next_line().await?;
        println!("{line}");
        let (tick, what) = line.split_once(' ').unwrap_or_default();
        if tick == all[2] && what.ends_with("begins") && killed.is_none() {
            instances.signal(pid, Signal::KILL)?;
            println!("{tick} SIGKILL to process {pid}");
            killed = Some(pid);
        }
        if what.contains(" has done it") {
            done.push(tick.to_owned());
        }
        told += u64::from(what.contains(" done "));
    }
    for pid in instances.pids() {
        if instances.ended_well(pid).await? == (killed == Some(pid)) {
            return Err(format!("process {pid} has ended in another way than it should").into());
        }
    }
    done.sort_unstable();
    if done != all {
        return Err(format!("these have run to their end: {done:?}").into());
    }
    println!("Every tick has run exactly once to its end.");
    Ok(())
}
