//! What is kept of a tick: one line of text per fact, for people and programs to read.

use crate::etcd::Standing;
use crate::fencing::FencingToken;

/// What is kept of a tick's run, until its retention is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// How far the run came.
    pub state: State,
    /// The label of the session that ran it.
    pub by: String,
    /// The token that the run was fenced with.
    pub token: FencingToken,
    /// What the work gave for people to read: its result, or its error.
    pub result: String,
}

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It began; it may be under way, or its process may have died.
    Started,
    /// It succeeded.
    Done,
    /// It failed, and is not to be repeated.
    Failed,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

impl Record {
    pub(super) fn to_text(&self) -> String {
        let Self {
            state,
            by,
            token,
            result,
        } = self;
        let state = state.word();
        format!("state={state}\nby={by}\ntoken={token}\nresult={result}")
    }

    /// Reads what [`to_text`](Self::to_text) wrote. Anything else stands for a run that is done,
    /// with the text as its result: it is there, so the tick is not to run again.
    pub(crate) fn of(standing: &Standing) -> Self {
        let text = String::from_utf8_lossy(&standing.value).into_owned();
        Self::parse(&text).unwrap_or(Self {
            state: State::Done,
            by: String::new(),
            token: FencingToken::of(0),
            result: text,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut field = |name: &str, ends: bool| {
            let value = rest.strip_prefix(name)?.strip_prefix('=')?;
            let (value, after) = if ends {
                (value, "")
            } else {
                value.split_once('\n')?
            };
            rest = after;
            Some(value)
        };
        let state = field("state", false)?;
        let states = [State::Started, State::Done, State::Failed];
        Some(Self {
            state: states.into_iter().find(|known| known.word() == state)?,
            by: field("by", false)?.to_owned(),
            token: field("token", false)?.parse().ok()?,
            result: field("result", true)?.to_owned(),
        })
    }
}

/// As a field that is not the last has to be.
pub(super) fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn any_record_comes_back(by: String, token in 1..=i64::MAX, result: String, done: bool) {
            let state = if done { State::Done } else { State::Started };
            let (by, token) = (one_line(&by), FencingToken::of(token));
            let record = Record { state, by, token, result };
            prop_assert_eq!(Record::of(&standing(record.to_text().as_bytes())), record);
        }

        #[test]
        fn any_bytes_are_a_record(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            let record = Record::of(&standing(&value));
            let text = String::from_utf8_lossy(&value).into_owned();
            prop_assert_eq!(record.result == text || record.to_text() == text, true);
        }
    }

    fn standing(value: &[u8]) -> Standing {
        Standing {
            key: Vec::new(),
            revision: 1,
            modified: 1,
            lease: 1,
            value: value.to_vec(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let record = Record {
            state: State::Failed,
            by: "host 7 pid 12".to_owned(),
            token: FencingToken::of(42),
            result: "line one\nresult=line two".to_owned(),
        };
        assert_eq!(Record::of(&standing(record.to_text().as_bytes())), record);
    }

    #[test]
    fn what_others_wrote_counts_as_done() {
        for other in [
            &b""[..],
            b"\xff",
            b"state=done",
            b"state=odd\nby=a\ntoken=1\nresult=",
            b"state=done\nby=a\ntoken=-1\nresult=",
        ] {
            let record = Record::of(&standing(other));
            assert_eq!(record.state, State::Done);
            assert_eq!(record.result, String::from_utf8_lossy(other));
        }
    }
}
