//! The connection of an application, as flows read and write it: as it is, or inside TLS.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use refrain_proto::limits::BLOCK_BYTES_MAX;
use rustls::ClientConnection;
use socket2::SockRef;
use tokio::net::TcpStream;

/// A connection whose reads and writes do as much as is possible at once.
pub(crate) trait Connection {
    /// Its socket.
    fn tcp(&self) -> &TcpStream;

    /// Waits until a read may find something.
    async fn readable(&self) -> io::Result<()>;

    /// Reads what is there, 0 bytes at the end.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Waits until a write may take something.
    async fn writable(&self) -> io::Result<()>;

    /// Takes some of `bytes`.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until all that was taken has left.
    async fn flush(&self) -> io::Result<()>;

    /// Ends this direction. All that was taken has left.
    async fn finish(&self) -> io::Result<()>;
}

impl Connection for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }

    async fn readable(&self) -> io::Result<()> {
        TcpStream::readable(self).await
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::try_read(self, buffer)
    }

    async fn writable(&self) -> io::Result<()> {
        TcpStream::writable(self).await
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        TcpStream::try_write(self, bytes)
    }

    async fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    async fn finish(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }
}

/// A connection inside TLS, after its handshake, at the end that began it.
pub(crate) struct InsideTls {
    tcp: TcpStream,
    /// One task reads and writes: nobody waits for it.
    session: Mutex<ClientConnection>,
    /// Whether the session has plain bytes that were not read.
    has_more: AtomicBool,
}

impl InsideTls {
    /// Continues the session on its connection.
    pub(crate) fn new(tcp: TcpStream, mut session: ClientConnection) -> InsideTls {
        session.set_buffer_limit(Some(BLOCK_BYTES_MAX));
        InsideTls {
            tcp,
            session: Mutex::new(session),
            // The last bytes of the handshake may have brought some.
            has_more: AtomicBool::new(true),
        }
    }

    fn session(&self) -> MutexGuard<'_, ClientConnection> {
        self.session.lock().expect("held for a moment")
    }

    /// Sends what the session wants to send.
    fn send(&self, session: &mut ClientConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Socket(&self.tcp))?;
        }
        Ok(())
    }

    fn read(&self, session: &mut ClientConnection, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // 0 bytes are the end that the other side has said. An end of the connection only is an error: others
                // could have made it.
                result => return result,
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
}

impl Connection for InsideTls {
    fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    async fn readable(&self) -> io::Result<()> {
        match self.has_more.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.tcp.readable().await,
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session();
        let result = self.read(&mut session, buffer);
        let is_full = matches!(result, Ok(read) if read == buffer.len());
        self.has_more.store(is_full, Ordering::Relaxed);
        result
    }

    async fn writable(&self) -> io::Result<()> {
        self.tcp.writable().await
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session();
        self.send(&mut session)?;
        let taken = session.writer().write(bytes)?;
        match self.send(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    async fn flush(&self) -> io::Result<()> {
        loop {
            let sent = self.send(&mut self.session());
            match sent {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.tcp.writable().await?,
                result => return result,
            }
        }
    }

    async fn finish(&self) -> io::Result<()> {
        self.session().send_close_notify();
        self.flush().await?;
        SockRef::from(&self.tcp).shutdown(Shutdown::Write)
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
