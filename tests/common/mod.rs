//! What the end-to-end tests share: gateways as real processes, what runs on either side of
//! them, and Debian's programs.
#![allow(
    dead_code,
    reason = "each file of tests is a program of its own, and uses its part"
)]

pub(crate) mod addresses;
pub(crate) mod applications;
pub(crate) mod attacks;
pub(crate) mod certificate;
pub(crate) mod command;
pub(crate) mod content;
pub(crate) mod doctor;
pub(crate) mod exposition;
pub(crate) mod fake_peer;
pub(crate) mod gateway;
pub(crate) mod git;
pub(crate) mod hostile_answers;
pub(crate) mod http;
pub(crate) mod listeners;
pub(crate) mod nginx;
pub(crate) mod origin;
pub(crate) mod origin_machine;
pub(crate) mod packages;
pub(crate) mod programs;
pub(crate) mod resident;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod terminal;
pub(crate) mod websocket;
pub(crate) mod world;

use std::{
    io::{self, Read},
    thread::sleep,
    time::{Duration, Instant},
};

/// What takes longer hangs. No test expects anything to be fast, unless it says so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` gives something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
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

/// Reads once. A read with a time limit is interrupted when the machine pauses, without any signal: it is repeated.
pub(crate) fn read(mut from: impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The start of a SHA-256: short enough to read in a failed comparison.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("{} of {} bytes", &sha256(bytes)[..24], bytes.len())
}

/// A SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let digits = digest.as_ref().iter();
    digits.map(|byte| format!("{byte:02x}")).collect()
}
