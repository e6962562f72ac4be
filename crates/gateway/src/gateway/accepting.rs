//! Takes lanes from the peers of a far end, and finds the links that they belong to.

use std::{mem::discriminant, net::SocketAddr, sync::Arc, time::Duration};

use refrain_admission::Visit;
use refrain_proto::{Fault, LaneFault, LinkFault, hello::Hello, link::LaneRefused, planted::Bug};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout},
};

use super::{
    Gateway,
    peer::{CHECKS_MAX, Peer},
};
use crate::{
    acceptor::Acceptor,
    config::Config,
    descriptors::UNPROVEN_LANES_MAX,
    greeting,
    lane::{self, LaneEnd},
    link::{LaneHandle, SharedLink},
    tls::TlsError,
    wire::LaneStream,
};

/// Links of one peer, those included that wait for their lanes to come back.
const LINKS_PER_PEER_MAX: usize = 4;

/// How often links without lanes are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Why a lane has no link.
#[derive(Debug, thiserror::Error)]
enum LinkRefused {
    /// The link does not take it.
    #[error("cannot accept a lane of {peer}: {refused}{}", limit(*refused, *lanes_max))]
    Lane {
        peer: String,
        refused: LaneRefused,
        lanes_max: usize,
    },
    /// The peer has as many links as it may have, all with lanes.
    #[error("{peer} already has {LINKS_PER_PEER_MAX} links (does each site have its own key?)")]
    TooManyLinks { peer: String },
    /// The peer's share of the memory is taken.
    #[error(
        "the far end has no memory for another link of {peer}, which already has {links}: \
         raise its --memory or lower its --cache-size"
    )]
    NoMemory { peer: String, links: usize },
}

/// The bound on lanes, where that is why.
fn limit(refused: LaneRefused, lanes_max: usize) -> String {
    match refused {
        LaneRefused::TooMany => {
            format!(
                " (the far end takes at most {lanes_max} per link: raise its --memory, or its --lanes-max)"
            )
        }
        _ => String::new(),
    }
}

impl Gateway {
    /// Takes the lanes of a listener.
    pub(crate) async fn accept(self: Arc<Self>, (listener, address): (TcpListener, SocketAddr)) {
        let acceptor = Acceptor::new(listener, address, &self.descriptors, UNPROVEN_LANES_MAX);
        loop {
            let (tcp, visit, ()) = acceptor.accept(|_| Some(())).await;
            let gateway = Arc::clone(&self);
            tokio::spawn(async move {
                let begun = tokio::select! {
                    () = visit.displaced() => return,
                    begun = gateway.begin_lane(tcp, &visit) => begun,
                };
                match begun {
                    Ok(Some(lane)) => lane.run(&gateway).await,
                    Ok(None) => {}
                    Err(error) => {
                        let kind = discriminant(&error);
                        gateway.unknown_peers.add(kind, error.to_string());
                    }
                }
            });
        }
    }

