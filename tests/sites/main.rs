//! Sites whose TLS a near end opens: web sites, databases and mail, as their real clients and servers speak it.
#![allow(missing_docs, reason = "a test's own")]

mod certificates;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod http2;
mod mirrors;
mod opened;
mod secrets;
mod service;
mod start_tls;

use std::{net::SocketAddr, path::Path};

use common::{addresses::free_address, site::Pair};

/// A pair whose near end serves what is at this port of localhost, with the certificate in `folder`, and where.
fn served(scheme: &str, folder: &Path, port: u16) -> (Pair, SocketAddr) {
    let near = free_address();
    let [certificate, key] =
        ["tls.crt", "tls.key"].map(|name| folder.join(name).display().to_string());
    let service = format!("{scheme}://{near}={scheme}://localhost:{port}");
    let near_options = [
        "--service",
        &service,
        "--cert",
        &certificate,
        "--cert-key",
        &key,
    ];
    let pair = Pair::start(&["--origin-ca", &certificate], &near_options);
    (pair, near)
}
