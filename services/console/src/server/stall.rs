//! A connection whose peer stops reading ends (db-forward §5.5 step 7).

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use carlos_protocol::limits::LINE_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose writes fail once its peer has not taken one whole line within `limit`.
///
/// The bounded line channel cannot see this alone: what is already below it would be held for as
/// long as the peer keeps the connection. Progress of a few bytes is none: a peer that takes one
/// byte at a time would hold a read's admission for hours.
pub(super) struct WriteStall<S> {
    stream: S,
    context: carlos_bucket::Context,
    limit: Duration,
    waiting: Option<Waiting>,
}

/// Something is waiting to be written.
struct Waiting {
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    taken: usize,
}

impl<S> WriteStall<S> {
    pub(super) fn new(stream: S, context: carlos_bucket::Context, limit: Duration) -> Self {
        Self { stream, context, limit, waiting: None }
    }

    fn watch_write(
        &mut self,
        cx: &mut Context<'_>,
        write: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(Ok(written)) = write else { return self.watch(cx, write) };
        if let Some(waiting) = &mut self.waiting {
            waiting.taken += written;
            // A fresh limit for each line, as each line's own write would have (§5.5, codex 19).
            self.waiting.take_if(|waiting| waiting.taken >= LINE_BYTES);
        }
        write
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, step: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if step.is_ready() {
            return step;
        }
        let (context, limit) = (&self.context, self.limit);
        let waiting = self.waiting.get_or_insert_with(|| {
            let context = context.clone();
            Waiting { over: Box::pin(async move { context.sleep(limit).await }), taken: 0 }
        });
        match waiting.over.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteStall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteStall<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch_write(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch_write(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(cx);
        if flush.is_ready() {
            // Whoever flushes has handed everything over, so nothing waits any more.
            self.waiting = None;
        }
        self.watch(cx, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn pair(room: usize) -> (WriteStall<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (near, far) = duplex(room);
        (WriteStall::new(near, carlos_bucket::Context::simulated(1, 0), LIMIT), far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_fails_the_write_after_the_limit() {
        let (mut stream, _far) = pair(10);
        let began = tokio::time::Instant::now();
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_at_a_time_is_no_better() {
        let (mut stream, mut far) = pair(10);
        let began = tokio::time::Instant::now();
        let dripping = tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(7)).await;
            }
        });
        assert!(stream.write_all(&[0; 100]).await.is_err());
        assert!(began.elapsed() < LIMIT * 2);
        dripping.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_that_takes_its_lines_is_kept() {
        let (mut stream, mut far) = pair(LINE_BYTES);
        let reader = tokio::spawn(async move {
            let mut line = vec![0; LINE_BYTES];
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut line).await.unwrap();
            }
        });
        for _ in 0..10 {
            stream.write_all(&vec![0; LINE_BYTES]).await.unwrap();
        }
        stream.flush().await.unwrap();
        reader.await.unwrap();
    }
}
