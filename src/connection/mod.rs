//! A connection of our own making: one healthy member at a time, and as few tasks as can be between
//! a request and the socket.

mod carrier;
mod channel;
mod exchange;
mod incoming;
mod leader;
mod link;
mod member;
mod pongs;
mod problem;

use crate::etcd::{Verdict, classify, silence};
use channel::Sticky;
use etcd_client::{BalancedChannelBuilder, Channel, Client, ConnectOptions, Error};
use exchange::{Answer, Request};
use http::Uri;
pub(crate) use problem::NOT_SENT;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::transport::channel::Change;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, service_fn};

/// How many changes of endpoints can wait until the next request takes note of them.
const CHANGES: usize = 1024;

/// How long one try to connect takes, where etcd has to be asked who we are.
const TRY: Duration = Duration::from_secs(2);

/// Connects to the members of an etcd cluster: quicker than
/// [`Client::connect`](etcd_client::Client::connect), and around members that fail.
///
/// The client is an ordinary one, for everything that etcd-client offers. What is different is the
/// way its requests take:
///
/// - **One member gets them all**, the raft leader if it is found, so that no request is forwarded
///   to it. (etcd-client sends each to a member chosen at random.)
/// - **The next member gets them** as soon as this one refuses, breaks off, is silent for 200 ms
///   with a request unanswered, or has no leader. One that may have been carried out ends with an
///   error, as ever, and this crate's own requests are then tried again. Over `http://`, one that was
///   certainly not sent goes to the next by itself. Streams stay where they were opened for as long
///   as they live.
/// - **Over `http://`, nobody carries them**: who makes a request puts it into HTTP/2's buffers, and
///   is woken by the connection when the answer is there. In etcd-client's channel, and over
///   `https://`, there are three more tasks between the two.
///
/// # Options
///
/// Those of etcd-client, and [`with_require_leader`](ConnectOptions::with_require_leader) in any
/// case. Where [`with_connect_timeout`](ConnectOptions::with_connect_timeout) is not given, it is
/// 2 s; where [`with_tcp_keepalive`](ConnectOptions::with_tcp_keepalive) is not, 10 s over
/// `http://`. There, `with_keep_alive` and `with_timeout` do nothing: this crate's own requests have
/// limits, and its streams are asked whether they live. Yours have no limit but those of TCP (a
/// host that is gone is noticed after some 20 s, a process that is frozen is not); put a
/// [`timeout`] around them. `with_openssl_tls` is not supported.
///
/// # Not promised
///
/// That it is the raft leader whom requests go to. It is looked for when connecting, for at most a
/// second, and after trouble, for ten to twenty; a leader that changes otherwise costs each request
/// the way from one member to the other, as with etcd-client. With authentication, etcd 3.5.28 and
/// some later releases tell only root who leads.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind but connections on their way, which end by themselves.
///
/// # Errors
///
/// Those of [`Client::connect`](etcd_client::Client::connect): an endpoint that is none, no
/// endpoint, a user that etcd does not know, or, with a user, that no member answers within 2 s for
/// each. Without a user, that no member answers is no error: the first request that needs one tells.
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
    let endpoints = endpoints.as_ref().iter();
    let endpoints = endpoints.map(|endpoint| endpoint.as_ref().to_owned());
    // Boxed, as it is large.
    Box::pin(connect_through(endpoints.collect(), options)).await
}

async fn connect_through(
    mut endpoints: Vec<String>,
    options: ConnectOptions,
) -> Result<Client, Error> {
    let mut last = silence();
    // With a user, one member is asked, which may be frozen: each comes first once.
    for _ in 0..endpoints.len().max(1) {
        last = match timeout(TRY, connect_to(&endpoints, options.clone())).await {
            Ok(Ok((client, sticky))) => {
                sticky.look_first(&client).await;
                return Ok(client);
            }
            Ok(Err(error)) => error,
            Err(_) => silence(),
        };
        if !matches!(classify(&last), Verdict::Retry { .. }) {
            break;
        }
        endpoints.rotate_left(1);
    }
    Err(last)
}

async fn connect_to(
    endpoints: &[String],
    options: ConnectOptions,
) -> Result<(Client, Arc<Sticky>), Error> {
    let (tell, changes) = mpsc::channel(CHANGES.max(endpoints.len()));
    let sticky = Sticky::new(changes);
    let given = {
        let sticky = Arc::clone(&sticky);
        let exchange = move |request| Arc::clone(&sticky).exchange(request);
        Given(channel(exchange), tell)
    };
    let client = Client::connect_with_balanced_channel(endpoints, Some(options), given).await?;
    Ok((client, sticky))
}

fn channel<F>(exchange: impl Fn(Request) -> F + Clone + Send + Sync + 'static) -> Channel
where
    F: Future<Output = Result<Answer, BoxError>> + Send + 'static,
{
    Channel::Custom(BoxCloneSyncService::new(service_fn(exchange)))
}

/// What etcd-client is to send its requests on, and where it tells the endpoints.
struct Given(Channel, mpsc::Sender<Change<Uri, Endpoint>>);

impl BalancedChannelBuilder for Given {
    type Error = Error;

    fn balanced_channel(
        self,
        _: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<Uri, Endpoint>>), Error> {
        Ok((self.0, self.1))
    }
}
