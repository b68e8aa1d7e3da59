//! Counting: what is done in a time, and what it costs this process.

use crate::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often `n` tasks do their `section` in a second, all in this one, for `time`.
pub async fn per_second(
    n: usize,
    time: Duration,
    section: impl AsyncFn(usize) -> Result<()>,
) -> Result<f64> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let contender = async |i| -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            section(i).await?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let start = Instant::now();
    let all = futures_util::future::try_join_all((0..n).map(&contender));
    let (ended, ()) = tokio::join!(all, async {
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
    });
    ended?;
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let done = done.into_inner() as f64;
    Ok(done / start.elapsed().as_secs_f64())
}

/// How many seconds of a core this process has used.
pub fn cpu() -> Result<f64> {
    /// What the kernel counts in here, whatever it counts in itself.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<f64> { Ok(fields.next().ok_or("a field")?.parse()?) };
    Ok((ticks()? + ticks()?) / TICKS)
}

/// How many bytes of memory this process has in use.
pub fn memory() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.ok_or("no VmRSS")?.parse::<f64>()? * 1024.0)
}
