//! The connection of an application, as flows read and write it: as it is, inside TLS, or an HTTP/2 stream behind a pipe.

use std::{
    io::{self, BufRead, ErrorKind, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use refrain_proto::limits::BLOCK_BYTES_MAX;
use rustls::{ServerConfig, server::Accepted};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{failed, pipe::PipeEnd, prepare};

/// Room for a read into a buffer that is full.
const READ_BYTES: usize = 4 << 10;

/// A connection. Its reads and writes do as much as is possible at once.
pub(crate) enum Connection {
    Plain(TcpStream),
    InsideTls(Box<InsideTls>),
    /// To another task, which has a stream of HTTP/2.
    Piped(PipeEnd),
}

impl From<TcpStream> for Connection {
    fn from(tcp: TcpStream) -> Connection {
        Connection::Plain(tcp)
    }
}

impl From<Box<InsideTls>> for Connection {
    fn from(inside: Box<InsideTls>) -> Connection {
        Connection::InsideTls(inside)
    }
}

impl From<PipeEnd> for Connection {
    fn from(pipe: PipeEnd) -> Connection {
        Connection::Piped(pipe)
    }
}

impl Connection {
    /// Its socket.
    pub(crate) fn tcp(&self) -> io::Result<&TcpStream> {
        match self {
            Connection::Plain(tcp) => Ok(tcp),
            Connection::InsideTls(inside) => Ok(&inside.tcp),
            Connection::Piped(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Prepares its socket for an application, see [`prepare`].
    pub(crate) fn prepare(&self) {
        if let Ok(tcp) = self.tcp() {
            prepare(tcp);
        }
    }

    /// Has what was written arrive when the connection is closed, which would be a reset otherwise.
    pub(crate) fn close_in_order(&self) -> io::Result<()> {
        match self.tcp() {
            Ok(tcp) => SockRef::from(tcp).set_linger(None),
            Err(_) => Ok(()),
        }
    }

    /// Waits until the connection has failed, without reading from it.
    pub(crate) async fn failed(&self) -> io::Error {
        match self {
            Connection::Plain(tcp) => failed(tcp).await,
            Connection::InsideTls(inside) => failed(&inside.tcp).await,
            Connection::Piped(pipe) => pipe.failed().await,
        }
    }

    /// Waits until a read may find something.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Connection::Plain(tcp) => tcp.readable().await,
            Connection::InsideTls(inside) if inside.has_more.load(Ordering::Relaxed) => Ok(()),
            Connection::InsideTls(inside) => inside.tcp.readable().await,
            Connection::Piped(pipe) => pipe.readable().await,
        }
    }

    /// Reads what is there, 0 bytes at the end.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(tcp) => tcp.try_read(buffer),
            Connection::InsideTls(inside) => inside.try_read(buffer),
            Connection::Piped(pipe) => pipe.try_read(buffer),
        }
    }

    /// Waits until something can be read, and leaves it; false at the end.
    pub(crate) async fn has_more(&self) -> io::Result<bool> {
        match self {
            Connection::Plain(tcp) => Ok(tcp.peek(&mut [0]).await? > 0),
            Connection::InsideTls(inside) => inside.has_more().await,
            Connection::Piped(pipe) => pipe.has_more().await,
        }
    }

    /// Appends what is there to `buffer`, up to its capacity, or some more if it has none left: 0 bytes at the end.
    pub(crate) async fn read_buf(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let length = buffer.len();
        if length == buffer.capacity() {
            buffer.reserve(READ_BYTES);
        }
        loop {
            self.readable().await?;
            buffer.resize(buffer.capacity(), 0);
            let read = self.try_read(&mut buffer[length..]);
            buffer.truncate(length + *read.as_ref().unwrap_or(&0));
            match read {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Waits until a write may take something. Boxed, so that tasks have no memory for it while they do not wait.
    pub(crate) fn writable(&self) -> impl Future<Output = io::Result<()>> {
        Box::pin(async {
            match self {
                Connection::Plain(tcp) => tcp.writable().await,
                Connection::InsideTls(inside) => inside.tcp.writable().await,
                Connection::Piped(pipe) => pipe.writable().await,
            }
        })
    }

    /// Takes some of `bytes`.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(tcp) => tcp.try_write(bytes),
            Connection::InsideTls(inside) => inside.try_write(bytes),
            Connection::Piped(pipe) => pipe.try_write(bytes),
        }
    }

    /// Writes all of `bytes`.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        self.flush().await
    }

    /// Waits until all that was taken has left.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        match self {
            Connection::Plain(_) | Connection::Piped(_) => Ok(()),
            Connection::InsideTls(inside) => inside.flush().await,
        }
    }

    /// Ends this direction. All that was taken has left.
    pub(crate) async fn finish(&self) -> io::Result<()> {
        let tcp = match self {
            Connection::Plain(tcp) => tcp,
            Connection::InsideTls(inside) => {
                inside.session().send_close_notify();
                inside.flush().await?;
                &inside.tcp
            }
            Connection::Piped(pipe) => {
                pipe.finish();
                return Ok(());
            }
        };
        SockRef::from(tcp).shutdown(Shutdown::Write)
    }
}

