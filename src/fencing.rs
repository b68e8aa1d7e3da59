//! The number that lets a resource refuse a holder of the past.

use std::fmt;

/// Grows from holder to holder of one name: the create revision of the hold's key.
///
/// Send it along with everything done under the lock, and let the resource keep the
/// largest it has seen and refuse smaller ones. That closes what no lock can close by
/// itself: a holder that was paused, or a packet that was late, and arrives when
/// somebody else holds.
///
/// What is read under the lock counts, too: show the token *before* you read, so that nobody
/// older can write between your reading and your writing.
///
/// # Promises
///
/// Every holder of a name has a larger token than all before it, whatever client it used; locks
/// and elections of one name count together.
///
/// # Not promised
///
/// - Tokens of *different* names can be compared but mean nothing to each other.
/// - Nor do they across a restore of etcd from a snapshot: its revisions may start lower, unless
///   it was restored with `--bump-revision`.
/// - They are not consecutive.
///
/// # Examples
///
/// A store that refuses the past:
///
/// ```
/// use etcd_lock::FencingToken;
///
/// struct Store { newest: Option<FencingToken>, value: String }
///
/// impl Store {
///     fn write(&mut self, token: FencingToken, value: &str) -> Result<(), FencingToken> {
///         if let Some(newest) = self.newest.filter(|newest| token < *newest) {
///             return Err(newest);
///         }
///         self.newest = Some(token);
///         self.value = value.to_owned();
///         Ok(())
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The create revision of a key that exists: etcd's are never negative.
    pub(crate) fn of(revision: i64) -> Self {
        Self(revision.cast_unsigned())
    }

    /// Gives the number itself, to be stored or sent. It fits into a signed 64-bit column.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_ordered_like_the_revisions_they_are() {
        let token = FencingToken::of(7);
        assert_eq!((token.get(), token.to_string()), (7, "7".to_owned()));
        assert!(token < FencingToken::of(8));
        assert!(token < FencingToken::of(i64::MAX));
    }
}