    /// Forgets links that are over, and those that were without lanes for too long.
    pub(super) async fn sweep(self: Arc<Self>) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let keep = self.policy.load().timeouts.keep_link;
            for peer in self.lock_peers().values() {
                peer.lock_links().retain(|link| {
                    let gone_for = link.lanes_gone_at().map(|at| at.elapsed());
                    let expired = gone_for.is_some_and(|time| time > keep);
                    let unused = gone_for.is_some_and(|time| time > SWEEP_INTERVAL)
                        && link.with(|link, _| link.was_never_used());
                    link.fault().is_none() && !expired && !unused
                });
            }
        }
    }

    /// Proves who connects, reads its hello, and finds its link.
    async fn begin_lane(
        &self,
        tcp: TcpStream,
        visit: &Visit,
    ) -> Result<Option<BegunLane>, TlsError> {
        let within = self.policy.load().timeouts.connect;
        let address = visit.address();
        let Config {
            timeouts,
            congestion,
            ..
        } = &self.config;
        lane::prepare(&tcp, timeouts.dead_after, congestion).map_err(|source| TlsError::Io {
            peer: address.to_string(),
            source,
        })?;
        let (mut stream, key) = self.tls.accept(tcp, address, within).await?;
        visit.prove();
        let peer = self.peer(key);
        let label = peer.label();
        // Without its port, which is another at each try.
        let host = address.ip();
        let greeting = timeout(within, greeting::read_hello(&mut stream)).await;
        let (hello, rest) = match greeting {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(error)) => {
                let error = format!("the peer at {host} ({label}): {error}");
                peer.note_error(error, false);
                // A peer of another version is told ours, so that both ends' logs name both.
                greeting::answer_and_close(&mut stream, None).await;
                return Ok(None);
            }
            Err(_) => {
                let error = format!("the peer at {host} ({label}) sent no hello within {within:?}");
                peer.note_error(error, false);
                return Ok(None);
            }
        };
        if hello.is_check {
            self.answer_check(&peer, &mut stream, &hello, rest).await;
            return Ok(None);
        }
        let lane = match self.link_for(&peer, &hello) {
            Ok(Some(lane)) => lane,
            Ok(None) => {
                tracing::debug!(peer = %label, %address, "the lane's link is gone: the peer begins a new one");
                greeting::answer_and_close(&mut stream, Some(&hello)).await;
                return Ok(None);
            }
            Err(reason) => {
                let reason = reason.to_string();
                greeting::refuse_and_close(&mut stream, &reason).await;
                peer.note_error(reason, false);
                return Ok(None);
            }
        };
        // A reload may have removed the key since the handshake.
        if !self.keys.load().contains(&key) {
            lane.link.with(|link, _| link.revoke());
        }
        peer.trouble.clear();
        Ok(Some(BegunLane {
            lane,
            stream,
            rest,
            address,
        }))
    }

    async fn answer_check(
        &self,
        peer: &Peer,
        stream: &mut LaneStream,
        hello: &Hello,
        rest: Vec<u8>,
    ) {
        let Ok(_permit) = peer.checks.try_acquire() else {
            let reason = format!("{CHECKS_MAX} checks run already");
            return greeting::refuse_and_close(stream, &reason).await;
        };
        let label = peer.label();
        tracing::info!(peer = %label, "`refrain check` of the peer reached this end");
        let pace = self.pace.as_deref();
        if let Err(error) = greeting::answer_check(stream, hello, rest, pace).await {
            tracing::debug!(peer = %label, "a check ended: {error}");
        }
    }

    /// The link that a hello belongs to, a new one if there is none. `None` if the hello names
    /// a link that this end had before it restarted, or has forgotten.
    fn link_for(&self, peer: &Peer, hello: &Hello) -> Result<Option<LaneHandle>, LinkRefused> {
        let any = |peer: &&Arc<Peer>| !peer.links().is_empty();
        let first = match Bug::LinksOfAllPeers.is_planted() {
            true => self.lock_peers().values().find(any).cloned(),
            false => None,
        };
        let peer = first.as_deref().unwrap_or(peer);
        let label = || peer.label();
        let refuse = |link: &SharedLink, refused| LinkRefused::Lane {
            peer: label(),
            refused,
            lanes_max: link.with(|link, _| link.lanes_max()),
        };
        let mut links = peer.lock_links();
        let known = links
            .iter()
            .position(|link| link.with(|link, _| link.peer_instance()) == Some(hello.instance));
        if let Some(index) = known {
            let link = Arc::clone(&links[index]);
            match link.begin_lane(|link, now| link.accept_lane(now, hello)) {
                Ok(lane) => return Ok(Some(lane)),
                Err(LaneRefused::OtherInstance) => {
                    links.remove(index);
                }
                Err(refused) => return Err(refuse(&link, refused)),
            }
        }
        if hello.peer_instance.is_some() {
            return Ok(None);
        }
        // Links of the peer's earlier lives give way to its present one.
        while links.len() >= LINKS_PER_PEER_MAX {
            if !forget_an_idle_link(&mut links) {
                return Err(LinkRefused::TooManyLinks { peer: label() });
            }
        }
        let memory = loop {
            if let Some(memory) = self.budget.link(peer.key, &self.config) {
                break memory;
            }
            // Its own links alone give way: another peer's are none of its business.
            if forget_an_idle_link(&mut links) {
                continue;
            }
            if let Some(memory) = self.budget.further_link(peer.key, &self.config) {
                break memory;
            }
            let (peer, links) = (label(), links.len());
            return Err(LinkRefused::NoMemory { peer, links });
        };
        let link = self.begin_link(peer, memory);
        let begun = link.begin_lane(|link, now| link.accept_lane(now, hello));
        let lane = begun.map_err(|refused| refuse(&link, refused))?;
        links.push(link);
        Ok(Some(lane))
    }
}

/// A lane that may carry flows from now on.
struct BegunLane {
    lane: LaneHandle,
    stream: LaneStream,
    /// What came behind the hello.
    rest: Vec<u8>,
    address: SocketAddr,
}

impl BegunLane {
    async fn run(self, gateway: &Gateway) {
        let LaneHandle { link, id, .. } = &self.lane;
        let (peer, address) = (gateway.peer(link.peer), self.address);
        let label = link.label();
        tracing::debug!(peer = %label, %address, lane = id.0, "a lane came up");
        let received = link.with(|link, now| link.receive(now, *id, &self.rest));
        let end = match received {
            Err(Fault::Lane(fault)) => LaneEnd::Lane(fault),
            _ => {
                let (counts, pace) = (self.stream.get_ref().0.counts(), gateway.pace.clone());
                lane::run(&self.lane, self.stream, counts, pace).await
            }
        };
        peer.remember_effort(link);
        // A reload may have given it another name.
        let label = peer.label();
        match end {
            // That a key was removed is logged once, with its peer's name.
            LaneEnd::Io(_)
            | LaneEnd::Lane(LaneFault::Spare)
            | LaneEnd::Link(LinkFault::Revoked) => {
                tracing::debug!(peer = %label, %address, lane = id.0, "a lane ended: {end}")
            }
            LaneEnd::Damaged(_) => {
                let times = link.damaged_lanes();
                let error = format!(
                    "a connection from {label} at {address} ended: {end} ({times} so far on this link)"
                );
                peer.note_error(error, false);
            }
            LaneEnd::Lane(_) | LaneEnd::Link(_) | LaneEnd::Refused(_) => {
                // Without its port, which is another for each lane.
                let host = address.ip();
                let error = format!("a connection from {label} at {host} ended: {end}");
                peer.note_error(error, false);
            }
        }
        if link.fault().is_some() {
            let mut links = peer.lock_links();
            links.retain(|other| !Arc::ptr_eq(other, link));
        }
    }
}

/// Forgets the link without lanes that is worth least; says whether there was one.
fn forget_an_idle_link(links: &mut Vec<Arc<SharedLink>>) -> bool {
    let idle = links.iter().enumerate();
    let idle = idle.filter_map(|(index, link)| Some((worth(link)?, index)));
    let Some((_, index)) = idle.min() else {
        return false;
    };
    links.remove(index);
    true
}

/// What a link without lanes is worth keeping; `None` while it has some. Those that nothing is in
/// are worth least; then those that are alone for longest.
fn worth(link: &SharedLink) -> Option<(bool, Instant)> {
    let gone_at = link.lanes_gone_at()?;
    let has_caches = link.with(|link, _| link.fault().is_none() && !link.was_never_used());
    Some((has_caches, gone_at))
}
