//! The original destinations of connections that the firewall of this machine redirected.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use socket2::SockRef;
use tokio::{net::TcpStream, sync::mpsc};

use crate::{target::Target, virtual_names::VirtualNames};

/// Connections that are redirected from a network in which names stand behind addresses.
#[derive(Debug, Clone)]
pub struct Redirected {
    /// The names.
    pub names: Arc<VirtualNames>,
    /// Each connection holds a clone, so that its receiver ends with the last of them.
    pub open: mpsc::Sender<()>,
}

/// Why the destination of a connection is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoTarget {
    /// The kernel remembers no redirection of it.
    #[error("no firewall rule redirected it: only redirected connections have a destination")]
    NotRedirected,
    /// A virtual address that no name has, or no name any more.
    #[error("no name has its destination {0} any more (the client kept the address for too long)")]
    NoName(IpAddr),
    /// The kernel gave none.
    #[error("cannot read its destination: {0}")]
    Io(#[from] io::Error),
}

/// Where the client of a redirected connection wanted to go: a name, if its destination stands for one of `names`.
pub fn original_target(tcp: &TcpStream, names: Option<&VirtualNames>) -> Result<Target, NoTarget> {
    let destination = original_destination(tcp)?;
    let ip = destination.ip();
    let Some(names) = names.filter(|_| VirtualNames::is_virtual(ip)) else {
        return Ok(destination.into());
    };
    let host = names.name(ip).ok_or(NoTarget::NoName(ip))?;
    let port = destination.port();
    Ok(Target { host, port })
}

fn original_destination(tcp: &TcpStream) -> Result<SocketAddr, NoTarget> {
    let (socket, own) = (SockRef::from(tcp), tcp.local_addr()?);
    let destination = match own.ip().to_canonical() {
        IpAddr::V4(_) => socket.original_dst_v4(),
        IpAddr::V6(_) => socket.original_dst_v6(),
    };
    let destination = match destination {
        Ok(destination) => destination.as_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    // The kernel may know a connection that nothing redirected: its destination is this listener.
    let is_redirected = |destination: &SocketAddr| {
        (destination.ip().to_canonical(), destination.port())
            != (own.ip().to_canonical(), own.port())
    };
    destination
        .filter(is_redirected)
        .ok_or(NoTarget::NotRedirected)
}
