//! The contract of the lock, as somebody who never looks inside would put it. Scenarios 3 and 5 in their plain form,
//! and the rules that need no fault to be seen: R4, R6, R8, R13.
//!
//! - `exclusive`: one holder, between tasks and between sessions; free again after a release.
//! - `free`: what is sent for a lock that was free the last time.
//! - `line`: first come first served, tokens grow, what the queue and a busy try tell, wake-ups are bounded.
//! - `nested`: `a` and `a/b` are different locks.
//! - `holding`: renewal, margin, fence, work under the lock.
//! - `ending`: sessions closed or dropped, keys and leases removed by hand; nothing is left.

mod ending;
mod exclusive;
mod free;
mod holding;
mod line;
mod nested;
