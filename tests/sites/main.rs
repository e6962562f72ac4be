//! Sites whose TLS a near end opens: web sites, databases and mail, as their real clients and servers speak it.
#![allow(missing_docs, reason = "a test's own")]

#[path = "../common/mod.rs"]
mod common;
mod http2;
mod opened;
mod secrets;
mod service;
mod start_tls;
