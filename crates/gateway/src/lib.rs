//! The world around the engines: listeners, lanes over TLS, policies, status.
//!
//! ```text
//! application ─▶ listeners (socks5, http_proxy) ─▶ flow ─▶ link ─▶ lane ─▶ tls, wire ─▶ peer
//! peer ─▶ tls, wire ─▶ lane ─▶ link ─▶ offered ─▶ flow ─▶ target
//! ```
#![forbid(unsafe_code)]

pub mod options;
pub mod settings;
pub mod text_file;
pub mod units;

pub mod access;
pub mod address;
pub mod config;
pub mod keys;
pub mod machine;
pub mod memory;
pub mod policy;
pub mod rules;
pub mod target;

pub mod descriptors;
pub mod http_proxy;
pub mod listeners;
pub mod refusal;
pub mod socks5;

pub mod crumbs;
pub mod flow;
pub mod greeting;
pub mod lane;
pub mod link;
pub mod lookups;
pub mod offered;
pub mod pace;
pub mod tls;
pub mod wire;

pub mod far;
pub mod gateway;
pub mod history;
pub mod last_error;
pub mod near;
pub mod rate_limited_log;
pub mod totals;

pub mod admin;
pub mod check;
pub mod local_socket;
pub mod loopback;
pub mod status;
