//! The line as an operator wants to see it.

use crate::error::Result;
use crate::etcd::Standing;
use crate::fencing::FencingToken;
use crate::key::{self, Name};
use crate::session::Core;
use etcd_client::KeyValue;
use std::time::SystemTime;

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
    /// for other clients and for elections the value of their key.
    pub label: String,
    /// When it came to stand in the line, to the second, by the clock of its own machine, which may
    /// be wrong. That is when it began to wait; etcd does not know when a turn came. `None` for
    /// other clients and for elections, whose keys do not say.
    pub since: Option<SystemTime>,
    /// The token it holds with, or would hold with.
    pub token: FencingToken,
    /// The lease the key hangs on; 0 is a key that no crash will remove, only a delete by hand.
    /// [`Session::ttl_left`](crate::Session::ttl_left) tells how long it would live without a
    /// renewal.
    pub lease: i64,
    /// Whether the key was put by something other than this crate: another client, or by hand.
    /// Its turn comes, and is waited for, as everybody's.
    pub foreign: bool,
}

impl Waiter {
    /// Reads a key of a line as etcd gives it, for tools that find lines by themselves; whether it
    /// stands at `position` is theirs to know.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut client: etcd_lock::etcd_client::Client) -> Result<(), etcd_lock::etcd_client::Error> {
    /// let found = client.get("jobs/nightly/2e0ba1707137b7ae-0", None).await?;
    /// if let Some(key) = found.kvs().first() {
    ///     println!("{}", etcd_lock::Waiter::read(0, key).label);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn read(position: usize, key: &KeyValue) -> Self {
        Self::new(position, &Standing::of(key))
    }

    pub(crate) fn new(position: usize, standing: &Standing) -> Self {
        let (label, since) = read(&String::from_utf8_lossy(&standing.value));
        Self {
            position,
            key: String::from_utf8_lossy(&standing.key).into_owned(),
            label,
            since,
            token: FencingToken::of(standing.revision),
            lease: standing.lease,
            foreign: key::of_session(&standing.key, standing.lease).is_none(),
        }
    }
}

/// Everybody in the line, in order.
pub(crate) async fn list(core: &Core, name: &Name) -> Result<Vec<Standing>> {
    let ask = || core.etcd.list(name);
    Ok(core.ask_about(name, "read the queue", ask).await?.value)
}

/// What is between the label and the time in the value of a lock's key.
const SINCE: &str = " since ";

/// The value of a lock's key: who comes to stand there, and when.
pub(crate) fn inscription(core: &Core) -> Vec<u8> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    format!("{}{SINCE}{now}", core.label).into_bytes()
}

fn read(value: &str) -> (String, Option<SystemTime>) {
    let parts = value.rsplit_once(SINCE);
    let read = parts.and_then(|(label, time)| {
        let time = humantime::parse_rfc3339(time).ok()?;
        Some((label.to_owned(), Some(time)))
    });
    read.unwrap_or_else(|| (value.to_owned(), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};
    use std::time::Duration;

    proptest! {
        #[test]
        fn any_label_is_read_back(label: String, seconds in 0..=253_402_300_799_u64) {
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let value = format!("{label}{SINCE}{}", humantime::format_rfc3339_seconds(then));
            prop_assert_eq!(read(&value), (label, Some(then)));
        }

        #[test]
        fn any_text_is_read(label: String, rest in "( since )?[-0-9:TZ. a]{0,30}") {
            let value = format!("{label}{rest}");
            let (read, since) = read(&value);
            prop_assert_eq!(since.is_none(), read == value);
        }
    }

    #[test]
    fn a_label_is_read_back_whatever_it_says_and_values_of_others_as_they_are() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let time = "2023-11-14T22:13:20Z";
        for label in ["", "host-7:12", "up since yesterday", time] {
            let value = format!("{label} since {time}");
            assert_eq!(read(&value), (label.to_owned(), Some(then)));
        }
        for value in ["", "candidate", "up since yesterday", " since "] {
            assert_eq!(read(value), (value.to_owned(), None));
        }
    }
}
