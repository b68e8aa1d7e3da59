//! Streams, both ways.

use super::{Door, Hear, Out, Outbox, cut};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::Stream;
use tonic::{Response, Status, Streaming};

type Said<T> = Result<T, Status>;

/// What a client hears on a stream; dropped, it hangs up.
pub struct Heard<T> {
    first: Option<T>,
    rest: UnboundedReceiver<Said<T>>,
    #[allow(dead_code, reason = "it is there to be dropped")]
    line: Line,
}

struct Line {
    outbox: Outbox,
    process: usize,
    stream: u64,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.outbox.put(self.process, Out::HangUp(self.stream));
    }
}

impl<T: Unpin> Stream for Heard<T> {
    type Item = Said<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Said<T>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.rest.poll_recv(cx),
        }
    }
}

impl Door {
    /// Opens a stream. As with etcd, the call is answered along with the first message.
    pub(super) async fn open<Q: Send + 'static, A>(
        &self,
        mut said: Streaming<Q>,
        hear: impl FnOnce(UnboundedSender<Said<A>>) -> Hear,
        out: impl Fn(u64, Q) -> Option<Out> + Send + 'static,
    ) -> Result<Response<Heard<A>>, Status> {
        let (tell, mut rest) = unbounded_channel();
        let stream = self.outbox.stream();
        self.outbox.put(self.process, Out::Open(stream, hear(tell)));
        let line = || Line {
            outbox: self.outbox.clone(),
            process: self.process,
            stream,
        };
        let (mine, line) = (line(), line());
        tokio::spawn(async move {
            while let Ok(Some(ask)) = said.message().await {
                if let Some(out) = out(stream, ask) {
                    mine.outbox.put(mine.process, out);
                }
            }
        });
        let first = rest.recv().await.ok_or_else(cut)??;
        Ok(Response::new(Heard {
            first: Some(first),
            rest,
            line,
        }))
    }
}
