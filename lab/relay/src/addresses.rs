//! Addresses of loopback, for the programs at both sides of a link.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

/// An address of loopback that nobody listens on.
///
/// Below the ports that the kernel gives to outgoing connections, so that none of those
/// takes it in the meantime; the process's number keeps parallel runs apart.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id()
            .wrapping_mul(97)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (offset % 20_000) as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Some listen on both at the same port.
        if is_free(address)
            && (!has_ipv6() || is_free(SocketAddr::from((Ipv6Addr::LOCALHOST, port))))
        {
            return address;
        }
    }
}

/// Whether this machine has IPv6 on loopback.
pub fn has_ipv6() -> bool {
    is_free(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))
}

/// Whether somebody could listen there.
///
/// The socket that asks does not listen: a process that another thread is just starting may
/// have a copy of it for a while, which must be in nobody's way.
fn is_free(address: SocketAddr) -> bool {
    let bound = Socket::new(Domain::for_address(address), Type::STREAM, None).and_then(|socket| {
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    });
    bound.is_ok()
}
