//! The world around the engines: what a gateway listens on, whom it trusts, where it may
//! connect, and how it is configured.

pub mod config;
pub mod http_proxy;
pub mod keys;
pub mod machine;
pub mod options;
pub mod refusal;
pub mod rules;
pub mod settings;
pub mod socks5;
pub mod target;
pub mod tls;
pub mod units;
