//! What this thread logs, as text.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::wait::{ensure, soon};

/// Gathers what the crate says on this thread, until dropped.
pub struct Log {
    text: Text,
    _subscriber: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// By a filter such as `etcd_lock=debug`.
    pub fn of(filter: &str) -> Self {
        let text = Text::default();
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(text.clone())
            .finish();
        let subscriber = tracing::subscriber::set_default(log);
        Self {
            text,
            _subscriber: subscriber,
        }
    }

    /// All that was said.
    pub fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).expect("text")
    }

    /// The lines that contain this.
    pub fn lines(&self, part: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    }

    /// Waits for a line that contains this; gives the first.
    pub async fn line(&self, part: &str) -> String {
        soon("it is said", async || {
            ensure(!self.lines(part).is_empty(), self.text())
        })
        .await;
        self.lines(part).remove(0)
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Text {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
