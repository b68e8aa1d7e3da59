//! The line as an operator wants to see it.

use crate::error::Result;
use crate::etcd::Standing;
use crate::fencing::FencingToken;
use crate::key::Name;
use crate::session::Core;

/// Somebody in the line of a name, as [`Mutex::queue`](crate::Mutex::queue) shows it.
///
/// At position 0 the holder, then the waiters in the order in which they will get their turn.
/// Everybody is here who has a key in the line, other clients, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// 0 holds, 1 is next, and so on.
    pub position: usize,
    /// The key in etcd; what is not UTF-8 in it is replaced.
    pub key: String,
    /// What the owner's session says of itself ([`SessionBuilder::label`](crate::SessionBuilder::label));
    /// for other clients the value of their key.
    pub label: String,
    /// The token it holds with, or would hold with.
    pub token: FencingToken,
    /// The lease the key hangs on; 0 is a key that no crash will remove, only a delete by hand.
    pub lease: i64,
}

impl Waiter {
    pub(crate) fn new(position: usize, standing: &Standing) -> Self {
        Self {
            position,
            key: String::from_utf8_lossy(&standing.key).into_owned(),
            label: String::from_utf8_lossy(&standing.value).into_owned(),
            token: FencingToken::of(standing.revision),
            lease: standing.lease,
        }
    }
}

/// Everybody in the line, in order.
pub(crate) async fn list(core: &Core, name: &Name) -> Result<Vec<Standing>> {
    let ask = || core.etcd.list(name);
    Ok(core.ask("read the queue", ask).await?.value)
}
