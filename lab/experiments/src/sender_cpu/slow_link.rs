//! The slow link, before a program that listens.

use std::{net::SocketAddr, time::Duration};

use refrain_relay::{LinkConfig, Rate, Relay, RelayConfig};
use tokio::runtime::Runtime;

use super::{DELAY_MS, MBIT};

/// A relay in threads of its own, until dropped.
pub(super) struct SlowLink {
    relay: Relay,
    _runtime: Runtime,
}

impl SlowLink {
    /// Leads to `target`, which need not listen yet.
    pub(super) fn before(target: SocketAddr) -> anyhow::Result<SlowLink> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let mut config = RelayConfig::to(target);
        config.link = LinkConfig {
            rate: Some(Rate::mbit(MBIT)),
            delay: Duration::from_millis(DELAY_MS),
            ..LinkConfig::default()
        };
        let inside = runtime.enter();
        let relay = Relay::start(config)?;
        drop(inside);
        Ok(SlowLink {
            relay,
            _runtime: runtime,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.relay.address()
    }
}
