//! The far end: accepts lanes from its peers and keeps their links.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use refrain_admission::Visit;
use refrain_codec::simd::InstructionSet;
use refrain_proto::{
    Fault, LaneId, Link, Mode, Role, hello::Hello, link::LaneRefused, planted::Bug,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::FarConfig,
    descriptors::{Descriptors, UNPROVEN_LANES_MAX},
    gateway::{Gateway, PeerReport, StartError, Tasks, random_instance},
    greeting,
    history::HistoryReport,
    keys::{PublicKey, SharedPeerKeys},
    lane::{self, LaneEnd},
    last_error::LastError,
    link::{Counted, LaneSignals, SharedLink, Totals},
    listeners::{self, Acceptor, BoxFuture, Links, Listener, Listening},
    lookups::Lookups,
    memory::MemoryBudget,
    offered::{self, Targets},
    pace::Pace,
    policy::{OwnAddresses, SharedPolicy},
    rate_limited_log::RateLimitedLog,
    refusal::Refusal,
    tls::{ServerTls, TlsError},
    wire::LaneStream,
};

/// Links of one peer, those included that wait for their lanes to come back.
const LINKS_PER_PEER_MAX: usize = 4;

/// How often links without lanes are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A far gateway: its peers' links, and listeners of its own.
pub struct Far {
    config: FarConfig,
    policy: Arc<SharedPolicy>,
    peers: Arc<SharedPeerKeys>,
    links: Mutex<BTreeMap<PublicKey, Vec<Arc<SharedLink>>>>,
    last_errors: Mutex<BTreeMap<PublicKey, LastError>>,
    unknown_peers: UnknownPeerLog,
    budget: MemoryBudget,
    totals: Arc<Totals>,
    pace: Option<Arc<Pace>>,
    tls: ServerTls,
    started: Instant,
    /// Lanes first, then forwards in their order.
    listening: Vec<Listening>,
    descriptors: Arc<Descriptors>,
    /// Changes whenever a lane begins.
    lanes_begun: watch::Sender<()>,
    lookups: Lookups,
    targets: Mutex<BTreeMap<PublicKey, Targets>>,
}

/// The link that a forward's flows go to: the peer's youngest that has a lane.
struct LinkOf {
    far: Arc<Far>,
    peer: PublicKey,
}

impl Far {
    /// Binds the listeners. They run in `tasks`.
    pub async fn start(config: FarConfig, tasks: &mut Tasks) -> Result<Arc<Far>, StartError> {
        let mut for_lanes = Vec::new();
        for &address in &config.listen {
            for_lanes.push(listeners::bind(address, "listen")?);
        }
        let common = &config.common;
        let mut bound = Vec::new();
        for mut way_in in common.ways_in.clone() {
            let (socket, address) = listeners::bind(way_in.listen, way_in.option.key)?;
            way_in.listen = address;
            bound.push((socket, way_in));
        }
        let lanes = for_lanes
            .iter()
            .map(|&(_, address)| Listening::lanes(address));
        let forwards = bound.iter().map(|(_, way_in)| Listening::of(way_in));
        let peers = Arc::new(SharedPeerKeys::new(config.peers.clone()));
        let listening: Vec<Listening> = lanes.chain(forwards).collect();
        let own = OwnAddresses::new(listening.iter().map(|listening| listening.address), common);
        let far = Arc::new(Far {
            policy: Arc::new(SharedPolicy::new(common, own)),
            // The admin page too.
            descriptors: Descriptors::of_process(1 + listening.len()),
            listening,
            lanes_begun: watch::Sender::new(()),
            lookups: Lookups::of_system(),
            targets: Mutex::default(),
            links: Mutex::default(),
            last_errors: Mutex::default(),
            unknown_peers: UnknownPeerLog::new(),
            totals: Arc::default(),
            budget: MemoryBudget::new(common.memory.0, config.peers.len()),
            pace: common.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ServerTls::new(&common.key, Arc::clone(&peers)),
            started: Instant::now(),
            peers,
            config,
        });
        for (socket, way_in) in bound {
            let links = Arc::new(LinkOf {
                far: Arc::clone(&far),
                peer: way_in.peer.expect("a far end's forward names its peer"),
            });
            let (policy, descriptors) = (&far.policy, &far.descriptors);
            let listener =
                Listener::new(way_in, links, Arc::clone(policy), Arc::clone(descriptors));
            tasks.listeners.spawn(listener.serve(socket));
        }
        tracing::info!("allows its peers {}", far.config.common.allow.describe());
        for listener in for_lanes {
            tasks.listeners.spawn(Arc::clone(&far).accept(listener));
        }
        tasks.services.spawn(Arc::clone(&far).sweep());
        Ok(far)
    }

