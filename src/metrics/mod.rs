//! What is counted. Nobody else knows the facade; without the feature nothing is counted.
//!
//! The names, and what to do about them, are in the guide's chapter *watching*.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;
#[cfg(feature = "metrics")]
mod spare;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{
    Holding, Meter, Waiting, renewed, session_ended, session_opened, stood_still, swept,
};
#[cfg(feature = "metrics")]
pub(crate) use on::{
    Holding, Meter, Waiting, renewed, session_ended, session_opened, stood_still, swept,
};
