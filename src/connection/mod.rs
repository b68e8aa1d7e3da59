//! A connection of our own making: one healthy member at a time, and no task between a request
//! and its bytes.

mod channel;
mod exchange;
mod leader;
mod link;
mod member;
mod problem;

use channel::Sticky;
use etcd_client::{BalancedChannelBuilder, Channel, Client, ConnectOptions, Error};
use http::Uri;
pub(crate) use problem::NOT_SENT;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

/// How many changes of endpoints can wait until the next request takes note of them.
const CHANGES: usize = 1024;

/// How long connecting looks for the raft leader.
const LOOK_FIRST: Duration = Duration::from_secs(1);

/// Connects to the members of an etcd cluster: quicker than
/// [`Client::connect`](etcd_client::Client::connect), and around members that fail.
///
/// The client is an ordinary one, for everything that etcd-client offers. What is different is the
/// way its requests take:
///
/// - **One member gets them all**, the raft leader if it is found, so that no request is forwarded
///   to it. (etcd-client sends each to a member chosen at random.)
/// - **The next member gets them** as soon as this one refuses, breaks off, is silent for 200 ms
///   with a request unanswered, or has no leader. A request that was certainly not sent goes there
///   by itself; one that may have been carried out ends with an error, as ever, and this crate's
///   own requests are then tried again. Streams stay where they were opened for as long as they
///   live.
/// - **Over `http://`, nobody carries them**: who makes a request writes it to HTTP/2's buffers, and
///   who receives the answer is woken by the connection. In etcd-client's channel, and over
///   `https://`, there are four more tasks between the two.
///
/// # Options
///
/// Those of etcd-client, and [`with_require_leader`](ConnectOptions::with_require_leader) in any
/// case. Where [`with_connect_timeout`](ConnectOptions::with_connect_timeout) is not given, it is
/// 2 s. Over `http://`, `with_keep_alive` and `with_timeout` do nothing: silence is noticed without
/// pings, and every request of this crate has a limit of its own. `with_openssl_tls` is not
/// supported.
///
/// # Not promised
///
/// That it is the raft leader whom requests go to. It is looked for when connecting, for at most a
/// second, and after trouble, for about ten; a leader that changes otherwise costs each request the
/// way from one member to the other, as with etcd-client.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
///
/// # Errors
///
/// Those of [`Client::connect`](etcd_client::Client::connect): an endpoint that is none, no
/// endpoint, a user that etcd does not know. Without a user, that no member answers is no error:
/// the first request that needs one tells.
///
/// # Panics
///
/// If it is not polled in a tokio runtime with I/O and time enabled. The connection lives on that
/// one.
///
/// # Examples
///
/// ```no_run
/// use etcd_lock::Session;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let members = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"];
/// let session = Session::open(etcd_lock::connect(members, None).await?).await?;
/// # Ok(()) }
/// ```
pub async fn connect<E: AsRef<str>>(
    endpoints: impl AsRef<[E]>,
    options: Option<ConnectOptions>,
) -> Result<Client, Error> {
    let options = options.unwrap_or_default().with_require_leader(true);
    let (tell, changes) = mpsc::channel(CHANGES.max(endpoints.as_ref().len()));
    let sticky = Sticky::new(changes);
    let way = Way(channel(&sticky), tell);
    // Boxed: it authenticates, if there is a user.
    let client = Client::connect_with_balanced_channel(endpoints, Some(options), way);
    let client = Box::pin(client).await?;
    let look = Box::pin(sticky.look());
    tokio::time::timeout(LOOK_FIRST, look).await.ok();
    Ok(client)
}

fn channel(sticky: &Arc<Sticky>) -> Channel {
    let sticky = Arc::clone(sticky);
    let service = service_fn(move |request| Arc::clone(&sticky).exchange(request));
    Channel::Custom(BoxCloneSyncService::new(service))
}

/// What etcd-client is to send its requests on, and where it tells the endpoints.
struct Way(Channel, mpsc::Sender<Change<Uri, Endpoint>>);

impl BalancedChannelBuilder for Way {
    type Error = Error;

    fn balanced_channel(
        self,
        _: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<Uri, Endpoint>>), Error> {
        Ok((self.0, self.1))
    }
}
