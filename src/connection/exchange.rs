//! HTTP/2 without tonic's transport: who asks hands the request to the connection, which wakes it.
//!
//! Measured (a bare leased put and guarded delete; etcd-client's channel / this): 362 / 279 us on a
//! runtime of two threads, 221 / 179 us on one; CPU of the client 305 / 110 us, with 64 tasks 43 /
//! 17 us. tonic's channel passes each request through its buffer's worker, hyper's dispatcher and a
//! task for the answer, and each of them has to be woken. Leaving out tonic's buffer alone saved a
//! twentieth to a tenth.

use super::carrier::Carrier;
use super::incoming::Incoming;
use super::pongs::LatePongs;
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, SendStream};
use http::header::{HeaderValue, USER_AGENT};
use http::uri::{Authority, Scheme};
use http::{Uri, Version};
use http_body::Body as _;
use hyper_util::client::legacy::connect::HttpConnector;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower::{BoxError, Service, ServiceExt};

pub(super) type Request = http::Request<Body>;
pub(super) type Answer = http::Response<Body>;

const WE: HeaderValue = HeaderValue::from_static(concat!("etcd-lock/", env!("CARGO_PKG_VERSION")));

/// How much a member may send before we have read it, on a stream and altogether: as hyper has it.
const STREAM_WINDOW: u32 = 2 << 20;
const WINDOW: u32 = 5 << 20;

/// How many requests are sent at once before the member has said how many it takes.
const UNTIL_TOLD: usize = 100;

/// After so long without a byte the kernel asks whether the other side is still there, unless the
/// user has said; and for so long it may leave what was sent unacknowledged. So streams end, too,
/// when a host is gone without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
#[cfg(target_os = "linux")]
const UNHEARD: Duration = Duration::from_secs(20);

/// A connection without TLS.
#[derive(Clone)]
pub(super) struct Direct {
    to: SendRequest<Bytes>,
    carrier: Arc<Carrier>,
    authority: Authority,
    runtime: Handle,
}

impl Direct {
    /// Connects within `limit` to one of the addresses of a name.
    pub(super) async fn to(endpoint: &Endpoint, limit: Duration) -> Result<Self, BoxError> {
        let uri = endpoint.uri();
        let authority = uri.authority().ok_or("the endpoint has no host")?.clone();
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limit));
        connector.set_keepalive(endpoint.get_tcp_keepalive().or(Some(KEEP_ALIVE)));
        connector.set_keepalive_interval(Some(KEEP_ALIVE));
        connector.set_keepalive_retries(Some(1));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(UNHEARD));
        let stream = connector.ready().await?.call(uri.clone()).await?;
        let mut http2 = Builder::new();
        http2
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .initial_max_send_streams(UNTIL_TOLD)
            // What was given up and is answered late is no misbehaviour of etcd's.
            .max_local_error_reset_streams(None);
        let (to, connection) = http2.handshake(LatePongs::new(stream.into_inner())).await?;
        // It ends with the last request and the last handle.
        let carrier = Carrier::new(connection);
        let runtime = Handle::current();
        runtime.spawn(Arc::clone(&carrier).run());
        Ok(Self {
            to,
            carrier,
            authority,
            runtime,
        })
    }

    /// Tells if the connection has ended.
    pub(super) async fn ready(&mut self) -> Result<(), h2::Error> {
        poll_fn(|cx| self.to.poll_ready(cx)).await
    }

    pub(super) async fn exchange(mut self, request: Request) -> Result<Answer, Failed> {
        let (mut head, body) = request.into_parts();
        let mut uri = head.uri.into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(self.authority);
        head.uri = Uri::from_parts(uri).unwrap_or_default();
        head.version = Version::HTTP_2;
        head.headers.insert(USER_AGENT, WE);
        let head = http::Request::from_parts(head, ());
        let under_way = self.carrier.request();
        let sent = under_way.send(|| -> Result<_, Failed> {
            let (answer, stream) = self.to.send_request(head, false)?;
            Ok((answer, write(body, stream)?))
        });
        let (answer, rest) = sent?;
        if let Some(rest) = rest {
            self.runtime.spawn(rest);
        }
        let answer = under_way.answer(answer).await?;
        let carrier = self.carrier;
        Ok(answer.map(|stream| Body::new(Incoming::new(stream, carrier))))
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The request could not be made, as by its size.
    Request(Status),
    /// The connection, or this stream of it, has come to its end.
    Answer(h2::Error),
}

