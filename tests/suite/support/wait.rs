//! Waiting for a condition, never for a time.

use std::fmt::Display;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// How long `soon` is ready to wait: generous, for a loaded machine with two cores.
pub const BOUND: Duration = Duration::from_secs(20);

/// Waits until `check` gives `Ok`, looking again and again; fails with the last state seen (its `Err`).
#[track_caller]
pub fn soon<T>(
    what: &str,
    check: impl AsyncFnMut() -> Result<T, String>,
) -> impl Future<Output = T> {
    within(BOUND, what, check)
}

/// As `soon`, with a bound of one's own.
#[track_caller]
pub fn within<T>(
    bound: Duration,
    what: &str,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> impl Future<Output = T> {
    let place = Location::caller();
    async move {
        let deadline = Instant::now() + bound;
        let mut pause = Duration::from_millis(2);
        let mut last = "nothing seen yet".to_owned();
        loop {
            match timeout_at(deadline, check()).await {
                Ok(Ok(value)) => return value,
                Ok(Err(state)) => last = state,
                Err(_) => last += " (and the last look hung)",
            }
            assert!(
                Instant::now() < deadline,
                "{place}: not within {bound:?}: {what}; last state seen: {last}"
            );
            sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(50));
        }
    }
}

/// `Ok` if the condition holds, else the state seen: the last line of most checks.
pub fn ensure(holds: bool, state: impl Display) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(state.to_string())
    }
}
