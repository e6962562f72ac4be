//! A gateway: its listeners, and its peers with their links. A near end dials its peers, a far end
//! takes their lanes; all else is the same.

mod accepting;
mod choice;
mod dial;
mod dial_plan;
mod dialler;
mod peer;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use refrain_codec::simd::InstructionSet;
use refrain_proto::{Link, LinkConfig, Mode};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::{Config, HistoryOptions},
    descriptors::Descriptors,
    history::{History, HistoryError, HistoryReport},
    keys::{PublicKey, SharedPeerKeys},
    last_error::LastError,
    link::{Counted, SharedLink, Totals},
    listeners::{self, BindError, BoxFuture, Links, Listener, Listening},
    lookups::Lookups,
    memory::{MemoryBudget, Reservation},
    offered::{self, Targets},
    options::Role,
    pace::Pace,
    policy::{OwnAddresses, SharedPolicy},
    random::random_instance,
    refusal::Refusal,
    target::Target,
    tls::{ClientTls, ServerTls},
};
use accepting::{UnknownPeerLog, accept, sweep};
use choice::{Choice, candidates, choose};
pub use dial::{ConnectError, connect};
use dialler::Dialer;
use peer::Peer;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The store of what was received does not open.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// No peer was reached in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "no link to the peer within {within:?}: {}",
    reason.as_deref().unwrap_or("no reason is known")
)]
pub struct NotPaired {
    within: Duration,
    reason: Option<String>,
}

/// The tasks of a gateway; dropped, they end.
#[derive(Debug, Default)]
pub struct Tasks {
    /// What takes new connections: ends when the gateway drains.
    pub listeners: JoinSet<()>,
    /// What keeps the gateway going: ends with it.
    pub services: JoinSet<()>,
}

/// A near or a far gateway.
pub struct Gateway {
    config: Config,
    policy: Arc<SharedPolicy>,
    /// The peers' keys, and what logs and tables call them.
    keys: Arc<SharedPeerKeys>,
    /// Each peer that was dialled or has dialled.
    peers: Mutex<BTreeMap<PublicKey, Arc<Peer>>>,
    unknown_peers: UnknownPeerLog,
    budget: MemoryBudget,
    pace: Option<Arc<Pace>>,
    tls: ServerTls,
    started: Instant,
    /// Lanes first, then ways in, in the order of their options.
    listening: Vec<Listening>,
    history: Option<Arc<History>>,
    totals: Arc<Totals>,
    descriptors: Arc<Descriptors>,
    lookups: Lookups,
    /// Changes with all that decides which peer a new flow may go to.
    changes: watch::Sender<()>,
}

/// A peer and its link, if it has one.
pub struct PeerReport {
    /// The peer's key.
    pub key: PublicKey,
    /// Its name, or at a near end its address.
    pub name: Option<String>,
    /// Where a near end finds it.
    pub address: Option<String>,
    /// The link.
    pub link: Option<Arc<SharedLink>>,
    /// The last thing that went wrong, until it goes well again.
    pub last_error: Option<LastError>,
}

impl Gateway {
    /// Binds the listeners and starts to dial. They run in `tasks`.
    pub async fn start(config: Config, tasks: &mut Tasks) -> Result<Arc<Gateway>, StartError> {
        let bind = |&address| listeners::bind(address, "listen");
        let for_lanes = config.listen.iter().map(bind);
        let for_lanes = for_lanes.collect::<Result<Vec<_>, _>>()?;
        let mut for_applications = Vec::new();
        for mut way_in in config.ways_in.clone() {
            let (socket, address) = listeners::bind(way_in.listen, way_in.option.key)?;
            way_in.listen = address;
            for_applications.push((socket, way_in));
        }
        let history = match &config.history {
            Some(options) => Some(History::open(options).await?),
            None => None,
        };
        let lanes = for_lanes
            .iter()
            .map(|(_, address)| Listening::lanes(*address));
        let ways_in = for_applications.iter();
        let ways_in = ways_in.map(|(_, way_in)| Listening::of(way_in));
        let listening: Vec<Listening> = lanes.chain(ways_in).collect();
        let own = listening.iter().map(|listening| listening.address);
        let own = OwnAddresses::new(own, &config);
        let keys = Arc::new(SharedPeerKeys::new(config.peers.clone()));
        let gateway = Arc::new(Gateway {
            policy: Arc::new(SharedPolicy::new(&config, own)),
            peers: Mutex::default(),
            unknown_peers: UnknownPeerLog::new(),
            budget: MemoryBudget::new(config.memory.0, config.peers.len()),
            pace: config.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ServerTls::new(&config.key, Arc::clone(&keys)),
            started: Instant::now(),
            // The admin page too.
            descriptors: Descriptors::of_process(1 + listening.len()),
            listening,
            history,
            totals: Arc::default(),
            lookups: Lookups::of_system(),
            changes: watch::Sender::new(()),
            keys,
            config,
        });
        for (socket, way_in) in for_applications {
            let listener = Listener::new(
                way_in,
                Arc::clone(&gateway) as Arc<dyn Links>,
                Arc::clone(&gateway.policy),
                Arc::clone(&gateway.descriptors),
            );
            tasks.listeners.spawn(listener.serve(socket));
        }
        for dial in &gateway.config.dials {
            let dialer = Dialer::new(Arc::clone(&gateway), gateway.peer(dial.key));
            tasks.services.spawn(dialer.run());
        }
        if gateway.config.role == Role::Far {
            tracing::info!("allows its peers {}", gateway.config.allow.describe());
            tasks.services.spawn(sweep(Arc::clone(&gateway)));
        }
        for listener in for_lanes {
            tasks
                .listeners
                .spawn(accept(Arc::clone(&gateway), listener));
        }
        Ok(gateway)
    }