    /// Where lanes are taken, and then where applications connect: forwards in their order.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Takes keys, rules and time-outs from `config`; the rest needs a restart.
    pub fn reload(&self, config: &FarConfig) {
        self.peers.replace(config.peers.clone());
        self.policy.replace(&config.common);
    }

    async fn accept(self: Arc<Self>, (listener, address): (TcpListener, SocketAddr)) {
        let acceptor = Acceptor::new(listener, address, &self.descriptors, UNPROVEN_LANES_MAX);
        loop {
            let (tcp, visit, ()) = acceptor.accept(|_| Some(())).await;
            let far = Arc::clone(&self);
            tokio::spawn(async move {
                let begun = tokio::select! {
                    () = visit.displaced() => return,
                    begun = far.begin_lane(tcp, &visit) => begun,
                };
                match begun {
                    Ok(Some(lane)) => lane.run(far).await,
                    Ok(None) => {}
                    Err(error) => far.unknown_peers.warn(&error),
                }
            });
        }
    }

    /// Proves who connects, reads its hello, and finds its link.
    async fn begin_lane(
        self: &Arc<Self>,
        tcp: TcpStream,
        visit: &Visit,
    ) -> Result<Option<BegunLane>, TlsError> {
        let within = self.policy.load().timeouts.connect;
        let address = visit.address();
        lane::prepare(&tcp, self.config.common.timeouts.dead_after).map_err(|source| {
            TlsError::Io {
                peer: address,
                source,
            }
        })?;
        let (mut stream, peer) = self.tls.accept(tcp, address, within).await?;
        visit.prove();
        // Without its port, which is another at each try.
        let host = address.ip();
        let greeting = timeout(within, greeting::read_hello(&mut stream)).await;
        let (hello, rest) = match greeting {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(error)) => {
                let label = self.label(&peer);
                self.note_error(peer, format!("the peer at {host} ({label}): {error}"));
                // A peer of another version is told ours, so that both ends' logs name both.
                greeting::answer_and_close(&mut stream, None).await;
                return Ok(None);
            }
            Err(_) => {
                let label = self.label(&peer);
                let error = format!("the peer at {host} ({label}) said no hello within {within:?}");
                self.note_error(peer, error);
                return Ok(None);
            }
        };
        let joined = match self.link_for(peer, &hello) {
            Ok(Some(joined)) => joined,
            Ok(None) => {
                let label = self.label(&peer);
                tracing::debug!(peer = %label, %address, "the lane's link is gone: the peer begins anew");
                greeting::answer_and_close(&mut stream, Some(&hello)).await;
                return Ok(None);
            }
            Err(reason) => {
                greeting::refuse_and_close(&mut stream, &reason).await;
                self.note_error(peer, reason);
                return Ok(None);
            }
        };
        self.forget_error(peer);
        self.lanes_begun.send_replace(());
        Ok(Some(BegunLane {
            joined,
            stream,
            rest,
            address,
        }))
    }

    /// The link that a hello belongs to, a new one if there is none. `None` if the hello names
    /// a link that this end had before it restarted, or has forgotten.
    fn link_for(
        self: &Arc<Self>,
        peer: PublicKey,
        hello: &Hello,
    ) -> Result<Option<JoinedLane>, String> {
        let mut all = self.links.lock().expect("held for a moment");
        let first = all
            .keys()
            .next()
            .filter(|_| Bug::LinksOfAllPeers.is_planted());
        let peer = first.copied().unwrap_or(peer);
        let links = all.entry(peer).or_default();
        let known = links
            .iter()
            .position(|link| link.with(|link, _| link.peer_instance()) == Some(hello.instance));
        if let Some(index) = known {
            let link = Arc::clone(&links[index]);
            match link.begin_lane(|link, now| link.accept_lane(now, hello)) {
                Ok((lane, signals)) => {
                    return Ok(Some(JoinedLane {
                        link,
                        lane,
                        signals,
                    }));
                }
                Err(LaneRefused::OtherInstance) => {
                    links.remove(index);
                }
                Err(refused) => {
                    let label = self.label(&peer);
                    let limit = match refused {
                        LaneRefused::TooMany => {
                            let lanes = link.with(|link, _| link.lanes_max());
                            format!(": at most {lanes} (--lanes-max, fewer with little --memory)")
                        }
                        _ => String::new(),
                    };
                    return Err(format!("a lane of {label}: {refused}{limit}"));
                }
            }
        }
        if hello.peer_instance.is_some() {
            return Ok(None);
        }
        // Links of the peer's earlier lives give way to its present one.
        while links.len() >= LINKS_PER_PEER_MAX {
            if !forget_an_idle_link(links) {
                return Err(format!(
                    "{} has {LINKS_PER_PEER_MAX} links already: does each site have a key of its own?",
                    self.label(&peer)
                ));
            }
        }
        let (config, memory) = loop {
            if let Some(found) = self.budget.link(peer, &self.config.common, None) {
                break found;
            }
            // Its own links alone give way: another peer's are none of its business.
            if forget_an_idle_link(links) {
                continue;
            }
            if let Some(found) = self.budget.further_link(peer, &self.config.common) {
                break found;
            }
            return Err(format!(
                "the far end has no memory for another link of {}, beside the {} that it has: \
                 raise its --memory or lower its --cache",
                self.label(&peer),
                links.len()
            ));
        };
        let link = Link::new(Role::Far, random_instance(), config);
        let (link, offers) = SharedLink::start(
            peer,
            Arc::clone(&self.peers),
            link,
            memory,
            None,
            Arc::clone(&self.totals),
        );
        let (lane, signals) = link
            .begin_lane(|link, now| link.accept_lane(now, hello))
            .map_err(|refused| refused.to_string())?;
        tokio::spawn(offered::serve(
            Arc::clone(&link),
            offers,
            self.targets(peer),
        ));
        links.push(Arc::clone(&link));
        Ok(Some(JoinedLane {
            link,
            lane,
            signals,
        }))
    }

    /// Forgets links that are over, and those that were without lanes for too long.
    async fn sweep(self: Arc<Self>) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let keep = self.policy.load().timeouts.keep_link;
            let mut all = self.links.lock().expect("held for a moment");
            for links in all.values_mut() {
                links.retain(|link| {
                    let gone_for = link.lanes_gone_at().map(|at| at.elapsed());
                    let expired = gone_for.is_some_and(|time| time > keep);
                    // Somebody only checked whether the pair works.
                    let unused = gone_for.is_some_and(|time| time > SWEEP_INTERVAL)
                        && link.with(|link, _| link.was_never_used());
                    link.fault().is_none() && !expired && !unused
                });
            }
            all.retain(|_, links| !links.is_empty());
        }
    }

    /// Peers try again and again: only what is new is logged.
    fn note_error(&self, peer: PublicKey, error: String) {
        let mut errors = self.last_errors.lock().expect("held for a moment");
        let before = errors.insert(peer, LastError::new(error.clone()));
        if before.is_none_or(|before| before.text != error) {
            tracing::warn!("{error}");
        }
    }

    fn forget_error(&self, peer: PublicKey) {
        let mut errors = self.last_errors.lock().expect("held for a moment");
        errors.remove(&peer);
    }

    /// Where the flows of a peer may lead, on all its links.
    fn targets(&self, peer: PublicKey) -> Targets {
        let mut targets = self.targets.lock().expect("held for a moment");
        let of_peer = || {
            let has_others = self.peers.load().len() > 1;
            Targets::new(
                Arc::clone(&self.policy),
                self.lookups.of_peer(),
                self.descriptors.of_peer(has_others),
            )
        };
        targets.entry(peer).or_insert_with(of_peer).clone()
    }

    fn label(&self, key: &PublicKey) -> String {
        self.peers.load().label(key)
    }

    fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.peers.load().name(key).map(str::to_owned)
    }
}