/// A connection inside TLS, after its handshake.
pub(crate) struct InsideTls {
    tcp: TcpStream,
    /// One task reads and writes: nobody waits for it.
    session: Mutex<rustls::Connection>,
    /// Whether the session has plain bytes that were not read.
    has_more: AtomicBool,
}

impl InsideTls {
    /// Continues the session on its connection.
    pub(crate) fn new(tcp: TcpStream, session: impl Into<rustls::Connection>) -> Box<InsideTls> {
        let mut session = session.into();
        session.set_buffer_limit(Some(BLOCK_BYTES_MAX));
        Box::new(InsideTls {
            tcp,
            session: Mutex::new(session),
            // The last bytes of the handshake may have brought some.
            has_more: AtomicBool::new(true),
        })
    }

    /// Makes the handshake with a client whose hello came.
    pub(crate) async fn accept(
        tcp: TcpStream,
        accepted: Accepted,
        config: Arc<ServerConfig>,
    ) -> io::Result<Box<InsideTls>> {
        let session = accepted
            .into_connection(config)
            .map_err(|(error, mut alert)| {
                // The client learns the reason, if its socket has room.
                let _ = alert.write_all(&mut Socket(&tcp));
                io::Error::other(error)
            })?;
        let inside = InsideTls::new(tcp, session);
        loop {
            inside.flush().await?;
            if !inside.session().is_handshaking() {
                return Ok(inside);
            }
            inside.tcp.readable().await?;
            inside.continue_handshake()?;
        }
    }

    fn continue_handshake(&self) -> io::Result<()> {
        let mut session = self.session();
        match session.read_tls(&mut Socket(&self.tcp)) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        session.process_new_packets().map_err(|error| {
            let _ = self.send(&mut session);
            io::Error::other(error)
        })?;
        Ok(())
    }

    fn session(&self) -> MutexGuard<'_, rustls::Connection> {
        self.session.lock().expect("held for a moment")
    }

    /// Sends what the session wants to send.
    fn send(&self, session: &mut rustls::Connection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Socket(&self.tcp))?;
        }
        Ok(())
    }

    /// Receives until the session has plain bytes, or the end.
    fn receive(&self, session: &mut rustls::Connection) -> io::Result<()> {
        loop {
            match session.reader().fill_buf() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // No bytes are the end that the other side has said. An end of the connection only is an error: others
                // could have made it.
                result => return result.map(|_| ()),
            }
            session.read_tls(&mut Socket(&self.tcp))?;
            let state = session.process_new_packets();
            // An answer to a change of keys, or an alert. What does not leave now leaves with the next write.
            match self.send(session) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => state.map_err(io::Error::other)?,
            };
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session();
        let received = self.receive(&mut session);
        let result = received.and_then(|()| session.reader().read(buffer));
        let is_full = matches!(result, Ok(read) if read == buffer.len());
        self.has_more.store(is_full, Ordering::Relaxed);
        result
    }

    async fn has_more(&self) -> io::Result<bool> {
        loop {
            let received = self.receive(&mut self.session());
            match received {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.tcp.readable().await?,
                result => {
                    result?;
                    self.has_more.store(true, Ordering::Relaxed);
                    return Ok(!self.session().reader().fill_buf()?.is_empty());
                }
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    /// The same of several pieces, which share records.
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.session();
        self.send(&mut session)?;
        let taken = session.writer().write_vectored(pieces)?;
        match self.send(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Whether both sides chose this protocol (ALPN).
    pub(crate) fn speaks(&self, protocol: &[u8]) -> bool {
        self.session().alpn_protocol() == Some(protocol)
    }

    /// Its socket.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Waits until all that was taken has left.
    fn poll_sent(&self, context: &mut Context) -> Poll<io::Result<()>> {
        loop {
            match self.send(&mut self.session()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(context))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    async fn flush(&self) -> io::Result<()> {
        loop {
            let sent = self.send(&mut self.session());
            match sent {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Box::pin(self.tcp.writable()).await?;
                }
                result => return result,
            }
        }
    }
}

impl AsyncRead for InsideTls {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context,
        buffer: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for InsideTls {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write_vectored(pieces) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.tcp.poll_write_ready(context))?;
                }
                Ok(0) if pieces.iter().any(|piece| !piece.is_empty()) => {
                    ready!(self.poll_sent(context))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// The head of a frame of HTTP/2 and its content leave in one record.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        // Said once more, it changes nothing.
        self.session().send_close_notify();
        ready!(self.poll_sent(context))?;
        Poll::Ready(SockRef::from(&self.tcp).shutdown(Shutdown::Write))
    }
}

/// A socket that does not wait.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