    /// Where lanes are taken, and then where applications connect, in the order of the options.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Waits until a link to any peer is up.
    pub async fn wait_for_peer(&self, within: Duration) -> Result<(), NotPaired> {
        let mut changes = self.changes.subscribe();
        let up = async {
            let is_up = |report: PeerReport| report.link.is_some_and(|link| link.is_up());
            // The sender lives as long as `self`.
            while !self.peers().into_iter().any(is_up) && changes.changed().await.is_ok() {}
        };
        timeout(within, up).await.map_err(|_| NotPaired {
            within,
            reason: self
                .peers()
                .into_iter()
                .find_map(|report| Some(report.last_error?.text)),
        })
    }

    /// Waits until all that is to be kept is on disk: the gateway ends. Blocks.
    pub fn settle(&self) {
        if let Some(history) = &self.history {
            history.settle();
        }
    }

    /// Takes rules, time-outs and the peers' names from `config`, a far end its peers' keys too; the
    /// rest needs a restart.
    pub fn reload(&self, config: &Config) {
        let dialled = |config: &Config| {
            let dials = config.dials.iter();
            dials
                .map(|dial| (dial.key, dial.address.clone()))
                .collect::<Vec<_>>()
        };
        if dialled(config) == dialled(&self.config) {
            self.keys.replace(config.peers.clone());
        }
        self.policy.replace(config);
    }

