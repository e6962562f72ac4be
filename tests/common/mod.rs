//! What the end-to-end tests share: a pair of gateways as real processes, an origin with a
//! protocol of its own, and Debian's programs.
#![allow(
    dead_code,
    reason = "each file of tests is a program of its own, and uses its part"
)]

pub mod applications;
pub mod content;
pub mod fake_peer;
pub mod gateway;
pub mod gateways;
pub mod hostile;
pub mod origin;
pub mod programs;
pub mod websocket;

use std::{
    net::{SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

/// What takes longer hangs. No test expects anything to be fast, unless it says so.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` gives something.
#[track_caller]
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        sleep(Duration::from_millis(10));
    }
}

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

/// Whether this machine has IPv6 on loopback.
pub fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

/// The start of a SHA-256: short enough to read in a failed comparison.
pub fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let start: String = digest.as_ref()[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{start} of {} bytes", bytes.len())
}
