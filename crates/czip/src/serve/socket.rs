//! A client's socket: fails if nothing can be written to it for too long, and tells whether something
//! waits to be.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

/// Bytes that the kernel takes beyond what is on its way: memory a client, not speed.
const NOT_SENT_BYTES: u32 = 256 << 10;

/// What a connection is at: whether it may end without anybody missing anything. All of it happens in
/// one task.
#[derive(Debug, Default)]
pub(super) struct Work {
    is_answering: AtomicBool,
    has_unsent: AtomicBool,
    is_cut_off: AtomicBool,
    requests: AtomicU64,
}

impl Work {
    /// Neither is a request being answered, nor does an answer wait to be taken.
    pub(super) fn is_none(&self) -> bool {
        !self.is_answering.load(Ordering::Relaxed) && !self.has_unsent.load(Ordering::Relaxed)
    }

    /// The answer that is being sent does not come to its end, and that is our doing.
    pub(super) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Relaxed);
    }

    /// Requests that came so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// From the end of a request's head until what it gives is dropped.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        self.is_answering.store(true, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }
}

/// A request that is being answered.
pub(super) struct Answering(Arc<Work>);

impl Answering {
    pub(super) fn is_cut_off(&self) -> bool {
        self.0.is_cut_off.load(Ordering::Relaxed)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.is_answering.store(false, Ordering::Relaxed);
    }
}

pub(super) struct Socket {
    connection: TcpStream,
    stall_timeout: Duration,
    work: Arc<Work>,
    /// Since when something waits to be written.
    waits_since: Option<Instant>,
    /// It may ring too early: setting it anew each time that something was written costs more.
    alarm: Pin<Box<Sleep>>,
}

impl Socket {
    pub(super) fn new(connection: TcpStream, stall_timeout: Duration, work: Arc<Work>) -> Self {
        let _ = connection.set_nodelay(true);
        #[cfg(target_os = "linux")]
        {
            let _ = socket2::SockRef::from(&connection).set_tcp_notsent_lowat(NOT_SENT_BYTES);
        }
        Self {
            connection,
            stall_timeout,
            work,
            waits_since: None,
            alarm: Box::pin(sleep(stall_timeout)),
        }
    }

    fn wrote<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.work.has_unsent.store(true, Ordering::Relaxed);
        if written.is_ready() {
            self.waits_since = None;
            return written;
        }
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let deadline = since + self.stall_timeout;
        while self.alarm.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                self.work.cut_off();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.alarm.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(context, pieces);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Comes when all was written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.work.has_unsent.store(false, Ordering::Relaxed);
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
