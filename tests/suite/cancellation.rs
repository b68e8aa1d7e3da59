//! Dropped futures leave nothing behind (R5): the place in the line goes, the key goes, and the next one gets in.
//!
//! - `dropped`: a wait, a try or a release dropped at any await point and at random times (scenarios 15, 20; R14).
//! - `hiccups`: the line to etcd fails while a join or its clean-up is under way (scenarios 16, 17, 18), and puts
//!   that a frozen member carries out long after they were given up.
//! - `limits`: waits with a limit, and futures that were never polled.

mod dropped;
mod hiccups;
mod limits;