    /// `near` or `far`.
    pub fn role(&self) -> &'static str {
        match self.config.role {
            Role::Far => "far",
            _ => "near",
        }
    }

    /// When it started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The instructions that its kernels use.
    pub fn kernels(&self) -> InstructionSet {
        self.config.matching.backend.instruction_set()
    }

    /// The bound on memory and what of it nobody has reserved, in bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        (self.config.memory.0, self.budget.free_bytes())
    }

    /// Which end finds what repeats.
    pub(crate) fn mode(&self) -> Mode {
        self.config.mode
    }

    /// What it keeps to predict from, if it does.
    pub(crate) fn history(&self) -> Option<HistoryReport> {
        self.history.as_ref().map(|history| history.report())
    }

    /// What all its links carried, those included that it has forgotten.
    pub(crate) fn counted(&self) -> Counted {
        self.totals.sum()
    }

    /// How it shares out the process's file descriptors.
    pub fn descriptors(&self) -> Arc<Descriptors> {
        Arc::clone(&self.descriptors)
    }

    /// Its peers, a row for each link; those that it dials in their order.
    pub fn peers(&self) -> Vec<PeerReport> {
        let keys = self.keys.load();
        let mut reports = Vec::new();
        for key in self.order(&keys) {
            let known = self
                .peers
                .lock()
                .expect("held for a moment")
                .get(&key)
                .cloned();
            let report = |link| PeerReport {
                key,
                name: keys.name(&key).map(str::to_owned),
                address: self.address(&key).map(Target::to_string),
                link,
                last_error: known.as_ref().and_then(|peer| peer.trouble.last()),
            };
            let links = known.as_ref().map_or_else(Vec::new, |peer| peer.links());
            match links.is_empty() {
                true => reports.push(report(None)),
                false => reports.extend(links.into_iter().map(|link| report(Some(link)))),
            }
        }
        reports
    }

    /// Takes no new flows, and waits until the open ones have ended and the peers have their last
    /// bytes, or `within` has passed. Says how many flows were left.
    pub async fn drain(&self, within: Duration) -> usize {
        let deadline = Instant::now() + within;
        loop {
            let (mut flows, mut blocks) = (0, 0);
            for link in self.peers().into_iter().filter_map(|peer| peer.link) {
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
            if flows + blocks == 0 || Instant::now() >= deadline {
                return flows;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn order(&self, keys: &crate::keys::PeerKeys) -> Vec<PublicKey> {
        match self.config.role {
            Role::Far => keys.iter().collect(),
            _ => self.config.dials.iter().map(|dial| dial.key).collect(),
        }
    }

    /// Where a near end finds the peer.
    fn address(&self, key: &PublicKey) -> Option<&Target> {
        let mut dials = self.config.dials.iter();
        dials
            .find(|dial| dial.key == *key)
            .map(|dial| &dial.address)
    }

    /// What is known of the peer.
    fn peer(&self, key: PublicKey) -> Arc<Peer> {
        let mut peers = self.peers.lock().expect("held for a moment");
        let new = || {
            let has_others = self.keys.load().len() > 1;
            let targets = Targets::new(
                Arc::clone(&self.policy),
                self.lookups.of_peer(),
                self.descriptors.of_peer(has_others),
            );
            let tls = ClientTls::new(&self.config.key, key);
            let dial = self.address(&key).map(|address| (address.to_string(), tls));
            Arc::new(Peer::new(key, targets, dial))
        };
        Arc::clone(peers.entry(key).or_insert_with(new))
    }

    fn label(&self, key: &PublicKey) -> String {
        self.keys.load().label(key)
    }

    /// Notes what went wrong with a peer's lanes. It is logged if it is news, unless it was
    /// `announced`: a peer that shuts down says so, and that it is gone then is no news.
    fn note_error(&self, peer: &Peer, error: String, announced: bool) {
        match peer.trouble.note(error.clone()) {
            true if announced => tracing::debug!(peer = %self.label(&peer.key), "{error}"),
            true => tracing::warn!(peer = %self.label(&peer.key), "{error}"),
            false => {}
        }
    }

    /// Memory for a further link of the peer, with as large a cache as its share has room for.
    fn memory_for(&self, peer: &Peer) -> Option<(LinkConfig, Reservation)> {
        let engine = self.config.history.as_ref().map(HistoryOptions::engine);
        self.budget.link(peer.key, &self.config, engine)
    }

    /// A new link, which serves the flows that the peer opens.
    fn begin_link(
        &self,
        peer: &Peer,
        (config, memory): (LinkConfig, Reservation),
    ) -> Arc<SharedLink> {
        let role = match self.config.role {
            Role::Far => refrain_proto::Role::Far,
            _ => refrain_proto::Role::Near,
        };
        let history = self.history.as_ref().zip(self.config.history.as_ref());
        let history = history.and_then(|(history, options)| {
            Some((Arc::clone(history), options.realms.get(&peer.key)?.clone()))
        });
        let (link, offers) = SharedLink::start(
            peer.key,
            Arc::clone(&self.keys),
            Link::new(role, random_instance(), config),
            memory,
            history,
            Arc::clone(&self.totals),
            self.changes.clone(),
        );
        tokio::spawn(offered::serve(
            Arc::clone(&link),
            offers,
            peer.targets.clone(),
        ));
        link
    }
}

impl Links for Gateway {
    fn link<'a>(
        &'a self,
        target: &'a Target,
        named: Option<PublicKey>,
    ) -> BoxFuture<'a, Result<Arc<SharedLink>, Refusal>> {
        Box::pin(async move {
            let came = Instant::now();
            let mut changes = self.changes.subscribe();
            loop {
                changes.mark_unchanged();
                let all = self.order(&self.keys.load());
                let routed = self.policy.load().routes_of(target);
                let peers: Vec<Arc<Peer>> = candidates(&all, named, &routed)
                    .into_iter()
                    .map(|key| self.peer(key))
                    .collect();
                let without_lanes = (self.started, self.config.timeouts.dead_after);
                let prospects = peers.iter().map(|peer| peer.prospect(came, without_lanes));
                let until = match choose(prospects) {
                    Choice::Peer(link) => return Ok(link),
                    Choice::Nobody => return Err(Refusal::LinkDown),
                    Choice::Wait(until) => until,
                };
                peers.iter().for_each(|peer| peer.want_dial());
                tokio::select! {
                    _ = changes.changed() => {}
                    () = sleep_until(until) => {}
                }
            }
        })
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
