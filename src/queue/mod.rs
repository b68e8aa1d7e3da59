//! The line behind a name: joining it, waiting in it, holding, and looking at it.

mod hold;
mod place;
mod view;
mod wait;

pub(crate) use hold::{Hold, lock, try_lock};
pub use view::Waiter;
pub(crate) use view::list;
