//! Who is directly ahead of a waiter, as its span shows it.

use tracing::Span;

/// The span of a wait, and whom it names.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    span: Span,
    key: Vec<u8>,
}

impl Ahead {
    pub(crate) fn of(span: &Span) -> Self {
        let (span, key) = (span.clone(), Vec::new());
        Self { span, key }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_seen(&self) -> bool {
        !self.span.is_disabled()
    }

    /// Names the key, if that is another than before: some subscribers keep all that is recorded.
    pub(crate) fn is(&mut self, key: &[u8]) {
        if self.is_seen() && self.key != key {
            self.key = key.to_vec();
            let key = String::from_utf8_lossy(key);
            self.span.record("ahead", &*key);
        }
    }
}
