//! The number that lets a resource refuse a holder of the past.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

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
/// A resource made in Rust has [`FencingGate`](crate::FencingGate) for it; one in the same etcd
/// needs no number, see [`Hold::fence`](crate::Hold::fence).
///
/// # Stored and sent
///
/// It is a number from 1 to `i64::MAX`, so that it fits into a signed 64-bit column: as text
/// (`Display`, `FromStr`), as `u64` or `i64` (`From`, `TryFrom`), and with the feature `serde` as a
/// number, too. (JavaScript reads numbers in JSON above 2^53 wrongly; etcd's revisions are far below.)
/// Where tokens of several names could be mistaken for each other, send a
/// [`NamedToken`](crate::NamedToken).
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
/// To a store and back:
///
/// ```
/// use etcd_lock::FencingToken;
///
/// # fn example(shown: FencingToken) -> Result<bool, etcd_lock::Error> {
/// let column: i64 = shown.into();
/// let stored = FencingToken::try_from(column)?;
/// let refused = shown < stored;
/// assert_eq!(stored.to_string().parse::<FencingToken>()?, stored);
/// # Ok(refused) }
/// # assert_eq!(example(FencingToken::try_from(7_u64)?)?, false);
/// # Ok::<(), etcd_lock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The create revision of a key that exists: etcd's are never negative.
    pub(crate) fn of(revision: i64) -> Self {
        Self(revision.cast_unsigned())
    }

    /// The create revision again; of a number that no etcd gave, one that no key has.
    pub(crate) fn revision(self) -> i64 {
        self.0.cast_signed()
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

/// Reads what `Display` writes: decimal digits and nothing else. Leading zeros are taken.
impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            let why = format!("{text:?} is not a number; give the token's decimal digits");
            return Err(invalid(why));
        }
        match text.parse::<u64>() {
            Ok(number) => Self::try_from(number),
            // Digits, so there are too many of them.
            Err(_) => Err(too_large(text)),
        }
    }
}

/// For a number that was stored; [`Error::Invalid`] if it cannot have been a token.
impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(number: u64) -> Result<Self, Error> {
        match i64::try_from(number) {
            Ok(0) => Err(invalid(
                "is 0, which no hold has; is it a column's default?",
            )),
            Ok(_) => Ok(Self(number)),
            Err(_) => Err(too_large(number)),
        }
    }
}

/// For a number from a signed column; [`Error::Invalid`] if it cannot have been a token.
impl TryFrom<i64> for FencingToken {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self, Error> {
        match u64::try_from(number) {
            Ok(number) => Self::try_from(number),
            Err(_) => Err(invalid(format!("{number} is negative, which no token is"))),
        }
    }
}

fn too_large(number: impl fmt::Display) -> Error {
    invalid(format!(
        "{number} is larger than {}, which no token is",
        i64::MAX
    ))
}

fn invalid(why: impl Into<String>) -> Error {
    Error::invalid("token", why)
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0.cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn tokens_are_ordered_like_the_revisions_they_are() {
        let token = FencingToken::of(7);
        assert_eq!((token.get(), token.to_string()), (7, "7".to_owned()));
        assert!(token < FencingToken::of(8));
        assert!(token < FencingToken::of(i64::MAX));
    }

    proptest! {
        #[test]
        fn a_token_comes_back_from_text_and_numbers(number in 1..=i64::MAX) {
            let token = FencingToken::of(number);
            prop_assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
            prop_assert_eq!(FencingToken::try_from(u64::from(token)).unwrap(), token);
            prop_assert_eq!(FencingToken::try_from(i64::from(token)).unwrap(), token);
            prop_assert_eq!(i64::from(token), number);
        }

        #[test]
        fn numbers_that_no_token_has_are_refused(number in i64::MIN..=0) {
            prop_assert!(FencingToken::try_from(number).is_err());
            prop_assert!(number == 0 || FencingToken::try_from(number.cast_unsigned()).is_err());
        }
    }

    #[test]
    fn the_least_and_the_largest_token_come_back() {
        for number in [1, i64::MAX] {
            let token = FencingToken::try_from(number).unwrap();
            assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
        }
    }

    #[test]
    fn what_is_no_token_is_refused_with_the_reason() {
        let bad = [
            ("", "\"\" is not a number"),
            ("-1", "not a number"),
            ("+7", "not a number"),
            (" 7", "not a number"),
            ("0x7", "not a number"),
            ("0", "is 0, which no hold has"),
            ("9223372036854775808", "9223372036854775808 is larger"),
            (
                "99999999999999999999999",
                "99999999999999999999999 is larger",
            ),
        ];
        for (text, why) in bad {
            let error = text.parse::<FencingToken>().unwrap_err().to_string();
            assert!(
                error.starts_with("token ") && error.contains(why),
                "{error}"
            );
        }
        let negative = FencingToken::try_from(-7_i64).unwrap_err().to_string();
        assert!(negative.contains("-7 is negative"), "{negative}");
    }
}
