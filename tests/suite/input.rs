//! What cannot work is refused with advice, at the right moment: no panic, no hang.
//!
//! - `arguments`: names, TTLs, margins, labels, closed sessions.
//! - `anything`: the same by chance, and whatever others put into a line.
//! - `servers`: endpoints where no etcd answers, an etcd that wants a user, a user that may not (scenario 51 in part).

mod anything;
mod arguments;
mod servers;
