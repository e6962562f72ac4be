//! The relay's listening address: open, stuck behind a frozen link, or refusing.

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Mutex;
use std::task::Poll;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

use crate::link::lock;

/// A listener that can be closed and opened again under the same address.
pub(crate) struct Door {
    address: SocketAddr,
    socket_buffer_bytes: Option<u32>,
    state: Mutex<DoorState>,
    /// Notified when [`Door::accept`] must look at the state again.
    changed: Notify,
}

struct DoorState {
    socket: Socket,
    frozen: bool,
}

impl DoorState {
    /// Frees the address, which no other socket can bind before.
    fn close(&mut self) {
        if let Socket::Listening(listener) = &self.socket {
            // A process that another thread is just starting may still have a copy of the
            // listener, with which it would go on. Where a listener cannot be shut down, closing
            // it has to do.
            let _ = SockRef::from(listener).shutdown(Shutdown::Both);
        }
        self.socket = Socket::None;
    }
}

enum Socket {
    Listening(TcpListener),
    /// Bound and not listening, which keeps the port: whoever connects is refused.
    Refusing {
        _claim: TcpSocket,
    },
    /// Between the two.
    None,
}

impl Door {
    pub(crate) fn open(address: SocketAddr, socket_buffer_bytes: Option<u32>) -> io::Result<Door> {
        let listener = bind(address, socket_buffer_bytes)?.listen(BACKLOG)?;
        Ok(Door {
            address: listener.local_addr()?,
            socket_buffer_bytes,
            state: Mutex::new(DoorState {
                socket: Socket::Listening(listener),
                frozen: false,
            }),
            changed: Notify::new(),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next client; waits while the door is frozen or refuses.
    pub(crate) async fn accept(&self) -> io::Result<TcpStream> {
        loop {
            let accept = poll_fn(|context| match &*lock(&self.state) {
                DoorState {
                    socket: Socket::Listening(listener),
                    frozen: false,
                } => listener.poll_accept(context),
                _ => Poll::Pending,
            });
            tokio::select! {
                accepted = accept => return accepted.map(|(client, _)| client),
                () = self.changed.notified() => {}
            }
        }
    }

    /// Leaves new clients in the kernel's backlog: connected, as they see it, and unheard.
    pub(crate) fn set_frozen(&self, frozen: bool) {
        lock(&self.state).frozen = frozen;
        self.changed.notify_one();
    }

    /// Refuses new clients; those in the backlog are reset.
    pub(crate) fn refuse(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if let Socket::Listening(_) = state.socket {
            state.close();
            state.socket = Socket::Refusing {
                _claim: bind(self.address, None)?,
            };
        }
        Ok(())
    }

    /// Takes new clients again.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !matches!(state.socket, Socket::Listening(_)) {
            state.close();
            let socket = bind(self.address, self.socket_buffer_bytes)?;
            state.socket = Socket::Listening(socket.listen(BACKLOG)?);
        }
        self.changed.notify_one();
        Ok(())
    }
}

/// A socket for the address's family with the given kernel buffers.
pub(crate) fn socket(
    address: SocketAddr,
    socket_buffer_bytes: Option<u32>,
) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    if let Some(bytes) = socket_buffer_bytes {
        // Before the handshake, which fixes the window's scale; accepted sockets inherit it.
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(socket)
}

fn bind(address: SocketAddr, socket_buffer_bytes: Option<u32>) -> io::Result<TcpSocket> {
    let socket = socket(address, socket_buffer_bytes)?;
    // Connections of an earlier listener may linger on the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

const BACKLOG: u32 = 1024;
