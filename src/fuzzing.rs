//! Everything that reads what others may have written, for the fuzzer.

use crate::etcd::Standing;
use crate::fencing::{FencingToken, NamedToken};
use crate::key::{self, Name};
use crate::queue::Waiter;
use crate::scheduler::Record;

/// Reads a key of a line and its value; the first bytes are the lease, the rest is divided by a zero.
pub fn read(bytes: &[u8]) {
    let Some((lease, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let lease = i64::from_le_bytes(*lease);
    let at = rest
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(rest.len());
    let (key, value) = (&rest[..at], rest.get(at + 1..).unwrap_or_default());
    if let Some((name, n)) = key::of_session(key, lease) {
        assert!(
            name.is_in_line(key),
            "a session's own key stands in its line"
        );
        assert_eq!(
            key::of_session(name.key(lease, n).as_bytes(), lease),
            Some((name, n))
        );
    }
    let text = String::from_utf8_lossy(value).into_owned();
    if let Ok(name) = Name::new(&text) {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(token) = text.parse::<FencingToken>() {
        assert_eq!(token.to_string().parse::<FencingToken>().ok(), Some(token));
    }
    if let Ok(token) = text.parse::<NamedToken>() {
        assert_eq!(token.to_string().parse::<NamedToken>().ok(), Some(token));
    }
    let standing = Standing {
        key: key.to_vec(),
        revision: 1,
        modified: 1,
        lease,
        value: value.to_vec(),
    };
    let waiter = Waiter::new(0, &standing);
    assert!(text.starts_with(&waiter.label));
    let record = Record::of(&standing);
    assert!(record.result.len() <= text.len());
}
