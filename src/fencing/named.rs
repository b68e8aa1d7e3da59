//! A token with the name that it counts for.

use super::FencingToken;
use crate::error::{Error, Result};
use crate::key::Name;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A token together with the name of the lock or election that it is of.
///
/// Tokens of different names mean nothing to each other, and a plain number does not tell whose it
/// is. Where a resource may be shown the token of the wrong lock, let it be shown this: it says so
/// instead of comparing.
///
/// The text form is `name@token`, as in `jobs/nightly@4711`. It can be read back whatever the name
/// is, since what follows the last `@` is the token. The name is in it as it is, line feeds
/// included: encode it where these have a meaning, in an HTTP header for example.
///
/// # Examples
///
/// What is written under one lock, and what the writer of another is told:
///
/// ```
/// use etcd_lock::{FencingGate, NamedToken};
///
/// let gate = FencingGate::new();
/// let shown: NamedToken = "jobs/nightly@4711".parse()?;
/// gate.admit(shown.of("jobs/nightly")?)?;
///
/// let wrong: NamedToken = "jobs/hourly@4712".parse()?;
/// assert!(wrong.of("jobs/nightly").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedToken {
    name: Name,
    token: FencingToken,
}

/// Between the name and the token.
const AT: char = '@';

impl NamedToken {
    /// Puts a token and the name it is of together; [`Hold::named_token`](crate::Hold::named_token)
    /// gives that of a hold.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the name is empty or ends in `/`.
    pub fn new(name: &str, token: FencingToken) -> Result<Self> {
        let name = Name::new(name)?;
        Ok(Self { name, token })
    }

    pub(crate) fn of_name(name: Name, token: FencingToken) -> Self {
        Self { name, token }
    }

    /// Gives the name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Gives the token, whatever its name is.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Gives the token, if it is of `name`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is of another name: the message says which.
    pub fn of(&self, name: &str) -> Result<FencingToken> {
        if self.name() == name {
            return Ok(self.token);
        }
        let ours = self.name();
        let why = format!("is of {ours:?}, not of {name:?}; tokens count within one name only");
        Err(Error::invalid("token", why))
    }

    /// Tells which of two tokens of one name is the newer.
    ///
    /// (There is no `<`, which could not say that the names differ.)
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if they are of different names.
    pub fn compare(&self, other: &Self) -> Result<Ordering> {
        Ok(self.of(other.name())?.cmp(&other.token))
    }
}

impl fmt::Display for NamedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{AT}{}", self.name(), self.token)
    }
}

/// Reads what `Display` writes; anything else is [`Error::Invalid`].
impl FromStr for NamedToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, token) = text.rsplit_once(AT).ok_or_else(|| {
            let why = format!("{text:?} has no name; give it as name{AT}token");
            Error::invalid("token", why)
        })?;
        Self::new(name, token.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert_eq, prop_assume, proptest};

    fn named(text: &str) -> NamedToken {
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn a_named_token_comes_back_as_it_was_written(name in any::<String>(), number in 1..=i64::MAX) {
            prop_assume!(Name::new(&name).is_ok());
            let written = NamedToken::new(&name, FencingToken::of(number)).unwrap();
            let read: NamedToken = written.to_string().parse().unwrap();
            prop_assert_eq!((read.name(), read.token()), (&*name, FencingToken::of(number)));
            prop_assert_eq!(read, written);
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            if let Ok(read) = text.parse::<NamedToken>() {
                prop_assert_eq!(read.to_string().parse::<NamedToken>().unwrap(), read);
            }
        }
    }

    #[test]
    fn names_with_the_separator_in_them_come_back() {
        for name in ["a@7", "@", "a@", "@@7@8", "a\n@b", "4711", "a\0", "🔒"] {
            let written = NamedToken::new(name, FencingToken::of(42)).unwrap();
            assert_eq!(named(&written.to_string()), written);
            assert_eq!(written.name(), name);
        }
    }

    #[test]
    fn tokens_of_one_name_compare_by_number() {
        let (old, new) = (named("a@9"), named("a@10"));
        assert_eq!(old.compare(&new).unwrap(), Ordering::Less);
        assert_eq!(new.compare(&old).unwrap(), Ordering::Greater);
        assert_eq!(new.compare(&new.clone()).unwrap(), Ordering::Equal);
    }

    #[test]
    fn tokens_of_different_names_do_not_compare_and_the_error_names_both() {
        let (ours, other) = (named("a@9"), named("b@10"));
        let errors = [ours.compare(&other).unwrap_err(), ours.of("b").unwrap_err()];
        for error in errors {
            let text = error.to_string();
            assert!(
                text.starts_with(r#"token is of "a", not of "b";"#),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_named_token_is_refused_with_the_reason() {
        let bad = [
            ("", "has no name"),
            ("7", "has no name"),
            ("@7", "name is empty"),
            ("a/@7", "name \"a/\" ends in '/'"),
            ("a@", "not a number"),
            ("a@b", "not a number"),
            ("a@0", "is 0"),
            ("a@9223372036854775808", "is larger"),
        ];
        for (text, why) in bad {
            let error = text.parse::<NamedToken>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
