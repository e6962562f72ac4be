//! A slow link, before a program that listens.

use std::{net::SocketAddr, time::Duration};

use refrain_relay::{LinkConfig, Rate, Relay, RelayConfig};
use tokio::runtime::Runtime;

/// A relay in threads of its own, until dropped.
pub(crate) struct SlowLink {
    relay: Relay,
    _runtime: Runtime,
}

impl SlowLink {
    /// Leads to `target`, which need not listen yet. The delay is one way.
    pub(crate) fn before(
        target: SocketAddr,
        mbit: u32,
        delay: Duration,
    ) -> anyhow::Result<SlowLink> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let mut config = RelayConfig::to(target);
        config.link = LinkConfig {
            rate: Some(Rate::mbit(mbit)),
            delay,
        };
        let inside = runtime.enter();
        let relay = Relay::start(config)?;
        drop(inside);
        Ok(SlowLink {
            relay,
            _runtime: runtime,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.relay.address()
    }
}
