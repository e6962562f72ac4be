//! A bad link on loopback: a TCP relay with a rate, a delay, a queue and cuts.
//!
//! Where the kernel cannot emulate a link (no netem, no rights, a test that must run anywhere),
//! the relay stands between two programs and behaves as a slow or long link would. `refrain demo`
//! has one inside.
//!
//! - [`units`]: rates and durations as people write them;
//! - `config`: what the link is like ([`LinkConfig`]) and between whom ([`RelayConfig`]);
//! - `shaper`: one direction of the link as arithmetic on a virtual clock, without I/O;
//! - `link`: a shaper in real time;
//! - `counts`: what has crossed the link so far ([`Counts`]);
//! - `door`: the address that clients connect to;
//! - `connection`: carries a client's bytes to the target and back, over two links;
//! - `relay`: the tokio program around all of these, and its switches ([`Relay`]);
//! - [`addresses`]: free ones, for the programs at its sides.
//!
//! # Example
//!
//! ```no_run
//! use refrain_relay::{Rate, Relay, RelayConfig};
//! use std::time::Duration;
//!
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! let mut config = RelayConfig::to(server);
//! config.link.rate = Some(Rate::mbit(10));
//! config.link.delay = Duration::from_millis(20);
//! let relay = Relay::start(config)?;
//! // ... clients connect to `relay.address()` ...
//! println!("{} bytes went up", relay.counts().up.delivered_bytes);
//! relay.cut();
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod units;

mod config;

mod link;
mod shaper;

mod counts;

mod connection;
mod door;
mod shared;

mod relay;

pub mod addresses;

pub use config::{LinkConfig, RelayConfig};
pub use counts::{Counts, DirectionCounts};
pub use relay::Relay;
pub use units::Rate;
