//! Interception: the firewall of this machine hands connections to the gateway, and only while it works.
//!
//! ```text
//! rule            which connections, and what happens to them, as users write it
//! table           the rules as a script for nft, with the gate
//! gate            renews the gate while the gateway accepts connections and has a link
//! handling        how the gateway handles a redirected connection: it learns this from the port
//! server_name     the name of the server, in a client's first bytes
//! proxy_protocol  a header that tells a server the client's address
//! ```
//!
//! The gate is a set in the kernel whose one element expires. Rules redirect connections only while it has the
//! element. So a gateway that has died, hangs or has no link stops getting connections: they go direct. No process
//! has to notice.

pub(crate) mod gate;
pub(crate) mod handling;
pub(crate) mod proxy_protocol;
pub mod rule;
pub mod server_name;
pub mod table;

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

/// Whether this process may connect from the addresses of clients.
pub(crate) fn may_use_clients_addresses() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    socket.is_ok_and(|socket| socket.set_ip_transparent_v4(true).is_ok())
}

/// Connects to `address`, from `client` if that is given: an address of another machine, whose answers the table brings
/// here. No rule intercepts this, if the process may set marks. Others have a user of their own, whom no rule intercepts.
pub(crate) async fn connect(address: SocketAddr, client: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    let _ = SockRef::from(&socket).set_mark(table::OWN_MARK);
    if let Some(client) = client {
        // Of both families.
        SockRef::from(&socket).set_ip_transparent_v4(true)?;
        socket.bind((client, 0).into())?;
    }
    socket.connect(address).await
}