/// Warnings of connections that prove no accepted key, which anybody can cause again and again.
/// Those of keys stand apart, so that no flood of others hides them.
struct UnknownPeerLog {
    keys: RateLimitedLog,
    others: RateLimitedLog,
}

impl UnknownPeerLog {
    fn new() -> UnknownPeerLog {
        let log = || RateLimitedLog::new(|line| tracing::warn!("{line}"));
        UnknownPeerLog {
            keys: log(),
            others: log(),
        }
    }

    fn warn(&self, error: &TlsError) {
        let log = match error {
            TlsError::WrongKey { .. } | TlsError::KeyRefused { .. } => &self.keys,
            _ => &self.others,
        };
        log.add(error.to_string());
    }
}

/// A lane that its link has taken.
struct JoinedLane {
    link: Arc<SharedLink>,
    lane: LaneId,
    signals: Arc<LaneSignals>,
}

/// A lane that may carry flows from now on.
struct BegunLane {
    joined: JoinedLane,
    stream: LaneStream,
    /// What came behind the hello.
    rest: Vec<u8>,
    address: SocketAddr,
}

impl BegunLane {
    async fn run(self, far: Arc<Far>) {
        let JoinedLane {
            link,
            lane,
            signals,
        } = self.joined;
        let (peer, address) = (link.peer, self.address);
        let label = link.label();
        tracing::debug!(peer = %label, %address, lane = lane.0, "a lane came up");
        let received = link.with(|link, now| link.receive(now, lane, &self.rest));
        let end = match received {
            Err(Fault::Lane(fault)) => LaneEnd::Lane(fault),
            _ => {
                let (counts, pace) = (self.stream.get_ref().0.counts(), far.pace.clone());
                lane::run(Arc::clone(&link), lane, signals, self.stream, counts, pace).await
            }
        };
        match end {
            LaneEnd::Io(_) => {
                tracing::debug!(peer = %label, %address, lane = lane.0, "a lane ended: {end}")
            }
            LaneEnd::Damaged(_) => {
                let times = link.damaged_lanes();
                far.note_error(
                    peer,
                    format!(
                        "a lane of {label} at {address} ended: {end} ({times} so far on this link)"
                    ),
                );
            }
            LaneEnd::Lane(_) | LaneEnd::Link(_) | LaneEnd::Refused(_) => {
                far.note_error(peer, format!("a lane of {label} ended: {end}"));
            }
        }
        if link.fault().is_some() {
            let mut all = far.links.lock().expect("held for a moment");
            if let Some(links) = all.get_mut(&peer) {
                links.retain(|other| !Arc::ptr_eq(other, &link));
            }
        }
    }
}

