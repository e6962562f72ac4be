//! What really goes over a lane's connection, TLS included.

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

/// A lane's connection: TLS over TCP, counted between the two.
pub type LaneStream = TlsStream<CountedTcp>;

/// A TCP connection that counts its bytes.
#[derive(Debug)]
pub struct CountedTcp {
    tcp: TcpStream,
    counts: Arc<WireCounts>,
}

/// Bytes of one or several TCP connections, without TCP's and IP's own.
#[derive(Debug, Default)]
pub struct WireCounts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl CountedTcp {
    /// Counts from now on.
    pub fn new(tcp: TcpStream) -> CountedTcp {
        CountedTcp {
            tcp,
            counts: Arc::default(),
        }
    }

    /// The connection.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
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

impl AsyncRead for CountedTcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(context, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        self.counts.received.fetch_add(read, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedTcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tcp).poll_write(context, bytes))?;
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
        let written = ready!(Pin::new(&mut self.tcp).poll_write_vectored(context, slices))?;
        self.counts
            .sent
            .fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
