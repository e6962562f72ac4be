//! The near end: dials lanes to its one peer and keeps them, serves applications.

mod dial_plan;
mod dialler;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, RwLock},
    time::Duration,
};

use refrain_codec::simd::InstructionSet;
use refrain_proto::{Link, Mode, Role};
use tokio::{
    net::{TcpStream, lookup_host},
    sync::{Notify, watch},
    time::{Instant, timeout},
};

use crate::{
    config::{HistoryOptions, NearConfig},
    descriptors::Descriptors,
    gateway::{Gateway, PeerReport, StartError, Tasks, random_instance},
    history::{History, HistoryReport},
    keys::{PublicKey, SharedPeerKeys},
    last_error::Trouble,
    link::{Counted, SharedLink, Totals},
    listeners::{self, BoxFuture, Links, Listener, Listening},
    lookups::Lookups,
    memory::MemoryBudget,
    offered::{self, Targets},
    pace::Pace,
    policy::{OwnAddresses, SharedPolicy},
    refusal::Refusal,
    tls::{ClientTls, TlsError},
    wire::LaneStream,
};
use dialler::Dialer;

/// A near gateway: listeners, a link, and the lanes that it dials.
pub struct Near {
    config: NearConfig,
    policy: Arc<SharedPolicy>,
    labels: Arc<SharedPeerKeys>,
    link: RwLock<Option<Arc<SharedLink>>>,
    budget: MemoryBudget,
    pace: Option<Arc<Pace>>,
    tls: ClientTls,
    trouble: Trouble,
    /// The link has a lane that it had not.
    came_up: Notify,
    started: Instant,
    listening: Vec<Listening>,
    history: Option<Arc<History>>,
    totals: Arc<Totals>,
    descriptors: Arc<Descriptors>,
    outlook: watch::Sender<Outlook>,
    /// A connection waits for the far end to be dialled, without a rest.
    dial_wanted: Notify,
    targets: Targets,
}

impl Near {
    /// Binds the listeners and starts to dial. They run in `tasks`.
    pub async fn start(config: NearConfig, tasks: &mut Tasks) -> Result<Arc<Near>, StartError> {
        let mut bound = Vec::new();
        for mut way_in in config.common.ways_in.clone() {
            let (socket, address) = listeners::bind(way_in.listen, way_in.option.key)?;
            way_in.listen = address;
            bound.push((socket, way_in));
        }
        let common = &config.common;
        let history = match &config.history {
            Some(options) => Some(History::open(options).await?),
            None => None,
        };
        let listening = bound.iter().map(|(_, way_in)| Listening::of(way_in));
        let listening: Vec<Listening> = listening.collect();
        let own = OwnAddresses::new(listening.iter().map(|listening| listening.address), common);
        let policy = Arc::new(SharedPolicy::new(common, own));
        // The admin page too.
        let descriptors = Descriptors::of_process(1 + listening.len());
        let lookups = Lookups::of_system().of_peer();
        let near = Arc::new(Near {
            history,
            totals: Arc::default(),
            targets: Targets::new(Arc::clone(&policy), lookups, descriptors.of_peer(false)),
            policy,
            descriptors,
            listening,
            outlook: watch::Sender::new(Outlook::Dialling),
            dial_wanted: Notify::new(),
            labels: Arc::new(SharedPeerKeys::new(config.labels())),
            link: RwLock::new(None),
            budget: MemoryBudget::new(common.memory.0, 1),
            pace: common.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ClientTls::new(&common.key, config.peer_key),
            trouble: Trouble::default(),
            came_up: Notify::new(),
            started: Instant::now(),
            config,
        });
        near.trouble.note("not connected yet".to_owned());
        for (socket, way_in) in bound {
            let listener = Listener::new(
                way_in,
                Arc::clone(&near) as Arc<dyn Links>,
                Arc::clone(&near.policy),
                Arc::clone(&near.descriptors),
            );
            tasks.listeners.spawn(listener.serve(socket));
        }
        tasks.services.spawn(Dialer::new(Arc::clone(&near)).run());
        Ok(near)
    }

