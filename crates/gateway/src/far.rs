//! The far end: accepts lanes from its peers and keeps their links.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use refrain_codec::simd::InstructionSet;
use refrain_proto::{
    Fault, LaneId, Link, Mode, Role, hello::Hello, link::LaneRefused, planted::Bug,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::FarConfig,
    folded::Folded,
    gateway::{Gateway, PeerReport, StartError, Tasks, random_instance},
    greeting,
    history::HistoryReport,
    keys::{PublicKey, SharedPeerKeys},
    lane::{self, LaneEnd},
    last_error::LastError,
    link::{LaneSignals, SharedLink},
    listeners::{self, Links, Service},
    memory::MemoryBudget,
    offered,
    pace::Pace,
    policy::SharedPolicy,
    status::Total,
    tls::{ServerTls, TlsError},
    totals::Totals,
    wire::LaneStream,
};

/// Connections that have proved no key yet.
const HANDSHAKES_MAX: usize = 256;

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
    strangers: Mutex<Strangers>,
    budget: MemoryBudget,
    totals: Arc<Totals>,
    pace: Option<Arc<Pace>>,
    tls: ServerTls,
    started: Instant,
    address: SocketAddr,
    forward_addresses: Vec<SocketAddr>,
}

/// The link that a forward's flows go to: the peer's youngest that has a lane.
struct LinkOf {
    far: Arc<Far>,
    peer: PublicKey,
}

impl Far {
    /// Binds the listeners. They run in `tasks`.
    pub async fn start(config: FarConfig, tasks: &mut Tasks) -> Result<Arc<Far>, StartError> {
        let listener = listeners::bind(config.listen, "listen")?;
        let common = &config.common;
        let mut listening = Vec::new();
        for forward in &common.forwards {
            let listener = listeners::bind(forward.listen, "forward")?;
            listening.push((listener, forward.clone()));
        }
        let peers = Arc::new(SharedPeerKeys::new(config.peers.clone()));
        let far = Arc::new(Far {
            address: listener.local_addr().unwrap_or(config.listen),
            forward_addresses: listening
                .iter()
                .filter_map(|(listener, _)| listener.local_addr().ok())
                .collect(),
            policy: Arc::new(SharedPolicy::new(common)),
            links: Mutex::default(),
            last_errors: Mutex::default(),
            strangers: Mutex::default(),
            totals: Arc::default(),
            budget: MemoryBudget::new(common.memory.0, config.peers.len()),
            pace: common.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ServerTls::new(&common.key, Arc::clone(&peers)),
            started: Instant::now(),
            peers,
            config,
        });
        for (listener, forward) in listening {
            let links = Arc::new(LinkOf {
                far: Arc::clone(&far),
                peer: forward.peer,
            });
            let service = Service::Forward(forward.target);
            tasks.listeners.spawn(listeners::serve(
                listener,
                service,
                links,
                Arc::clone(&far.policy),
            ));
        }
        tracing::info!("allows its peers {}", far.config.common.allow.describe());
        tasks.listeners.spawn(Arc::clone(&far).accept(listener));
        tasks.services.spawn(Arc::clone(&far).sweep());
        Ok(far)
    }

    /// Where lanes are taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where applications connect: forwards in their order.
    pub fn forward_addresses(&self) -> &[SocketAddr] {
        &self.forward_addresses
    }

