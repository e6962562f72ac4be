//! The connection below a lane: any stream of bytes, and a count of what really goes over it, TLS
//! included.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

/// What a lane can run over.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A lane's connection: TLS over a stream, counted between the two.
pub type LaneStream<S = TcpStream> = TlsStream<Counted<S>>;

/// A stream that counts its bytes.
#[derive(Debug)]
pub struct Counted<S> {
    inner: S,
    counts: Arc<WireCounts>,
}

/// Bytes of one or several connections, without TCP's and IP's own.
#[derive(Debug, Default)]
pub struct WireCounts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl<S> Counted<S> {
    /// Counts from now on.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            counts: Arc::default(),
        }
    }

    /// The stream.
    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    /// What was counted so far, and what will be.
    pub fn counts(&self) -> Arc<WireCounts> {
        Arc::clone(&self.counts)
    }
}

impl WireCounts {
    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Adds what `other` counted.
    pub fn add(&self, other: &WireCounts) {
        self.sent.fetch_add(other.sent(), Ordering::Relaxed);
        self.received.fetch_add(other.received(), Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        self.counts.received.fetch_add(read, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.counts
            .sent
            .fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, slices))?;
        self.counts
            .sent
            .fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
