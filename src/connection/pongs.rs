//! Pings of etcd's are answered a little later, and so come more seldom.
//!
//! grpc-go measures a line by a ping with the answer to nearly every request, unless the last one
//! is still out. The answer to it, at once, is a packet of its own: two more writes and two more
//! wake-ups for each lock and release (seen with strace). Late by 10 ms, there are a hundred of them
//! a second at the most, and a bare pair of transactions takes 0.94 of the time. A ping that asks
//! whether we live has 20 s.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

const LATE: Duration = Duration::from_millis(10);

/// An answer to a ping, as HTTP/2 has it: the length of what follows, type, flags, stream; then 8
/// bytes that are the ping's.
const PONG: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];
const LENGTH: usize = PONG.len() + 8;

/// What carries HTTP/2, but for pongs that come alone: these are kept for a while.
pub(super) struct LatePongs<S> {
    io: S,
    kept: Vec<u8>,
    due: Pin<Box<Sleep>>,
    /// Of [`Self::kept`], this much is written: it has to be ended first.
    written: usize,
    /// Whether what was written last was written to its end: nothing may come in between.
    is_between_frames: bool,
}

impl<S: AsyncWrite + Unpin> LatePongs<S> {
    pub(super) fn new(io: S) -> Self {
        Self {
            io,
            kept: Vec::new(),
            due: Box::pin(sleep(LATE)),
            written: 0,
            is_between_frames: true,
        }
    }

    fn keep(&mut self, pong: &[u8], cx: &mut Context<'_>) {
        if self.kept.is_empty() {
            self.due.as_mut().reset(Instant::now() + LATE);
        }
        self.kept.extend_from_slice(pong);
        // Has us woken.
        let _not_yet = self.due.as_mut().poll(cx);
    }

    /// Writes what was kept, if it is time.
    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.kept.is_empty() || !self.is_between_frames {
            return Poll::Ready(Ok(()));
        }
        if self.written == 0 && self.due.as_mut().poll(cx).is_pending() {
            return Poll::Ready(Ok(()));
        }
        while self.written < self.kept.len() {
            let rest = &self.kept[self.written..];
            self.written += match ready!(Pin::new(&mut self.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => written,
            };
        }
        self.kept.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

/// The pong in these buffers, if there is nothing else in them.
fn pong(buffers: &[IoSlice<'_>], length: usize) -> Option<[u8; LENGTH]> {
    let mut pong = [0; LENGTH];
    if length != LENGTH {
        return None;
    }
    let bytes = buffers.iter().flat_map(|buffer| buffer.iter());
    pong.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    pong.starts_with(&PONG).then_some(pong)
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LatePongs<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_kept(cx))?;
        let length = buffers.iter().map(|buffer| buffer.len()).sum();
        if self.is_between_frames
            && let Some(pong) = pong(buffers, length)
        {
            self.keep(&pong, cx);
            return Poll::Ready(Ok(LENGTH));
        }
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, buffers))?;
        self.is_between_frames = written == length;
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LatePongs<S> {
    /// The connection reads whenever it is woken: then what is due is written, too.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(written) = self.poll_kept(cx) {
            written?;
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    fn a_pong(of: u8) -> [u8; LENGTH] {
        let mut pong = [of; LENGTH];
        pong[..PONG.len()].copy_from_slice(&PONG);
        pong
    }

    async fn read<const N: usize>(from: &mut DuplexStream) -> [u8; N] {
        let mut bytes = [0; N];
        from.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    /// Reads as a connection does, for ever.
    async fn is_woken(io: &mut LatePongs<DuplexStream>) {
        io.read_u8().await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pong_comes_late_by_itself_and_does_not_hold_anything_up() {
        let (io, mut peer) = duplex(1024);
        let mut io = LatePongs::new(io);
        let begun = Instant::now();
        io.write_all(&a_pong(1)).await.unwrap();
        io.write_all(b"a request").await.unwrap();
        assert_eq!(&read::<9>(&mut peer).await, b"a request");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let pong = async { read::<LENGTH>(&mut peer).await };
        tokio::select! {
            () = is_woken(&mut io) => panic!("nobody writes"),
            pong = pong => assert_eq!(pong, a_pong(1)),
        }
        assert!((LATE..2 * LATE).contains(&begun.elapsed()));
        // The next one is late by as much.
        io.write_all(&a_pong(2)).await.unwrap();
        let soon = timeout(LATE / 2, read::<LENGTH>(&mut peer));
        tokio::select! {
            () = is_woken(&mut io) => panic!("nobody writes"),
            soon = soon => assert!(soon.is_err()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pong_never_comes_into_the_middle_of_a_frame() {
        // So narrow that everything is written in pieces; one of these begins with what could be a pong.
        let (io, mut peer) = duplex(5);
        let mut io = LatePongs::new(io);
        let frame = [&b"fifteen bytes: "[..], &a_pong(9)].concat();
        io.write_all(&a_pong(1)).await.unwrap();
        assert_eq!(io.write(&frame).await.unwrap(), 5);
        // It is due, and the connection reads.
        sleep(2 * LATE).await;
        timeout(LATE, is_woken(&mut io)).await.unwrap_err();
        let writing = async {
            io.write_all(&frame[5..]).await.unwrap();
            io.write_all(&a_pong(2)).await.unwrap();
            io.write_all(&frame).await.unwrap();
            is_woken(&mut io).await;
        };
        let mut bytes = vec![0; 2 * (frame.len() + LENGTH)];
        tokio::select! {
            () = writing => panic!("the other side stays"),
            all = peer.read_exact(&mut bytes) => assert_eq!(all.unwrap(), bytes.len()),
        }
        let expected = [&frame[..], &a_pong(1), &frame, &a_pong(2)].concat();
        assert_eq!(bytes, expected);
    }
}
