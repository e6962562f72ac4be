//! The ways from the client to the origin, and all that is between the two on each of them.

use std::net::SocketAddr;

use anyhow::Context;
use refrain_gateway::{
    loopback::{Keys, Running},
    status::{Peer, Status},
};
use refrain_http_ranges::{Host, ProxyChoice, RemoteOptions};
use serde::Serialize;

use super::link::{Link, SimulatedLink};

/// How objects get from the origin to the client.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    Direct,
    /// The origin compresses each object, the client decompresses it.
    Zstd,
    /// Through two gateways with the link between them.
    Pair,
}

impl Way {
    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Zstd => "zstd -3 per object",
            Self::Pair => "pair",
        }
    }
}

/// What all ways have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub origin: SocketAddr,
    /// `None` is loopback.
    pub link: Option<Link>,
    /// Objects that are fetched at the same time, each on a connection.
    pub flows: u8,
    /// Of the pair.
    pub effort: &'a str,
}

/// A client, and all that is between it and the origin, until dropped.
pub(super) struct Route {
    way: Way,
    client: Host,
    // The gateways end before the link between them.
    pair: Option<Pair>,
    link: Option<SimulatedLink>,
}

struct Pair {
    near: Running,
    _far: Running,
}

impl Route {
    /// Starts what `way` needs. A pair is up when this returns, as its lanes are long-lived.
    pub(super) fn start(way: Way, setting: Setting<'_>) -> anyhow::Result<Self> {
        let origin = setting.origin;
        let simulate = |target: SocketAddr| {
            let link = setting.link;
            link.map(|link| SimulatedLink::before(target, link))
                .transpose()
        };
        let (address, pair, link) = match way {
            Way::Direct | Way::Zstd => {
                let link = simulate(origin)?;
                (entrance(link.as_ref(), origin), None, link)
            }
            Way::Pair => {
                let keys = Keys::new()?;
                let far = keys.far(&["--effort", setting.effort])?;
                let lanes = far.gateway.listening()[0];
                let link = simulate(lanes)?;
                let forward = format!("127.0.0.1:0={origin}");
                let near = keys.near(
                    entrance(link.as_ref(), lanes),
                    &["--forward", &forward, "--effort", setting.effort],
                )?;
                near.wait_until_up()?;
                let forward = near.gateway.listening().first().copied();
                let address = forward.context("the forward has no address")?;
                (address, Some(Pair { near, _far: far }), link)
            }
        };
        let options = RemoteOptions {
            connections: setting.flows.into(),
            proxy: ProxyChoice::Direct,
            ..RemoteOptions::default()
        };
        Ok(Self {
            way,
            client: Host::new(&format!("http://{address}/"), options)?,
            pair,
            link,
        })
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Fetches an object.
    pub(super) fn fetch(&self, index: usize) -> anyhow::Result<Vec<u8>> {
        let path = match self.way {
            Way::Zstd => format!("zstd/{index}"),
            Way::Direct | Way::Pair => index.to_string(),
        };
        let body = self.client.get(&path, u64::MAX)?;
        let body = body.context("not found at the origin")?;
        match self.way {
            Way::Zstd => zstd::decode_all(&body[..]).context("cannot decompress it"),
            Way::Direct | Way::Pair => Ok(body),
        }
    }

    /// Bytes of bodies that the client has received so far, as they were sent.
    pub(super) fn received_bytes(&self) -> u64 {
        self.client.counters().body_bytes
    }

    /// Bytes on the simulated link so far, both ways.
    pub(super) fn link_bytes(&self) -> Option<u64> {
        self.link.as_ref().map(SimulatedLink::bytes)
    }

    /// The near gateway's counters of its link.
    pub(super) fn peer(&self) -> Option<Peer> {
        let pair = self.pair.as_ref()?;
        Status::of(&pair.near.gateway).peers.into_iter().next()
    }
}

/// Where connections to `target` over the link begin.
fn entrance(link: Option<&SimulatedLink>, target: SocketAddr) -> SocketAddr {
    link.map_or(target, SimulatedLink::address)
}
