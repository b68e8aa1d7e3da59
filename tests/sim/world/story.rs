//! What happened, in order.

use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Shared by all who have something to tell.
#[derive(Clone, Default)]
pub struct Story(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    now: Duration,
    text: String,
    wrong: Option<String>,
}

impl Story {
    pub fn now(&self) -> Duration {
        self.told().now
    }

    pub fn set_now(&self, now: Duration) {
        self.told().now = now;
    }

    pub fn tell(&self, who: impl Display, what: impl Display) {
        let mut told = self.told();
        let now = told.now.as_secs_f64();
        writeln!(told.text, "{now:8.3} {who:8} {what}").unwrap();
    }

    /// Something that must not be. The first counts, and ends the run.
    pub fn wrong(&self, what: impl Display) {
        self.tell("WRONG", &what);
        let mut told = self.told();
        told.wrong.get_or_insert_with(|| what.to_string());
    }

    pub fn is_wrong(&self) -> bool {
        self.told().wrong.is_some()
    }

    /// The whole text, and what was wrong.
    pub fn end(&self) -> (String, Option<String>) {
        let mut told = self.told();
        (std::mem::take(&mut told.text), told.wrong.take())
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap()
    }
}
