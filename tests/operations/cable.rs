//! A way between two gateways that can be cut.

use std::net::SocketAddr;

use refrain_relay::{LinkConfig, Relay, RelayConfig};

/// A relay in a runtime of its own, in front of `target`.
pub(crate) struct Cable {
    pub relay: Relay,
    runtime: tokio::runtime::Runtime,
}

impl Cable {
    pub(crate) fn to(target: SocketAddr, link: LinkConfig) -> Cable {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let config = RelayConfig {
            link,
            ..RelayConfig::to(target)
        };
        let relay = {
            let _entered = runtime.enter();
            Relay::start(config).expect("a relay starts")
        };
        Cable { relay, runtime }
    }

    pub(crate) fn switch(&self, switch: impl FnOnce(&Relay)) {
        let _entered = self.runtime.enter();
        switch(&self.relay);
    }
}
