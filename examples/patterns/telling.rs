//! What is printed: seconds since the start, what happens, and what was checked.

use super::children::Result;
use std::fmt::Display;
use std::sync::LazyLock;
use std::time::Instant;

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn title(story: &str, place: impl Display) {
    println!("\n{story} ({place})");
}

pub(crate) fn say(what: impl Display) {
    println!("{:6.2}  {what}", BEGUN.elapsed().as_secs_f64());
}

/// The disaster has to happen, or there would be nothing to cure.
pub(crate) fn disaster(happened: bool, what: impl Display) -> Result<()> {
    claim("DISASTER", happened, what)
}

pub(crate) fn cure(held: bool, what: impl Display) -> Result<()> {
    claim("cure", held, what)
}

fn claim(kind: &str, is_true: bool, what: impl Display) -> Result<()> {
    if !is_true {
        return Err(format!("NOT TRUE: {kind}: {what}").into());
    }
    println!("{:6.2}  {kind}: {what}", BEGUN.elapsed().as_secs_f64());
    Ok(())
}
