//! How tokens are written into JSON and its like: a plain one as a number, a named one as text.

use super::{FencingToken, NamedToken};
use serde_core::de::{Deserialize, Deserializer, Error};
use serde_core::ser::{Serialize, Serializer};

/// As a number.
impl Serialize for FencingToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

/// From a number that is a token's.
impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        Self::try_from(number).map_err(D::Error::custom)
    }
}

/// As text, `name@token`.
impl Serialize for NamedToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From text, `name@token`.
impl<'de> Deserialize<'de> for NamedToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_number_in_json_and_comes_back() {
        for number in [1, 4711, i64::MAX] {
            let token = FencingToken::of(number);
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(json, number.to_string());
            assert_eq!(serde_json::from_str::<FencingToken>(&json).unwrap(), token);
        }
    }

    #[test]
    fn a_named_token_is_text_in_json_and_comes_back() {
        let token = NamedToken::new("a \"b\"/@\n", FencingToken::of(7)).unwrap();
        let json = serde_json::to_string(&token).unwrap();
        assert_eq!(json, r#""a \"b\"/@\n@7""#);
        assert_eq!(serde_json::from_str::<NamedToken>(&json).unwrap(), token);
    }

    #[test]
    fn json_that_is_no_token_is_refused() {
        for json in ["0", "-1", "1.5", "9223372036854775808", "\"7\"", "null"] {
            assert!(
                serde_json::from_str::<FencingToken>(json).is_err(),
                "{json}"
            );
        }
        for json in ["7", "\"7\"", "\"a@0\"", "\"/@7\""] {
            assert!(serde_json::from_str::<NamedToken>(json).is_err(), "{json}");
        }
    }
}
