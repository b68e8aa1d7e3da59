//! The body of an answer, as it comes.

use super::carrier::Carrier;
use bytes::Bytes;
use h2::RecvStream;
use http_body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pub(super) struct Incoming {
    /// Until dropped.
    stream: Option<RecvStream>,
    carrier: Arc<Carrier>,
}

impl Incoming {
    pub(super) fn new(stream: RecvStream, carrier: Arc<Carrier>) -> Self {
        let stream = Some(stream);
        Self { stream, carrier }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let stream = self.stream.take();
        self.carrier.end(|| drop(stream));
    }
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        if let Some(data) = ready!(stream.poll_data(cx)) {
            let data = data.and_then(|data| {
                stream.flow_control().release_capacity(data.len())?;
                Ok(Frame::data(data))
            });
            return Poll::Ready(Some(data));
        }
        let trailers = ready!(stream.poll_trailers(cx));
        Poll::Ready(trailers.map(|end| end.map(Frame::trailers)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.stream.as_ref().is_none_or(RecvStream::is_end_stream)
    }
}
