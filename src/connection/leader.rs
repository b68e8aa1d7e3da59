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

/// What a member says of itself.
pub(super) enum Word {
    Status {
        term: u64,
        leads: bool,
    },
    /// That it does not tell us: `for_good`, as some releases of etcd tell only root, or since it
    /// does not know our token yet.
    Refused {
        for_good: bool,
    },
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

/// Which of them leads. One that was replaced as the leader may not know yet: the newest term counts.
pub(super) fn newest_leader(words: &[Option<Word>]) -> Option<usize> {
    let words = words.iter().enumerate().filter_map(|(i, word)| match word {
        Some(Word::Status { term, leads }) => Some((*term, *leads, i)),
        Some(Word::Refused { .. }) | None => None,
    });
    words
        .max()
        .filter(|(_, leads, _)| *leads)
        .map(|(_, _, i)| i)
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
            term: status.raft_term(),
            leads: status.leader() == status.header()?.member_id(),
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
