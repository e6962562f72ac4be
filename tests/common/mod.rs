//! What the end-to-end tests share: gateways as real processes, what runs on either side of
//! them, and Debian's programs.
#![allow(
    dead_code,
    reason = "each file of tests is a program of its own, and uses its part"
)]

pub mod addresses;
pub mod applications;
pub mod attacks;
pub mod command;
pub mod content;
pub mod exposition;
pub mod fake_peer;
pub mod gateway;
pub mod git;
pub mod http;
pub mod listeners;
pub mod nginx;
pub mod origin;
pub mod programs;
pub mod resident;
pub mod server;
pub mod site;
pub mod websocket;

use std::{
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

/// The start of a SHA-256: short enough to read in a failed comparison.
pub fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let start: String = digest.as_ref()[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{start} of {} bytes", bytes.len())
}
