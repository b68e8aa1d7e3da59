//! Signals to the command and to its guard.

use rustix::process::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind, signal};

/// What ends a wait for the turn, and is handed on to CMD.
const HANDED_ON: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TERM,
];

/// Signals as they come.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        catch(&HANDED_ON).map(Self)
    }

    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Makes this process deaf to what would end or stop it, without passing that on to CMD as an
/// ignored signal would be.
pub(crate) fn be_deaf() -> io::Result<()> {
    // tokio keeps its handler when the stream goes.
    catch(&HANDED_ON)?;
    catch(&[Signal::TSTP, Signal::TTIN, Signal::TTOU])?;
    Ok(())
}

/// What is ignored stays so, and CMD inherits it: who says `nohup` means it.
fn catch(signals: &[Signal]) -> io::Result<Vec<(Signal, unix::Signal)>> {
    let ignored = ignored();
    let wanted = signals
        .iter()
        .filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0);
    wanted
        .map(|wanted| Ok((*wanted, signal(SignalKind::from_raw(wanted.as_raw()))?)))
        .collect()
}

/// The signals that this process ignores, as a mask; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
