//! A bad link on loopback: a TCP relay with a rate, a delay, a queue, stalls and cuts.
//!
//! Where the kernel cannot emulate a link (no netem, no rights, a test that must run anywhere),
//! the relay stands between two programs and behaves as a thin, long or lossy link would. `refrain
//! demo` has one inside. What a byte meets on its way, in this order:
//!
//! - [`units`]: rates, sizes and durations as people write them;
//! - [`config`]: what the link is like ([`LinkConfig`]) and between whom ([`RelayConfig`]);
//! - [`stall`]: which segments stall, from the seed alone;
//! - [`shaper`]: one direction of the link as arithmetic on a virtual clock, without I/O;
//! - [`relay`]: the tokio program around two shapers, and its switches ([`Relay`]);
//! - [`counts`]: what has crossed the link so far ([`Counts`]);
//! - [`check`]: real transfers, held against the settings;
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

pub mod config;
pub mod stall;

pub mod shaper;
mod shared;

pub mod relay;

pub mod counts;

pub mod check;

pub mod addresses;

mod connection;
mod door;
mod link;

pub use config::{CutAfter, LinkConfig, RelayConfig};
pub use counts::Counts;
pub use relay::Relay;
pub use units::Rate;

/// A way through the link, as the connecting side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the side that connected to the relay towards the relay's target.
    Up,
    /// From the relay's target back.
    Down,
}
