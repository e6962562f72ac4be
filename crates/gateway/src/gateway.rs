//! A gateway: its peers with their links. A near end dials its peers, a far end takes their lanes; all
//! else is the same.

mod accepting;
mod choice;
mod dial;
mod dial_plan;
mod dialler;
mod peer;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use refrain_proto::{Link, LinkConfig};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    config::Config,
    descriptors::Descriptors,
    held_flows::HeldFlows,
    history::History,
    intercept::{
        dns_names::DnsNames,
        gate::{self, Gate},
        server_name::NAME_TIMEOUT,
    },
    keys::{PeerKeys, PublicKey, SharedPeerKeys},
    last_error::Trouble,
    link::{SharedLink, Totals},
    lookups::Lookups,
    memory::{MemoryBudget, Reservation},
    offered::{self, Sites, Targets},
    opening,
    options::{Role, TRANSPARENT},
    origin_tls::OriginSessions,
    pace::Pace,
    policy::{OwnAddresses, Policy, SharedPolicy},
    random::random_instance,
    rate_limited_log::RateLimitedLog,
    refusal::Refusal,
    refused_targets::RefusedTargets,
    target::Target,
    tls::{ClientTls, ServerTls},
};
pub(crate) use choice::Turn;
use choice::{Prospect, candidates, choose, turns};
pub use dial::{ConnectError, connect};
use dialler::Dialer;
pub(crate) use peer::Peer;

/// How often a near end without a gate shows that it works. Its watchdog kills it if it does not for two seconds.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// No peer was reached in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "no link to the peer within {within:?}: {}",
    reason.as_deref().unwrap_or("the reason is unknown")
)]
pub struct NotPaired {
    within: Duration,
    reason: Option<String>,
}

/// A near or a far gateway.
pub struct Gateway {
    pub(crate) config: Config,
    /// Rules and time-outs of the moment.
    pub(crate) policy: Arc<SharedPolicy>,
    pub(crate) budget: MemoryBudget,
    pub(crate) history: Option<Arc<History>>,
    /// What all links carried, those included that are forgotten.
    pub(crate) totals: Arc<Totals>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) started: Instant,
    /// The peers' keys, and what logs and tables call them.
    keys: Arc<SharedPeerKeys>,
    /// Each peer that was asked for or has connected.
    peers: Mutex<BTreeMap<PublicKey, Arc<Peer>>>,
    /// Warnings of connections that prove no accepted key, which anybody can cause again and again.
    unknown_peers: RateLimitedLog,
    pace: Option<Arc<Pace>>,
    tls: ServerTls,
    listening: Vec<SocketAddr>,
    lookups: Lookups,
    /// The gate of the firewall's table that redirects connections here.
    pub(crate) gate: Gate,
    /// Flows of connections that the firewall holds until their targets have answered.
    pub(crate) held: HeldFlows,
    /// Names of servers that clients got from DNS.
    pub(crate) dns_names: DnsNames,
    /// Clients and names whose TLS is not opened for a while.
    pub(crate) opening: opening::Memory,
    /// The last connection from a client's address whose answers took another way.
    pub(crate) answers_elsewhere: Arc<Trouble>,
    /// Targets of redirected connections that go direct for a while.
    pub(crate) refused_targets: RefusedTargets,
    /// Each connection that goes to its server without the link has a clone.
    pub(crate) without_link: Arc<()>,
    /// Changes with all that decides which peer a new flow may go to.
    changes: watch::Sender<()>,
}

impl Gateway {
    /// A gateway that listens there.
    pub(crate) fn new(
        config: Config,
        history: Option<Arc<History>>,
        listening: Vec<SocketAddr>,
    ) -> Arc<Gateway> {
        let own = OwnAddresses::new(listening.iter().copied(), &config);
        let keys = Arc::new(SharedPeerKeys::new(config.peers.clone()));
        Arc::new(Gateway {
            policy: Arc::new(SharedPolicy::new(Policy::new(&config, own))),
            budget: MemoryBudget::new(config.memory.0, config.peers.len()),
            history,
            totals: Arc::default(),
            // The admin page too.
            descriptors: Descriptors::of_process(1 + listening.len()),
            started: Instant::now(),
            peers: Mutex::default(),
            unknown_peers: RateLimitedLog::new(|line| tracing::warn!("{line}")),
            pace: config.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ServerTls::new(&config.key, Arc::clone(&keys)),
            listening,
            lookups: Lookups::of_system(),
            gate: Gate::default(),
            held: HeldFlows::default(),
            dns_names: DnsNames::default(),
            opening: opening::Memory::default(),
            answers_elsewhere: Arc::default(),
            refused_targets: RefusedTargets::default(),
            without_link: Arc::default(),
            changes: watch::Sender::new(()),
            keys,
            config,
        })
    }

