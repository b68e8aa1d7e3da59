//! The stage: hears what the schedulers say, and prints it with what is done to them.

use super::cast::{Cast, Said};
use super::{Result, TTL};
use rustix::process::Signal;
use tokio::time::{Instant, timeout_at};

pub(crate) struct Stage {
    pub(crate) cast: Cast,
    begun: Instant,
}

/// A scheduler that got the lock.
pub(crate) struct Holder {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) since: Instant,
}

impl Stage {
    pub(crate) fn new(cast: Cast) -> Self {
        let begun = Instant::now();
        Self { cast, begun }
    }

    pub(crate) async fn next_holder(&mut self) -> Result<Holder> {
        loop {
            let said = undisturbed(self.hear().await?)?;
            if said.verb == "holds" {
                let (name, since) = (said.who, said.at);
                let token = said.what.parse()?;
                return Ok(Holder { name, token, since });
            }
        }
    }

    /// Waits until a scheduler says this.
    pub(crate) async fn until(&mut self, who: &str, verb: &str) -> Result<Said> {
        loop {
            let said = self.hear().await?;
            if said.who == who && said.verb == verb {
                return Ok(said);
            }
            undisturbed(said)?;
        }
    }

    /// Only hears, for some time.
    pub(crate) async fn hear_until(&mut self, end: Instant) -> Result<()> {
        while let Ok(said) = timeout_at(end, self.hear()).await {
            undisturbed(said?)?;
        }
        Ok(())
    }

    /// Prints what is said next.
    async fn hear(&mut self) -> Result<Said> {
        let said = self.cast.hear().await?;
        let what = &said.what;
        let line = match said.verb.as_str() {
            "waits" => "stands in line".to_owned(),
            "holds" => format!("holds the lock, with token {what}"),
            "wrote" => format!("wrote tick {what}"),
            "refused" => format!("writes late and is REFUSED: tick {what}"),
            "lost" => format!("finds its lock {what}"),
            "leaves" => "leaves in good order".to_owned(),
            _ => return Ok(said),
        };
        self.print(said.at, ' ', &said.who, &line);
        Ok(said)
    }

    /// Sends a signal and prints what that means; gives the instant before it went out.
    pub(crate) fn signal(&self, who: &str, signal: Signal, line: &str) -> Result<Instant> {
        let at = Instant::now();
        self.cast.signal(who, signal)?;
        self.print(at, '!', who, line);
        Ok(at)
    }

    fn print(&self, at: Instant, mark: char, who: &str, line: &str) {
        let seconds = self.seconds(at);
        println!("{seconds:6.2} {mark} {who} {line}");
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.begun).as_secs_f64()
    }
}

/// Fails if a lock was lost to which nothing was done.
fn undisturbed(said: Said) -> Result<Said> {
    if said.verb == "lost" {
        return Err(format!("is this machine too busy for a TTL of {TTL:?}?").into());
    }
    Ok(said)
}

/// Prints a claim if it is true, or fails.
pub(crate) fn check(is_true: bool, claim: &str) -> Result<()> {
    if !is_true {
        return Err(format!("NOT TRUE: {claim}").into());
    }
    println!("         ok: {claim}");
    Ok(())
}
