//! Addresses of loopback.

use std::net::SocketAddr;

pub(crate) use refrain_relay::addresses::{free_address, has_ipv6};

/// A free address, and the value of `--forward` that leads from there to `target`.
pub(crate) fn forward(target: SocketAddr) -> (SocketAddr, String) {
    let listen = free_address();
    (listen, format!("{listen}={target}"))
}