impl From<h2::Error> for Failed {
    fn from(error: h2::Error) -> Self {
        Self::Answer(error)
    }
}

/// Writes what there is of a body now; gives what writes the rest, of a stream, as it comes. The end
/// goes with the last data: one frame less, and a server may answer, and close the stream, before it
/// comes. What cannot be written, the answer tells of.
fn write(
    mut body: Body,
    mut stream: SendStream<Bytes>,
) -> Result<Option<impl Future<Output = ()> + use<>>, Failed> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut held = None;
    loop {
        let frame = match pin!(&mut body).poll_frame(&mut cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => break,
        };
        match frame {
            Some(Ok(frame)) => {
                let data = frame.into_data().ok();
                if let Some(data) = data.and_then(|data| held.replace(data)) {
                    stream.send_data(data, false).ok();
                }
            }
            Some(Err(status)) => {
                stream.send_reset(Reason::CANCEL);
                return Err(Failed::Request(status));
            }
            None => {
                stream.send_data(held.unwrap_or_default(), true).ok();
                return Ok(None);
            }
        }
    }
    if let Some(data) = held {
        stream.send_data(data, false).ok();
    }
    Ok(Some(write_rest(body, stream)))
}

/// Ends with the body, or when the member has ended the stream.
async fn write_rest(mut body: Body, mut stream: SendStream<Bytes>) {
    loop {
        let frame = poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            pin!(&mut body).poll_frame(cx).map(Some)
        });
        match frame.await {
            // An answer that ended early ends what is sent, too.
            None => return,
            Some(None) => {
                stream.send_data(Bytes::new(), true).ok();
                return;
            }
            Some(Some(Err(_))) => return stream.send_reset(Reason::CANCEL),
            Some(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if room(&mut stream, data.len()).await.is_none()
                    || stream.send_data(data, false).is_err()
                {
                    return;
                }
            }
        }
    }
}

/// Waits until the member takes more, so that nothing piles up here.
async fn room(stream: &mut SendStream<Bytes>, length: usize) -> Option<()> {
    // A little is enough to go on; waiting for all of it may be for ever.
    stream.reserve_capacity(length.min(1));
    while length > 0 && stream.capacity() == 0 {
        poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Frame;
    use std::pin::Pin;
    use tokio::net::TcpListener;

    /// As tonic's: that it has ended is known only when more is asked for.
    struct Whole(Option<Bytes>);

    impl http_body::Body for Whole {
        type Data = Bytes;
        type Error = tonic::Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
            Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
        }
    }

    /// etcd answers a request when it has come, whether its stream has ended or not; the answer
    /// closes the stream, and an end that is written then is an error.
    #[tokio::test]
    async fn the_end_of_a_request_comes_with_its_last_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (request, mut answer) = connection.accept().await.unwrap().unwrap();
            tokio::spawn(async move { connection.accept().await.is_none() });
            let mut body = request.into_body();
            let data = body.data().await.unwrap().unwrap();
            let ended = body.is_end_stream();
            answer.send_response(http::Response::new(()), true).unwrap();
            (data, ended)
        });
        let direct = Direct::to(&Endpoint::from_shared(uri).unwrap(), Duration::from_secs(1)).await;
        let whole = Body::new(Whole(Some("whole".into())));
        let request = http::Request::post("/a").body(whole).unwrap();
        direct.unwrap().exchange(request).await.unwrap();
        let (data, ended) = server.await.unwrap();
        assert_eq!((&data[..], ended), (&b"whole"[..], true));
    }
}
