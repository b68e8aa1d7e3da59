//! What the command says: results on stdout, trouble on stderr.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// A line of results, seen at once.
pub(crate) fn line(line: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        // Nobody reads on, as behind `head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written,
    }
}

/// Something that is wrong; nothing helps if that cannot be said.
pub(crate) fn say(what: impl Display) {
    writeln!(io::stderr(), "etcd-lock: {what}").ok();
}

/// What others have written, without what could make a terminal do things.
pub(crate) fn visible(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