    /// Has `tasks` dial the peers that are to be dialled, and forget links that are over.
    pub(crate) fn keep(self: &Arc<Gateway>, tasks: &mut JoinSet<()>) {
        for dial in &self.config.dials {
            tasks.spawn(Dialer::new(Arc::clone(self), self.peer(dial.key)).run());
        }
        let ways_in = self.config.ways_in.iter().zip(self.ways_in());
        let redirected = ways_in.filter(|(way_in, _)| *way_in.option == TRANSPARENT);
        let ports: BTreeSet<u16> = redirected.map(|(_, address)| address.port()).collect();
        if self.config.role == Role::Near && ports.is_empty() {
            // Without a gate, nothing else shows that this process works.
            let gateway = Arc::clone(self);
            tasks.spawn(async move {
                loop {
                    sleep(PROGRESS_INTERVAL).await;
                    gateway.gate.count_progress();
                }
            });
        }
        for port in ports {
            let gateway = Arc::clone(self);
            tasks.spawn(async move {
                let takes_flows = || gateway.takes_flows();
                let takes_forwarded = gateway.config.takes_forwarded();
                gate::keep(&gateway.gate, takes_flows, takes_forwarded, port).await;
            });
        }
        if self.config.role == Role::Far {
            tracing::info!(
                "targets that peers can reach: {}",
                self.config.allow.describe()
            );
            tasks.spawn(Arc::clone(self).sweep());
        }
    }

    /// Where lanes are taken, and then where applications connect, in the order of the options.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The addresses of the listeners for applications, in the order of the configuration's.
    pub(crate) fn ways_in(&self) -> &[SocketAddr] {
        &self.listening[self.config.listen.len()..]
    }

    /// Changes as long as a near end works, and its listener for redirected connections, if it has one. A far end that
    /// hangs is noticed by its near ends.
    pub fn progress(&self) -> Option<watch::Receiver<u64>> {
        (self.config.role == Role::Near).then(|| self.gate.progress())
    }

    /// Ends interception: waits until the firewall redirects no further connections here.
    pub async fn stop_interception(&self) {
        let mut rules = self.policy.load().intercept.clone().into_iter();
        let spare = match rules.any(|rule| rule.has_name()) {
            true => NAME_TIMEOUT,
            false => Duration::ZERO,
        };
        self.gate.close(spare).await;
    }

    /// Waits until a link to any peer is up.
    pub async fn wait_for_peer(&self, within: Duration) -> Result<(), NotPaired> {
        let mut changes = self.changes.subscribe();
        // The sender lives as long as `self`.
        let up = async { while !self.is_up() && changes.changed().await.is_ok() {} };
        timeout(within, up).await.map_err(|_| NotPaired {
            within,
            reason: self
                .peers()
                .into_iter()
                .find_map(|(peer, _)| Some(peer.trouble.last()?.text)),
        })
    }

    /// Waits until all that is to be kept is on disk: the gateway ends. Blocks.
    pub fn settle(&self) {
        if let Some(history) = &self.history {
            history.settle();
        }
    }

    /// Takes rules, time-outs and the peers' names from `config`, a far end its peers' keys too; the
    /// rest needs a restart. Links of peers whose keys were removed end at once.
    pub fn reload(&self, config: &Config) {
        if self.config.dials == config.dials {
            let before = self.keys.load();
            self.keys.replace(config.peers.clone());
            self.forget_removed(&before);
        }
        let own = self.policy.load().own.clone();
        self.policy.replace(Policy::new(config, own));
        self.opening.clear();
    }

    /// Ends the links of peers whose keys are no longer accepted, and forgets these peers. `before` has their names.
    fn forget_removed(&self, before: &PeerKeys) {
        let keys = self.keys.load();
        self.lock_peers().retain(|key, peer| {
            let is_accepted = keys.contains(key);
            if !is_accepted {
                if peer.links().iter().any(|link| link.is_up()) {
                    tracing::info!(peer = %before.label(key), "closing the peer's connections: its key was removed");
                }
                for link in peer.links() {
                    link.with(|link, _| link.revoke());
                }
            }
            is_accepted
        });
    }

    /// The name of a peer, or the short form of its key.
    pub(crate) fn label(&self, peer: &PublicKey) -> String {
        self.keys.load().label(peer)
    }

    /// Its peers in their order.
    pub(crate) fn peers(&self) -> Vec<(Arc<Peer>, Turn)> {
        let peers = self.order().into_iter().map(|key| self.peer(key));
        let peers: Vec<_> = peers.collect();
        let turns: Vec<_> = turns(self.prospects(&peers, Instant::now(), false)).collect();
        peers.into_iter().zip(turns).collect()
    }

    /// Whether a link to any peer is up.
    pub(crate) fn is_up(&self) -> bool {
        self.links().iter().any(|link| link.is_up())
    }

    /// Whether a link to any peer is up and takes new flows.
    fn takes_flows(&self) -> bool {
        let peers = self.order().into_iter().map(|key| self.peer(key));
        let peers: Vec<_> = peers.collect();
        let mut prospects = self.prospects(&peers, Instant::now(), false);
        prospects.any(|prospect| matches!(prospect, Prospect::Up(_)))
    }

