//! The HTTP proxy with requests of all kinds: curl and nginx, and clients and origins made by
//! hand where those are too polite.

#[path = "../common/mod.rs"]
mod common;

mod endings;
mod exchanges;
mod kept;
mod plain_content;

use std::net::SocketAddr;

use common::{addresses::free_address, http::HandMadeOrigin, site::Pair};

/// A pair with an HTTP proxy, and where that listens.
fn proxy() -> (Pair, SocketAddr) {
    proxy_with(&[])
}

/// The same with further options of the near end.
fn proxy_with(options: &[&str]) -> (Pair, SocketAddr) {
    let listen = free_address();
    let address = listen.to_string();
    let pair = Pair::start(&[], &[&["--http-proxy", &address], options].concat());
    (pair, listen)
}

/// An origin whose answers name the connection and the request, and what they add to that.
fn naming(framing: &'static str) -> HandMadeOrigin {
    HandMadeOrigin::keeping(move |connection, number, _| {
        let body = format!("c{connection}r{number}");
        Some(format!(
            "HTTP/1.1 200 OK\r\n{framing}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    })
}

fn get(origin: &HandMadeOrigin) -> String {
    format!("GET http://{}/ HTTP/1.1\r\n\r\n", origin.address)
}

fn post(origin: &HandMadeOrigin) -> String {
    let address = origin.address;
    format!("POST http://{address}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
}
