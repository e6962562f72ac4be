//! Connections: how many, how slow they may be, and how they end.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{Sleep, sleep},
};

use super::{ServeOptions, Shared, answer::answer, body::Record, counters::Counters};

/// Bytes of an answer that are written at once, and of a request's head that are read.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that the kernel takes beyond what is on its way: memory a client, not speed.
const NOT_SENT_BYTES: u32 = 256 << 10;
/// After this, what is still being sent is cut off.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves connections until `stop`, and those that are at work then to their end.
pub(super) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let options = shared.options;
    let places = Arc::new(Semaphore::new(options.connections_max));
    let (stopping, stopped) = watch::channel(false);
    tokio::pin!(stop);
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place.expect("it is never closed"),
            () = &mut stop => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (connection, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                // No descriptors, as a rule: those that are open end some time.
                tracing::error!(%error, "cannot take a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (shared, stopped) = (shared.clone(), stopped.clone());
        tokio::spawn(async move {
            Counters::add(&shared.counters.connections, 1);
            Counters::add(&shared.counters.connections_now, 1);
            if let Err(error) = converse(&shared, connection, client, stopped, options).await {
                tracing::debug!(%client, %error, "a connection ended");
            }
            let now = &shared.counters.connections_now;
            now.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            drop(place);
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let all = u32::try_from(options.connections_max).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, places.acquire_many(all)).await;
    Ok(())
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

async fn converse(
    shared: &Arc<Shared>,
    connection: TcpStream,
    client: std::net::SocketAddr,
    mut stopped: watch::Receiver<bool>,
    options: ServeOptions,
) -> Result<(), hyper::Error> {
    let _ = connection.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let _ = socket2::SockRef::from(&connection).set_tcp_notsent_lowat(NOT_SENT_BYTES);
    }
    let service = service_fn(
        |request: hyper::Request<hyper::body::Incoming>| async move {
            Counters::add(&shared.counters.requests, 1);
            let mut record = Record {
                counters: shared.counters.clone(),
                client,
                method: request.method().to_string(),
                path: request.uri().path().to_owned(),
                status: 0,
                began: Instant::now(),
                bytes: 0,
                is_failed: false,
            };
            let answer = answer(shared, client, request).await;
            record.status = answer.status().as_u16();
            Ok::<_, std::convert::Infallible>(answer.map(|body| body.with_record(record)))
        },
    );
    // Without `pipeline_flush`: with it hyper takes all that there is, whether the client does or not.
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(64)
        .serve_connection(TokioIo::new(Hasty::new(connection, options)), service);
    tokio::pin!(conversation);
    tokio::select! {
        ended = &mut conversation => return ended,
        _ = stopped.wait_for(|&stopped| stopped) => conversation.as_mut().graceful_shutdown(),
    }
    conversation.await
}

/// A connection that fails if nothing can be written for too long.
struct Hasty {
    connection: TcpStream,
    stall_timeout: Duration,
    /// Runs while something waits to be written.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Hasty {
    fn new(connection: TcpStream, options: ServeOptions) -> Self {
        Self {
            connection,
            stall_timeout: options.stall_timeout,
            stalled: None,
        }
    }

    fn wrote<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.stall_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Hasty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for Hasty {
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
