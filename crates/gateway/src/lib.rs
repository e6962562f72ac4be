//! The world around the engines: listeners, lanes over TLS, policies, status.
//!
//! ```text
//! application ─▶ listeners (socks5, http_proxy) ─▶ flow ─▶ link ─▶ lane ─▶ tls, wire ─▶ peer
//! peer ─▶ tls, wire ─▶ lane ─▶ link ─▶ offered ─▶ flow ─▶ target
//! ```
#![forbid(unsafe_code)]

pub mod arguments;
pub mod options;
pub mod settings;
pub mod text_file;
pub mod units;

mod access;
pub mod address;
pub mod config;
pub mod keys;
mod machine;
pub mod memory;
mod policy;
pub mod rules;
mod shared;
pub mod target;
pub mod way_in;

pub mod acceptor;
mod descriptors;
pub mod http_proxy;
mod listeners;
mod refusal;
pub mod socks4;
pub mod socks5;

mod crumbs;
mod flow;
mod greeting;
mod lane;
mod link;
mod lookups;
mod offered;
mod pace;
pub mod tls;
pub mod wire;

pub mod gateway;
pub mod history;
mod last_error;
mod random;
mod rate_limited_log;
pub mod start;

pub mod admin;
pub mod check;
pub mod local_socket;
pub mod loopback;
pub mod status;
