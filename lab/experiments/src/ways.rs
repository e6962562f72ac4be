//! Two ways to the same origin over links of the same kind: direct, and through a pair.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use refrain_gateway::{
    loopback::{Keys, Running},
    status::{Peer, Status},
};
use refrain_relay::{LinkConfig, Relay, RelayConfig};
use tokio::runtime::Runtime;

use crate::pair::serve;

/// An origin and both ways to it, until dropped.
pub(crate) struct Ways {
    /// Where clients connect to go over the link alone.
    pub direct: SocketAddr,
    /// Where they connect to go through the pair, and over the link between its ends.
    pub pair: SocketAddr,
    near: Running,
    _far: Running,
    _relays: [Relay; 2],
    _runtime: Runtime,
}

impl Ways {
    /// Serves `objects` behind two links of the same kind.
    pub(crate) fn start(objects: Vec<Vec<u8>>, link: &LinkConfig) -> anyhow::Result<Ways> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let origin = serve(Arc::new(objects))?;
        let keys = Keys::new()?;
        let far = keys.far(&[])?;
        let relay_to = |target| {
            let mut config = RelayConfig::to(target);
            config.link = link.clone();
            Relay::start(config)
        };
        let _inside = runtime.enter();
        let relays = [relay_to(origin)?, relay_to(far.gateway.listening()[0])?];
        drop(_inside);
        let forward = format!("127.0.0.1:0={origin}");
        let near = keys.near(relays[1].address(), &["--forward", &forward])?;
        let ways = Ways {
            direct: relays[0].address(),
            pair: near.gateway.listening()[0],
            near,
            _far: far,
            _relays: relays,
            _runtime: runtime,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while ways.peer().lanes < 4 {
            ensure!(Instant::now() < deadline, "the gateways did not meet");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(ways)
    }

    /// How the near end sees the link.
    pub(crate) fn peer(&self) -> Peer {
        Status::of(&self.near.gateway).peers.remove(0)
    }
}

/// The median of some durations.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
