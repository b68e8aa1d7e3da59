//! The rules that the proxy's connections obey, and what they count.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What happens on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bytes flow.
    Pass,
    /// Nothing flows, nothing is reset; what is sent is kept.
    Hold,
    /// Requests flow, answers are kept.
    HoldAnswers,
    /// Requests flow, answers are lost.
    DropAnswers,
    /// No connection, old or new.
    Cut,
}

/// The rules in force, watched by every connection.
#[derive(Clone, Copy)]
pub struct Rules {
    pub mode: Mode,
    pub delay: Duration,
    /// Grows with every change.
    pub version: u64,
    /// Connections that were there in this version are to be reset.
    pub reset_at: u64,
}

/// What has gone through.
#[derive(Default)]
pub struct Shared {
    pub opened: AtomicU64,
    pub up: AtomicU64,
    pub down: AtomicU64,
    pub lost: AtomicU64,
    /// The version of the rules that each open connection, by its number, is known to obey.
    pub open: Mutex<HashMap<u64, u64>>,
    /// The version that the listener obeys.
    pub listener: AtomicU64,
}

/// From client to server, or back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}

/// What becomes of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Pass,
    Keep,
    Lose,
}

impl Mode {
    /// What becomes of bytes that go this way.
    pub fn flow(self, way: Way) -> Flow {
        match (self, way) {
            (Self::Pass, _) | (Self::HoldAnswers | Self::DropAnswers, Way::Up) => Flow::Pass,
            (Self::Hold | Self::Cut, _) | (Self::HoldAnswers, Way::Down) => Flow::Keep,
            (Self::DropAnswers, Way::Down) => Flow::Lose,
        }
    }
}