    /// Where applications connect: forwards in their order, then SOCKS5, then HTTP.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Waits for the first lane of the link, once.
    pub async fn wait_for_peer(&self, within: Duration) -> Result<(), NotPaired> {
        let came_up = timeout(within, self.came_up.notified()).await;
        came_up.map_err(|_| NotPaired {
            within,
            reason: self.trouble.last().map(|last| last.text),
        })
    }

    /// Waits until all that is to be kept is on disk: the gateway ends. Blocks.
    pub fn settle(&self) {
        if let Some(history) = &self.history {
            history.settle();
        }
    }

    /// Takes rules, time-outs and the peer's name from `config`; the rest needs a restart.
    pub fn reload(&self, config: &NearConfig) {
        let present = &self.config;
        if (&config.peer, config.peer_key) == (&present.peer, present.peer_key) {
            self.labels.replace(config.labels());
        }
        self.policy.replace(&config.common);
    }

    /// The link, a new one if the last is over. One of which lanes live or are dialled (`in_use`)
    /// is over only by a fault: a lane that came up on a link that is forgotten would hold its
    /// memory, and carry nothing.
    fn present_link(&self, in_use: bool) -> Option<Arc<SharedLink>> {
        let mut present = self.link.write().expect("held for a moment");
        if let Some(link) = present.as_ref() {
            let (has_fault, out_of_lanes) =
                link.with(|link, _| (link.fault().is_some(), link.is_out_of_lanes()));
            let expired = link
                .lanes_gone_at()
                .is_some_and(|at| at.elapsed() > self.policy.load().timeouts.keep_link);
            if !has_fault && (in_use || !(out_of_lanes || expired)) {
                return Some(Arc::clone(link));
            }
            // Its memory goes to its successor.
            *present = None;
        }
        let engine = self.config.history.as_ref().map(HistoryOptions::engine);
        let (config, memory) =
            self.budget
                .link(self.config.peer_key, &self.config.common, engine)?;
        let link = Link::new(Role::Near, random_instance(), config);
        let (link, offers) = SharedLink::start(
            self.config.peer_key,
            Arc::clone(&self.labels),
            link,
            memory,
            self.history.clone(),
            Arc::clone(&self.totals),
        );
        let targets = self.targets.clone();
        tokio::spawn(offered::serve(Arc::clone(&link), offers, targets));
        *present = Some(Arc::clone(&link));
        Some(link)
    }

    /// The link that was begun last, whether or not it has a lane.
    fn last_link(&self) -> Option<Arc<SharedLink>> {
        self.link.read().expect("held for a moment").clone()
    }

    fn note_outlook(&self, outlook: Outlook) {
        self.outlook.send_if_modified(|present| {
            let differs = *present != outlook;
            *present = outlook;
            differs
        });
    }

    fn label(&self) -> String {
        self.labels.load().label(&self.config.peer_key)
    }

    /// Notes what went wrong with a lane. It is logged if it is news, unless it was `announced`:
    /// a peer that shuts down says so, and that it is gone then is no news.
    fn note_error(&self, error: String, announced: bool) {
        match self.trouble.note(error.clone()) {
            true if announced => tracing::debug!(peer = %self.label(), "{error}"),
            true => tracing::warn!(peer = %self.label(), "{error}"),
            false => {}
        }
    }

    fn clear_error(&self) {
        self.trouble.clear();
        self.came_up.notify_one();
    }
}

impl Links for Near {
    fn link(&self) -> BoxFuture<'_, Result<Arc<SharedLink>, Refusal>> {
        Box::pin(async {
            let came = Instant::now();
            let mut outlook = self.outlook.subscribe();
            loop {
                let present = *outlook.borrow_and_update();
                if let Some(link) = self.last_link()
                    && *link.lanes_up().borrow() > 0
                {
                    return Ok(link);
                }
                match present {
                    Outlook::Dialling | Outlook::Up => {}
                    // It may be back since.
                    Outlook::Refused(at) if at < came => self.dial_wanted.notify_one(),
                    Outlook::Refused(_) | Outlook::Silent => return Err(Refusal::LinkDown),
                }
                if outlook.changed().await.is_err() {
                    return Err(Refusal::LinkDown);
                }
            }
        })
    }
}