    /// Takes keys, rules and time-outs from `config`; the rest needs a restart.
    pub fn reload(&self, config: &FarConfig) {
        self.peers.replace(config.peers.clone());
        self.policy.replace(&config.common);
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut complaint = listeners::AcceptComplaint::default();
        loop {
            let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((tcp, address)) => {
                    let far = Arc::clone(&self);
                    tokio::spawn(async move {
                        let begun = far.begin_lane(tcp, address).await;
                        drop(permit);
                        match begun {
                            Ok(Some(lane)) => lane.run(far).await,
                            Ok(None) => {}
                            Err(error) => far.lock_strangers().complain_of(&error),
                        }
                    });
                }
                Err(error) => {
                    complaint.say(&error);
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Proves who connects, reads its hello, and finds its link.
    async fn begin_lane(
        self: &Arc<Self>,
        tcp: TcpStream,
        address: SocketAddr,
    ) -> Result<Option<BegunLane>, TlsError> {
        let within = self.policy.load().timeouts.connect;
        lane::prepare(&tcp, self.config.common.timeouts.dead_after).map_err(|source| {
            TlsError::Io {
                peer: address,
                source,
            }
        })?;
        let (mut stream, peer) = self.tls.accept(tcp, address, within).await?;
        // Without its port, which is another at each try.
        let host = address.ip();
        let greeting = timeout(within, greeting::read_hello(&mut stream)).await;
        let (hello, rest) = match greeting {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(error)) => {
                self.note_error(peer, format!("the peer at {host} ({peer}): {error}"));
                // A peer of another version is told ours, so that both ends' logs name both.
                greeting::answer_and_close(&mut stream, None).await;
                return Ok(None);
            }
            Err(_) => {
                let error = format!("the peer at {host} ({peer}) said no hello within {within:?}");
                self.note_error(peer, error);
                return Ok(None);
            }
        };
        let joined = match self.link_for(peer, &hello) {
            Ok(Some(joined)) => joined,
            Ok(None) => {
                tracing::debug!(%peer, %address, "the lane's link is gone: the peer begins anew");
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
                Err(refused) => return Err(format!("a lane of {peer}: {refused}")),
            }
        }
        if hello.peer_instance.is_some() {
            return Ok(None);
        }
        // Links of the peer's earlier lives give way to its present one.
        while links.len() >= LINKS_PER_PEER_MAX {
            let idle = links.iter().enumerate();
            let idle = idle.filter_map(|(index, link)| Some((worth(link)?, index)));
            let Some((_, idle)) = idle.min() else {
                return Err(format!(
                    "{peer} has {LINKS_PER_PEER_MAX} links already: does each site have a key of its own?"
                ));
            };
            links.remove(idle);
        }
        let (config, memory) = loop {
            if let Some(found) = self.budget.link(&self.config.common, None) {
                break found;
            }
            if !forget_an_idle_link(&mut all) {
                return Err(format!(
                    "the far end has no memory for the caches of {peer}: raise its --memory or \
                     lower its --cache"
                ));
            }
        };
        let link = Link::new(Role::Far, random_instance(), config);
        let (link, offers) = SharedLink::start(peer, link, memory, None, Arc::clone(&self.totals));
        let (lane, signals) = link
            .begin_lane(|link, now| link.accept_lane(now, hello))
            .map_err(|refused| refused.to_string())?;
        tokio::spawn(offered::serve(
            Arc::clone(&link),
            offers,
            Arc::clone(&self.policy),
        ));
        all.entry(peer).or_default().push(Arc::clone(&link));
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
            self.lock_strangers().say_what_is_due();
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

    fn lock_strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().expect("held for a moment")
    }

    fn name_of(&self, key: &PublicKey) -> Option<String> {
        self.peers.load().name(key).map(str::to_owned)
    }
}

/// Complaints of connections that prove no accepted key: anybody can cause them, again and
/// again. Those of keys stand apart, so that no flood of others hides them.
#[derive(Default)]
struct Strangers {
    keys: Folded,
    others: Folded,
}

impl Strangers {
    fn complain_of(&mut self, error: &TlsError) {
        let folded = match error {
            TlsError::WrongKey { .. } | TlsError::KeyRefused { .. } => &mut self.keys,
            _ => &mut self.others,
        };
        if let Some(line) = folded.add(Instant::now(), error.to_string()) {
            tracing::warn!("{line}");
        }
    }

    fn say_what_is_due(&mut self) {
        let now = Instant::now();
        for line in [&mut self.keys, &mut self.others]
            .into_iter()
            .filter_map(|folded| folded.due(now))
        {
            tracing::warn!("{line}");
        }
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
        tracing::debug!(%peer, %address, lane = lane.0, "a lane came up");
        let received = link.with(|link, now| link.receive(now, lane, &self.rest));
        let end = match received {
            Err(Fault::Lane(fault)) => LaneEnd::Lane(fault),
            _ => {
                let pace = far.pace.clone();
                lane::run(Arc::clone(&link), lane, signals, self.stream, pace).await
            }
        };
        match end {
            LaneEnd::Io(_) => {
                tracing::debug!(%peer, %address, lane = lane.0, "a lane ended: {end}")
            }
            LaneEnd::Lane(_) | LaneEnd::Link(_) | LaneEnd::Refused(_) => {
                far.note_error(peer, format!("a lane of {peer} ended: {end}"));
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
    fn link(&self) -> Option<Arc<SharedLink>> {
        let all = self.far.links.lock().expect("held for a moment");
        let links = all.get(&self.peer)?;
        links
            .iter()
            .rev()
            .find(|link| link.lanes_gone_at().is_none())
            .cloned()
    }
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

    fn total(&self) -> Total {
        self.totals.sum()
    }

    fn peers(&self) -> Vec<PeerReport> {
        let all = self.links.lock().expect("held for a moment");
        let errors = self.last_errors.lock().expect("held for a moment");
        let mut reports = Vec::new();
        for key in self.peers.load().iter() {
            let report = |link| PeerReport {
                key,
                name: self.name_of(&key),
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
fn forget_an_idle_link(all: &mut BTreeMap<PublicKey, Vec<Arc<SharedLink>>>) -> bool {
    let idle = all
        .iter()
        .flat_map(|(&peer, links)| links.iter().map(move |link| (peer, link)))
        .filter_map(|(peer, link)| Some((worth(link)?, peer, Arc::clone(link))))
        .min_by_key(|(worth, ..)| *worth);
    let Some((_, peer, idle)) = idle else {
        return false;
    };
    if let Some(links) = all.get_mut(&peer) {
        links.retain(|link| !Arc::ptr_eq(link, &idle));
    }
    true
}

/// What a link without lanes is worth keeping; `None` while it has some. Those that nothing is in
/// are worth least, such as each `refrain check` leaves one; then those that are alone for longest.
fn worth(link: &SharedLink) -> Option<(bool, Instant)> {
    let gone_at = link.lanes_gone_at()?;
    let has_caches = link.with(|link, _| link.fault().is_none() && !link.was_never_used());
    Some((has_caches, gone_at))
}
