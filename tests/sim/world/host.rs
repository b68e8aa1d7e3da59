//! A process: a runtime with a clock of its own, which runs a little at a time.

use super::holds::Holds;
use super::story::Story;
use super::worker::{self, Post};
use crate::wire::Outbox;
use fastrand::Rng;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep_until};

pub struct Host {
    runtime: Runtime,
    /// When its clock began, here and there.
    begun: (Instant, Duration),
    /// By how much its clock is too fast: 1.01 is one percent.
    rate: f64,
    /// It stands still until then, its clock goes on.
    pub paused_until: Option<Duration>,
    pub post: Post,
}

impl Host {
    pub fn start(
        process: usize,
        outbox: &Outbox,
        holds: &Holds,
        story: &Story,
        crowd: bool,
        rng: &mut Rng,
    ) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let post = Post::new(process, holds.clone(), story.clone());
        let begun = runtime.block_on(async {
            let client = outbox.client(process).await;
            worker::start(&post, &client, crowd, rng);
            Instant::now()
        });
        let rate = [1.0, 0.99, 1.01][rng.usize(..3)];
        Self {
            runtime,
            begun: (begun, story.now()),
            rate,
            paused_until: None,
            post,
        }
    }

    /// Runs until its clock shows that moment.
    pub fn run(&mut self, until: Duration) {
        if self.paused_until.is_some_and(|end| until < end) {
            return;
        }
        let here = until.saturating_sub(self.begun.1).mul_f64(self.rate);
        let until = self.begun.0 + here;
        let was_paused = self.paused_until.take().is_some();
        self.runtime.block_on(async {
            if was_paused {
                // Nobody has run meanwhile: the clock has gone on first.
                advance(until.saturating_duration_since(Instant::now())).await;
            }
            sleep_until(until).await;
        });
    }

    /// Asks something as code of this process would.
    pub fn ask<T>(&self, question: impl FnOnce() -> T) -> T {
        let _here = self.runtime.enter();
        question()
    }

    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }
}
