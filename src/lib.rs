//! Distributed locks on etcd v3.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod election;
mod error;
mod etcd;
mod fencing;
mod guard;
mod key;
mod mutex;
mod observer;
mod queue;
pub mod scheduler;
mod session;
mod validity;

pub use election::{Election, Leader, Leadership};
pub use error::{Error, Lost, Result};
pub use etcd_client;
pub use fencing::FencingToken;
pub use guard::LockGuard;
pub use mutex::{Busy, Mutex};
pub use observer::Observer;
pub use queue::{Hold, Waiter};
pub use session::{Session, SessionBuilder};
