//! The line behind a name: joining it, waiting in it, holding, and looking at it.

mod fate;
mod hold;
mod place;
mod turn;
mod view;
mod wait;

pub use hold::Hold;
pub(crate) use turn::{try_once, wait};
pub use view::Waiter;
pub(crate) use view::list;
pub(crate) use wait::why_gone;
