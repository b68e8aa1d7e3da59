//! The line behind a name: joining it, waiting in it, holding, and looking at it.

mod fate;
mod hold;
mod lost_hold;
mod outcome;
mod place;
mod settle;
mod turn;
mod txn;
mod view;
mod wait;
mod write;

pub use hold::Hold;
pub use lost_hold::LostHold;
pub use outcome::{Done, TxnOutcome};
pub(crate) use turn::{try_once, wait};
pub use txn::GuardedTxn;
pub use view::Waiter;
pub(crate) use view::list;
pub(crate) use wait::why_gone;
