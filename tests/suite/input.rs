//! What cannot work is refused with advice, at the right moment: no panic, no hang.
//!
//! - `arguments`: names, TTLs, margins, labels, closed sessions.
//! - `servers`: endpoints where no etcd answers, an etcd that wants a user, a user that may not (scenario 51 in part).

mod arguments;
mod servers;
