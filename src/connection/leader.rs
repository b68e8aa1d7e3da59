//! Which member leads.

use super::channel::{Sticky, TOKEN};
use super::exchange::Request;
use super::{Given, channel};
use etcd_client::{Client, Error, StatusResponse};
use futures_util::future::join_all;
use http::HeaderValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;

/// How long a member has for telling.
const TELLS_WITHIN: Duration = Duration::from_millis(500);

/// Codes of gRPC.
const PERMISSION_DENIED: i32 = 7;
const UNAVAILABLE: i32 = 14;

/// What a member says.
pub(super) enum Word {
    /// Who it is, and whom it follows, by their ids.
    Status { me: u64, leader: u64 },
    /// That it does not tell us: `for_good`, as some releases of etcd tell only root, or since it
    /// does not know our token yet.
    Refused { for_good: bool },
}

/// Asks all members at once, with the token of who connects; `None` of who does not answer. Over
/// connections that end with the question, as all but one of them would not be needed again.
pub(super) async fn ask_all(
    members: Vec<Endpoint>,
    token: Option<HeaderValue>,
) -> Vec<Option<Word>> {
    let ask = async |member| {
        timeout(TELLS_WITHIN, ask(member, token.clone()))
            .await
            .ok()?
    };
    join_all(members.into_iter().map(ask)).await
}

/// Which of them leads, by the word of more than half of them: one that is cut off from the others
/// may go on believing that it does.
pub(super) fn leader(words: &[Option<Word>]) -> Option<usize> {
    let followers = |of: u64| {
        let follows = |word: &&Option<Word>| matches!(word, Some(Word::Status { leader, .. }) if *leader == of);
        words.iter().filter(follows).count()
    };
    words.iter().position(
        |word| matches!(word, Some(Word::Status { me, .. }) if followers(*me) * 2 > words.len()),
    )
}

async fn ask(member: Endpoint, token: Option<HeaderValue>) -> Option<Word> {
    let (tell, changes) = mpsc::channel(1);
    let uri = member.uri().clone();
    let member = member.connect_timeout(TELLS_WITHIN);
    tell.try_send(Change::Insert(uri, member)).ok()?;
    let sticky = Sticky::new(changes);
    let exchange = move |mut request: Request| {
        if let Some(token) = token.clone() {
            request.headers_mut().insert(TOKEN, token);
        }
        Arc::clone(&sticky).exchange(request)
    };
    // etcd-client tells of an endpoint, too, but without TLS.
    let (tell, _unheard) = mpsc::channel(1);
    let given = Given(channel(exchange), tell);
    let client = Client::connect_with_balanced_channel(["http://unheard"], None, given).await;
    word(client.ok()?.status().await)
}

fn word(answer: Result<StatusResponse, Error>) -> Option<Word> {
    match answer {
        Ok(status) => Some(Word::Status {
            me: status.header()?.member_id(),
            leader: status.leader(),
        }),
        Err(Error::GRpcStatus(status)) => match i32::from(status.code()) {
            UNAVAILABLE => None,
            code => Some(Word::Refused {
                for_good: code == PERMISSION_DENIED,
            }),
        },
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(me: u64, leader: u64) -> Word {
        Word::Status { me, leader }
    }

    #[test]
    fn who_leads_is_whom_more_than_half_follow() {
        assert_eq!(
            leader(&[says(7, 8), says(8, 8), says(9, 8)].map(Some)),
            Some(1)
        );
        assert_eq!(leader(&[Some(says(7, 8)), Some(says(8, 8)), None]), Some(1));
        // Cut off, and not replaced yet; then it is.
        assert_eq!(
            leader(&[says(7, 0), says(8, 8), says(9, 0)].map(Some)),
            None
        );
        assert_eq!(
            leader(&[says(7, 9), says(8, 8), says(9, 9)].map(Some)),
            Some(2)
        );
        // Nobody whom we know, or whom we can ask.
        assert_eq!(leader(&[says(7, 9), says(8, 9)].map(Some)), None);
        assert_eq!(
            leader(&[(); 3].map(|()| Some(Word::Refused { for_good: true }))),
            None
        );
    }
}
