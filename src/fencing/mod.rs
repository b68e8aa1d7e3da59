//! What a resource needs to refuse a holder of the past: the number, the gate that compares it,
//! and the number together with the name that it counts for.

mod gate;
mod named;
#[cfg(feature = "serde")]
mod serde;
mod token;

pub use gate::{FencingGate, Stale};
pub use named::NamedToken;
pub use token::FencingToken;
