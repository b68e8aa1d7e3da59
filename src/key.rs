//! Names and keys: `name` stands behind the prefix `name/`, a waiter behind
//! `name/<lease id, lower-case hex>-<n>`.

use crate::error::Error;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A checked lock name, kept as its prefix.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    prefix: Arc<str>,
    /// How much of it names the family.
    family: usize,
}

/// Whatever the family is: it is one line.
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.prefix == other.prefix
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.prefix.hash(state);
    }
}

impl Name {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::invalid("name", "is empty; give the lock a name"));
        }
        if name.ends_with('/') {
            let why = format!("{name:?} ends in '/'; leave the last '/' away, it is added");
            return Err(Error::invalid("name", why));
        }
        let prefix = format!("{name}/").into();
        let family = name.len();
        Ok(Self { prefix, family })
    }

    /// A name of which there are ever new ones, `family/member`.
    pub(crate) fn in_family(family: &str, member: &str) -> Result<Self, Error> {
        let name = Self::new(&format!("{family}/{member}"))?;
        let family = family.len();
        Ok(Self { family, ..name })
    }

    /// The name, or the part of it that it shares with its like: for those who count by name.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nobody counts"))]
    pub(crate) fn family(&self) -> &str {
        &self.prefix[..self.family]
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.prefix[..self.prefix.len() - 1]
    }

    /// The prefix behind which everybody who wants this name stands.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of one acquire; no two acquires share one at the same time.
    pub(crate) fn key(&self, lease: i64, n: u64) -> String {
        format!("{}{lease:x}-{n}", self.prefix)
    }

    /// Whether `key` stands in this name's line: `a/b/…` belongs to the lock `a/b`, not to `a`.
    pub(crate) fn is_in_line(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix.as_bytes())
            .is_some_and(|rest| !rest.is_empty() && !rest.contains(&b'/'))
    }
}

/// The name and number of a key that the session of `lease` made.
pub(crate) fn of_session(key: &[u8], lease: i64) -> Option<(Name, u64)> {
    let (name, last) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    let (id, n) = last.split_once('-')?;
    let n = n.parse().ok().filter(|_| id == format!("{lease:x}"))?;
    Some((Name::new(name).ok()?, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn a_key_of_any_name_stands_in_its_line_and_tells_whose_it_is(
            name in "\\PC{0,20}(/[a-f0-9-]{0,9}){0,3}x", lease: i64, n: u64,
        ) {
            let name = Name::new(&name).unwrap();
            let key = name.key(lease, n);
            prop_assert!(name.is_in_line(key.as_bytes()));
            prop_assert_eq!(of_session(key.as_bytes(), lease), Some((name, n)));
            prop_assert_eq!(of_session(key.as_bytes(), lease.wrapping_add(1)), None);
        }

        #[test]
        fn of_any_bytes_only_keys_are_ours(key in proptest::collection::vec(any::<u8>(), 0..60), lease: i64) {
            if let Some((name, n)) = of_session(&key, lease) {
                prop_assert!(name.is_in_line(&key));
                prop_assert!(name.key(lease, n).len() <= key.len());
            }
        }
    }

    #[test]
    fn bad_names_are_refused_with_advice() {
        for (bad, advice) in [("", "give the lock a name"), ("a/", "leave the last '/'")] {
            let text = Name::new(bad).unwrap_err().to_string();
            assert!(text.contains(advice), "{text}");
        }
    }

    #[test]
    fn keys_are_like_those_of_the_go_client() {
        let name = Name::new("jobs/nightly").unwrap();
        assert_eq!(name.as_str(), "jobs/nightly");
        assert_eq!(name.key(0x0ab3, 7), "jobs/nightly/ab3-7");
    }

    #[test]
    fn a_family_is_no_part_of_who_it_is() {
        let (tick, name) = (
            Name::in_family("a/run", "1").unwrap(),
            Name::new("a/run/1").unwrap(),
        );
        assert_eq!((tick.family(), name.family()), ("a/run", "a/run/1"));
        assert_eq!(tick, name);
        assert_eq!(std::collections::HashSet::from([tick, name]).len(), 1);
    }

    #[test]
    fn only_direct_children_stand_in_line() {
        let name = Name::new("a").unwrap();
        assert!(name.is_in_line(b"a/1f-0"));
        assert!(name.is_in_line(b"a/odd \xff"));
        assert!(!name.is_in_line(b"a/b/1f-0"));
        assert!(!name.is_in_line(b"a/"));
        assert!(!name.is_in_line(b"ab/1f-0"));
    }

    #[test]
    fn a_session_knows_its_own_keys() {
        let name = Name::new("a/b").unwrap();
        assert_eq!(of_session(b"a/b/1f-12", 0x1f), Some((name, 12)));
        for other in ["a/1f", "a/1e-12", "a/1f-x", "1f-1"] {
            assert_eq!(of_session(other.as_bytes(), 0x1f), None, "{other}");
        }
        assert_eq!(of_session(b"\xff/1f-1", 0x1f), None);
    }
}
