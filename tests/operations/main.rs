//! What operators do, see and suffer: signals, kills, cuts, limits, logs, status, keys, checks.

#[path = "../common/mod.rs"]
mod common;

mod cable;

mod commands;
mod deaths;
mod demo;
mod doctor;
mod explain;
mod help;
mod limits;
mod local;
mod log;
mod signals;
mod status;
mod waiting;

use std::{io::ErrorKind, net::SocketAddr};

use common::origin;

/// Whether a connection there comes to nothing.
fn is_refused(address: SocketAddr) -> bool {
    match origin::fetch(address, "send 1 100") {
        Ok(received) => received.is_empty(),
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}
