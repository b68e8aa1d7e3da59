//! What a resource needs to refuse a holder of the past: the number, the gate that compares it,
//! and the number together with the name that it counts for.

mod token;

pub use token::FencingToken;
