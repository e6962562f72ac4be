//! Addresses of loopback.

use std::{
    net::{SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

/// An address of loopback that nobody listens on.
///
/// Below the ports that the kernel gives to outgoing connections, so that none of those
/// takes it in the meantime; the process's number keeps parallel runs apart.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id() * 97 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 12_000 + (offset % 20_000) as u16;
        let is_free = |host: &str| TcpListener::bind((host, port)).is_ok();
        // Some listen on both at the same port.
        if is_free("127.0.0.1") && (is_free("::1") || !has_ipv6()) {
            return SocketAddr::from(([127, 0, 0, 1], port));
        }
    }
}

/// A free address, and the value of `--forward` that leads from there to `target`.
pub fn forward(target: SocketAddr) -> (SocketAddr, String) {
    let listen = free_address();
    (listen, format!("{listen}={target}"))
}

/// Whether this machine has IPv6 on loopback.
pub fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}