    /// Takes no new flows, and waits until the open ones have ended and the peers have their last
    /// bytes, or `within` has passed. Says how many flows were left.
    pub async fn drain(&self, within: Duration) -> usize {
        let deadline = Instant::now() + within;
        loop {
            let (mut flows, mut blocks) = (0, 0);
            for link in self.links() {
                link.drain();
                link.with(|link, _| {
                    flows += link.flows_open();
                    // A flow may be over at this end while its last bytes wait in a socket, and
                    // would die with it. Without a lane, nothing is on its way.
                    blocks += match link.lanes_up() {
                        0 => 0,
                        _ => link.blocks_outstanding(),
                    };
                });
            }
            // Clones of others.
            let without_link = Arc::strong_count(&self.without_link) - 1;
            if flows + blocks + without_link == 0 || Instant::now() >= deadline {
                return flows + without_link;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The link for a new flow to `target`: to the peer that its listener names, or to the first that
    /// may have it and is up. While any may still be reached, this waits; it fails as soon as all are
    /// known to be gone now.
    pub(crate) async fn link(
        &self,
        target: &Target,
        named: Option<PublicKey>,
    ) -> Result<Arc<SharedLink>, Refusal> {
        let came = Instant::now();
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let routed = self.policy.load().routes_of(target);
            let peers = candidates(&self.order(), named, &routed).into_iter();
            let peers: Vec<_> = peers.map(|key| self.peer(key)).collect();
            let is_only = peers.len() == 1;
            let until = match choose(self.prospects(&peers, came, is_only)) {
                Prospect::Up(link) | Prospect::Leaving(link) => return Ok(link),
                Prospect::Gone => return Err(Refusal::LinkDown),
                Prospect::Awaited(until) => until,
            };
            peers.iter().for_each(|peer| peer.want_dial());
            match until {
                // All are looked at again, whichever it was.
                Some(until) => drop(timeout_at(until, changes.changed()).await),
                None => drop(changes.changed().await),
            }
        }
    }

    /// How these peers stand for a flow that came then, which may have no other than one (`is_only`).
    fn prospects(
        &self,
        peers: &[Arc<Peer>],
        came: Instant,
        is_only: bool,
    ) -> impl Iterator<Item = Prospect<Arc<SharedLink>>> {
        let dead_after = self.config.timeouts.dead_after;
        let peers = peers.iter();
        peers.map(move |peer| peer.prospect(came, self.started, dead_after, is_only))
    }

    /// The peers that new flows may go to, in order.
    fn order(&self) -> Vec<PublicKey> {
        match self.config.role {
            Role::Far => self.keys.load().iter().collect(),
            _ => self.config.dials.iter().map(|dial| dial.key).collect(),
        }
    }

    fn links(&self) -> Vec<Arc<SharedLink>> {
        let peers = self.lock_peers();
        peers.values().flat_map(|peer| peer.links()).collect()
    }

    fn lock_peers(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Arc<Peer>>> {
        self.peers.lock().expect("held for a moment")
    }

    /// What is known of the peer.
    fn peer(&self, key: PublicKey) -> Arc<Peer> {
        let new = || {
            let has_others = self.keys.load().len() > 1;
            let targets = Targets {
                policy: Arc::clone(&self.policy),
                lookups: self.lookups.of_peer(),
                descriptors: self.descriptors.of_peer(has_others),
                refusals: RateLimitedLog::new(|line| tracing::info!("{line}")),
                answers: Arc::default(),
                answers_elsewhere: Arc::clone(&self.answers_elsewhere),
                origin_sessions: OriginSessions::default(),
                sites: Sites::default(),
            };
            let mut dials = self.config.dials.iter();
            let dial = dials.find(|dial| dial.key == key).map(|dial| {
                let tls = ClientTls::new(&self.config.key, key);
                (dial.address.clone(), tls, self.changes.clone())
            });
            Arc::new(Peer::new(key, Arc::clone(&self.keys), targets, dial))
        };
        Arc::clone(self.lock_peers().entry(key).or_insert_with(new))
    }

    /// A new link, which serves the flows that the peer opens.
    fn begin_link(
        &self,
        peer: &Peer,
        (mut config, memory): (LinkConfig, Reservation),
    ) -> Arc<SharedLink> {
        config.first_rung = peer.effort_rung();
        let role = match self.config.role {
            Role::Far => refrain_proto::Role::Far,
            _ => refrain_proto::Role::Near,
        };
        let realms = self.config.history.as_ref().map(|options| &options.realms);
        let realm = realms.and_then(|realms| realms.get(&peer.key));
        let (link, offers) = SharedLink::start(
            peer.key,
            Arc::clone(&self.keys),
            Link::new(role, random_instance(), config),
            memory,
            self.history.as_deref().zip(realm.map(String::as_str)),
            Arc::clone(&self.totals),
            self.changes.clone(),
        );
        let targets = peer.targets.clone();
        tokio::spawn(offered::serve(Arc::clone(&link), offers, targets));
        link
    }
}
