//! Interception: the firewall of this machine hands connections to the gateway, and only while it works.
//!
//! ```text
//! rule            which connections, and what happens to them, as users write it
//! table           the rules as a script for nft, with the gate
//! answers         whether the answers to clients' addresses come to this machine
//! gate            renews the gate while the gateway accepts connections and has a link
//! handling        how the gateway handles a redirected connection: it learns this from the port
//! netlink         messages to the kernel about routes and packets
//! netfilter       those to netfilter
//! packet          packets of IP, which netfilter hands over
//! removed         a table that was removed: when, and what becomes of open connections
//! queue           packets that the firewall holds until the gateway has decided about them
//! server_name     the name of the server, in a client's first bytes
//! copies          copies of packets that the firewall makes
//! dns_names       the names of a server, by the DNS answers that its client got
//! proxy_protocol  a header that tells a server the client's address
//! ```
//!
//! The gate is a set in the kernel whose one element expires. Rules redirect connections only while it has the
//! element. So a gateway that has died, hangs or has no link stops getting connections: they go direct. No process
//! has to notice.

pub(crate) mod answers;
mod copies;
pub mod dns_names;
pub(crate) mod gate;
pub(crate) mod handling;
mod netfilter;
mod netlink;
mod packet;
pub(crate) mod proxy_protocol;
pub mod queue;
pub mod removed;
pub mod rule;
pub mod server_name;
pub mod table;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::{machine::is_of_this_machine, random::random_in};

/// Whether this process may connect from the addresses of clients.
pub(crate) fn may_use_clients_addresses() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    socket.is_ok_and(|socket| socket.set_ip_transparent_v4(true).is_ok())
}

/// Connects to `address`. No rule intercepts this, if the process may set marks. Others have a user of their own, whom no
/// rule intercepts.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    socket(address)?.connect(address).await
}

/// The same from the address of a client, which another machine has.
pub(crate) async fn connect_for(
    client: IpAddr,
    address: SocketAddr,
) -> Result<TcpStream, ConnectError> {
    // A client's own connections to the same server may come through this machine, and most clients use higher ports.
    const PORTS: RangeInclusive<u16> = 10_000..=32_767;
    const TRIES: usize = 8;
    // If the client uses the same port after all, the kernel takes the packets for those of its connection.
    const TRY_TIME: Duration = Duration::from_secs(2);
    const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(4))
        .with_interval(Duration::from_secs(1))
        .with_retries(3);
    if !answers::come_here(client)? || is_of_this_machine(address.ip()) {
        return Err(ConnectError::Client);
    }
    let mut failure = ConnectError::Client;
    for _ in 0..TRIES {
        let socket = socket(address)?;
        // Of both families.
        if SockRef::from(&socket).set_ip_transparent_v4(true).is_err() {
            return Err(ConnectError::Client);
        }
        // Otherwise no server of this machine could begin to listen at that port.
        socket.set_reuseaddr(true)?;
        if socket.bind((client, random_in(PORTS)).into()).is_err() {
            continue;
        }
        match timeout(TRY_TIME, socket.connect(address)).await {
            Ok(Ok(tcp)) => {
                // If the table was gone for a moment, the client answered the server with a reset. This end learns it here.
                let _ = SockRef::from(&tcp).set_tcp_keepalive(&KEEPALIVE);
                return Ok(tcp);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => failure = io::Error::from(io::ErrorKind::TimedOut).into(),
        }
    }
    Err(failure)
}

/// Why a connection for a client is not made.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// This end cannot use the client's address.
    Client,
    Io(io::Error),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        ConnectError::Io(error)
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    let _ = SockRef::from(&socket).set_mark(table::OWN_MARK);
    Ok(socket)
}
