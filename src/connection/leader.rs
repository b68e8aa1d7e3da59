//! Which member leads.

use super::channel::Sticky;
use super::{Way, channel};
use etcd_client::Client;
use futures_util::future::join_all;
use http::Uri;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;

/// How long a member has for telling.
const TELLS_WITHIN: Duration = Duration::from_millis(500);

/// Asks all members at once which of them leads. Over connections that end with the question, as
/// all but one of them would not be needed again.
pub(super) async fn leader(members: Vec<Endpoint>) -> Option<Uri> {
    let words = join_all(members.into_iter().map(word)).await;
    let words = words.into_iter().flatten();
    // One that was replaced as the leader may not know yet.
    let newest = words.max_by_key(|word| (word.term, word.leads))?;
    newest.leads.then_some(newest.uri)
}

/// What a member says of itself.
struct Word {
    uri: Uri,
    term: u64,
    leads: bool,
}

async fn word(member: Endpoint) -> Option<Word> {
    let uri = member.uri().clone();
    let (tell, changes) = mpsc::channel(1);
    tell.try_send(Change::Insert(uri.clone(), member)).ok()?;
    let sticky = Sticky::new(changes);
    // etcd-client tells of an endpoint, too, but without TLS.
    let (tell, _unheard) = mpsc::channel(1);
    let way = Way(channel(&sticky), tell);
    let answer = async {
        let client = Client::connect_with_balanced_channel(["http://unheard"], None, way).await;
        client?.status().await
    };
    let status = timeout(TELLS_WITHIN, answer).await.ok()?.ok()?;
    let leads = status.leader() == status.header()?.member_id();
    let term = status.raft_term();
    Some(Word { uri, term, leads })
}