/// What the dialler knows of the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// A lane is being dialled, and may come up.
    Dialling,
    /// A lane is up.
    Up,
    /// The far end refused the last connection then, or was out of reach. Once its machine takes
    /// connections again, it may be back.
    Refused(Instant),
    /// The far end fell silent while the link was up, or answers no more where it refused before.
    /// Its machine may still take connections: only a handshake says that it is back.
    Silent,
}

impl Gateway for Near {
    fn role(&self) -> &'static str {
        "near"
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
        self.history.as_ref().map(|history| history.report())
    }

    fn counted(&self) -> Counted {
        self.totals.sum()
    }

    fn descriptors(&self) -> Arc<Descriptors> {
        Arc::clone(&self.descriptors)
    }

    fn peers(&self) -> Vec<PeerReport> {
        vec![PeerReport {
            key: self.config.peer_key,
            name: Some(self.label()),
            address: Some(self.config.peer.to_string()),
            link: self.last_link(),
            last_error: self.trouble.last(),
        }]
    }
}

/// The peer was not reached in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "no link to the peer within {within:?}: {}",
    reason.as_deref().unwrap_or("no reason is known")
)]
pub struct NotPaired {
    within: Duration,
    reason: Option<String>,
}

/// Why there is no lane to a far end.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Its name cannot be looked up.
    #[error("{peer}: {source}")]
    Name {
        /// The far end.
        peer: String,
        /// Why.
        source: io::Error,
    },
    /// Its name has no address.
    #[error("{0}: the name has no address")]
    NoAddress(String),
    /// No connection opens.
    #[error("cannot connect to {address}: {source}")]
    Tcp {
        /// The last address that was tried.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No connection opens in time.
    #[error("{peer} did not answer within {within:?}")]
    TimedOut {
        /// The far end.
        peer: String,
        /// The time that it had.
        within: Duration,
    },
    /// The link has as many lanes as it may have.
    #[error("the link has no lane left")]
    NoLaneLeft,
    /// The connection failed, or what answers is not the peer.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ConnectError {
    /// Whether it says no more than that the far end does not run.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            ConnectError::Tls(error) => error.is_absence(),
            ConnectError::NoLaneLeft => false,
            _ => true,
        }
    }

    /// Whether it says that there is no far end to be had, and not only that none answered yet.
    fn is_definite(&self) -> bool {
        match self {
            ConnectError::Tcp { source, .. } => source.kind() != io::ErrorKind::TimedOut,
            ConnectError::Tls(error) => !matches!(error, TlsError::TimedOut { .. }),
            _ => false,
        }
    }
}

/// Connects to a far end and makes the handshake.
pub async fn connect(
    peer: &str,
    tls: &ClientTls,
    within: Duration,
) -> Result<(LaneStream, SocketAddr), ConnectError> {
    connect_noting(peer, tls, within, || {}).await
}

/// The same, and calls `answered` once the far end's machine has taken the connection.
async fn connect_noting(
    peer: &str,
    tls: &ClientTls,
    within: Duration,
    answered: impl Fn(),
) -> Result<(LaneStream, SocketAddr), ConnectError> {
    let connecting = async {
        let addresses = lookup_host(peer)
            .await
            .map_err(|source| ConnectError::Name {
                peer: peer.to_owned(),
                source,
            })?;
        let mut failure = ConnectError::NoAddress(peer.to_owned());
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    // A handshake is small writes by turns.
                    let _ = tcp.set_nodelay(true);
                    return Ok((tcp, address));
                }
                Err(source) => failure = ConnectError::Tcp { address, source },
            }
        }
        Err(failure)
    };
    let connected = timeout(within, connecting).await;
    let (tcp, address) = connected.map_err(|_| ConnectError::TimedOut {
        peer: peer.to_owned(),
        within,
    })??;
    answered();
    let (stream, _key): (_, PublicKey) = tls.connect(tcp, address, within).await?;
    Ok((stream, address))
}