impl Links for LinkOf {
    /// This end cannot dial. A peer that is there does so within `dead_after` of the loss of its
    /// last lane, or of this end's start: so long connections wait.
    fn link(&self) -> BoxFuture<'_, Result<Arc<SharedLink>, Refusal>> {
        Box::pin(async {
            let mut begun = self.far.lanes_begun.subscribe();
            loop {
                begun.mark_unchanged();
                let links = self.links();
                let up = links
                    .iter()
                    .rev()
                    .find(|link| link.lanes_gone_at().is_none());
                if let Some(up) = up {
                    return Ok(Arc::clone(up));
                }
                let youngest = links.last();
                let without_lanes = youngest.and_then(|link| link.lanes_gone_at());
                let since = without_lanes.unwrap_or(self.far.started);
                let within = self.far.config.common.timeouts.dead_after;
                let Some(left) = within.checked_sub(since.elapsed()) else {
                    return Err(Refusal::LinkDown);
                };
                let mut lanes_up = youngest.map(|link| link.lanes_up());
                drop(links);
                tokio::select! {
                    _ = begun.changed() => {}
                    () = changed(lanes_up.as_mut()) => {}
                    () = sleep(left) => {}
                }
            }
        })
    }
}

impl LinkOf {
    fn links(&self) -> Vec<Arc<SharedLink>> {
        let all = self.far.links.lock().expect("held for a moment");
        all.get(&self.peer).cloned().unwrap_or_default()
    }
}

async fn changed(lanes_up: Option<&mut watch::Receiver<usize>>) {
    if let Some(lanes_up) = lanes_up
        && lanes_up.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

impl Gateway for Far {
    fn role(&self) -> &'static str {
        "far"
    }

    fn started(&self) -> Instant {
        self.started
    }

    fn kernels(&self) -> InstructionSet {
        self.config.common.matching.backend.instruction_set()
    }

    fn memory(&self) -> (u64, u64) {
        (self.config.common.memory.0, self.budget.free_bytes())
    }

    fn mode(&self) -> Mode {
        self.config.common.mode
    }

    fn history(&self) -> Option<HistoryReport> {
        None
    }

    fn counted(&self) -> Counted {
        self.totals.sum()
    }

    fn descriptors(&self) -> Arc<Descriptors> {
        Arc::clone(&self.descriptors)
    }

    fn peers(&self) -> Vec<PeerReport> {
        let all = self.links.lock().expect("held for a moment");
        let errors = self.last_errors.lock().expect("held for a moment");
        let mut reports = Vec::new();
        for key in self.peers.load().iter() {
            let report = |link| PeerReport {
                key,
                name: self.name_of(&key),
                address: None,
                link,
                last_error: errors.get(&key).cloned(),
            };
            match all.get(&key).filter(|links| !links.is_empty()) {
                Some(links) => {
                    reports.extend(links.iter().map(|link| report(Some(Arc::clone(link)))))
                }
                None => reports.push(report(None)),
            }
        }
        reports
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
/// are worth least, such as each `refrain check` leaves one; then those that are alone for longest.
fn worth(link: &SharedLink) -> Option<(bool, Instant)> {
    let gone_at = link.lanes_gone_at()?;
    let has_caches = link.with(|link, _| link.fault().is_none() && !link.was_never_used());
    Some((has_caches, gone_at))
}
