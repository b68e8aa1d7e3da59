//! The line behind a name: joining it, waiting in it, holding, and looking at it.

mod breaking;
mod fate;
mod hold;
mod lost_hold;
mod outcome;
mod place;
mod report;
mod settle;
mod sight;
mod turn;
mod txn;
mod view;
mod wait;
mod write;

pub(crate) use breaking::{break_if, why_gone};
pub use hold::Hold;
pub use lost_hold::LostHold;
pub use outcome::{Done, TxnOutcome};
pub(crate) use turn::{try_once, wait, wait_until};
pub use txn::GuardedTxn;
pub use view::Waiter;
pub(crate) use view::{inscription, list};
