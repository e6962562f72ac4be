//! The near end: dials lanes to its one peer and keeps them, serves applications.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use refrain_codec::simd::InstructionSet;
use refrain_proto::{Link, Role, limits::LOSS_REMEMBERED};
use tokio::{
    net::{TcpStream, lookup_host},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::NearConfig,
    gateway::{Gateway, PeerReport, StartError, Tasks, random_instance},
    keys::PublicKey,
    lane::{self, LaneEnd},
    link::SharedLink,
    listeners::{self, Links, Service},
    memory::MemoryBudget,
    offered,
    pace::Pace,
    policy::SharedPolicy,
    tls::ClientTls,
};

/// Between attempts to reach the peer: doubled each time, up to the second.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How long the number of lanes is kept at which the far end took no more.
const ENOUGH: Duration = Duration::from_secs(30);

/// A near gateway: listeners, a link, and the lanes that it dials.
pub struct Near {
    config: NearConfig,
    policy: Arc<SharedPolicy>,
    link: RwLock<Option<Arc<SharedLink>>>,
    budget: MemoryBudget,
    pace: Option<Arc<Pace>>,
    tls: ClientTls,
    last_error: Mutex<Option<String>>,
    started: Instant,
    addresses: Vec<SocketAddr>,
}

impl Near {
    /// Binds the listeners and starts to dial. They run in `tasks`.
    pub async fn start(config: NearConfig, tasks: &mut Tasks) -> Result<Arc<Near>, StartError> {
        let mut listening = Vec::new();
        for forward in &config.common.forwards {
            let listener = listeners::bind(forward.listen, "forward")?;
            listening.push((listener, Service::Forward(forward.target.clone())));
        }
        if let Some(address) = config.socks5 {
            listening.push((listeners::bind(address, "socks5")?, Service::Socks5));
        }
        if let Some(address) = config.http_proxy {
            listening.push((listeners::bind(address, "http_proxy")?, Service::HttpProxy));
        }
        let common = &config.common;
        let near = Arc::new(Near {
            policy: Arc::new(SharedPolicy::new(common)),
            link: RwLock::new(None),
            budget: MemoryBudget::new(common.memory.0, 1),
            pace: common.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ClientTls::new(&common.key, config.peer_key),
            last_error: Mutex::new(Some("not connected yet".to_owned())),
            started: Instant::now(),
            addresses: listening
                .iter()
                .filter_map(|(listener, _)| listener.local_addr().ok())
                .collect(),
            config,
        });
        for (listener, service) in listening {
            let links: Arc<dyn Links> = Arc::clone(&near) as Arc<dyn Links>;
            let policy = Arc::clone(&near.policy);
            tasks
                .listeners
                .spawn(listeners::serve(listener, service, links, policy));
        }
        tasks.services.spawn(Dialer::new(Arc::clone(&near)).run());
        Ok(near)
    }

    /// Where applications connect: forwards in their order, then SOCKS5, then HTTP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes rules and time-outs from `config`; the rest needs a restart.
    pub fn reload(&self, config: &NearConfig) {
        self.policy.replace(&config.common);
    }

    /// The link, a new one if the last is over.
    fn present_link(&self) -> Option<Arc<SharedLink>> {
        let mut present = self.link.write().expect("held for a moment");
        if let Some(link) = present.as_ref() {
            let is_over = link.with(|link, _| link.fault().is_some() || link.is_out_of_lanes());
            let expired = link
                .lanes_gone_at()
                .is_some_and(|at| at.elapsed() > self.policy.load().timeouts.keep_link);
            if !is_over && !expired {
                return Some(Arc::clone(link));
            }
            // Its memory goes to its successor.
            *present = None;
        }
        let (config, memory) = self.budget.link(&self.config.common)?;
        let link = Link::new(Role::Near, random_instance(), config);
        let (link, offers) = SharedLink::start(self.config.peer_key, link, memory);
        tokio::spawn(offered::serve(
            Arc::clone(&link),
            offers,
            Arc::clone(&self.policy),
        ));
        *present = Some(Arc::clone(&link));
        Some(link)
    }

    fn note_error(&self, error: String) {
        let mut last = self.last_error.lock().expect("held for a moment");
        if last.as_deref() != Some(&error) {
            tracing::warn!(peer = %self.config.peer, "{error}");
            *last = Some(error);
        }
    }

    fn clear_error(&self) {
        *self.last_error.lock().expect("held for a moment") = None;
    }
}

/// Keeps a link, and its lanes, for as long as the gateway runs.
struct Dialer {
    near: Arc<Near>,
    link: Option<Arc<SharedLink>>,
    /// The tasks of the link's lanes, each of which says how long its lane lived.
    lanes: JoinSet<Duration>,
    /// When loss last held lanes up: as many are kept as there may be, for a while.
    wants_all_lanes: Option<Instant>,
    /// The far end took no more than so many lanes, not long ago.
    enough: Option<(usize, Instant)>,
    retry: Duration,
}

impl Dialer {
    fn new(near: Arc<Near>) -> Dialer {
        Dialer {
            near,
            link: None,
            lanes: JoinSet::new(),
            wants_all_lanes: None,
            enough: None,
            retry: RETRY_MIN,
        }
    }

    async fn run(mut self) {
        loop {
            let Some(link) = self.near.present_link() else {
                let error = "not enough memory for even the smallest caches: raise --memory";
                self.near.note_error(error.to_owned());
                self.back_off().await;
                continue;
            };
            if !self
                .link
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, &link))
            {
                // The lanes of the link before end by themselves.
                self.lanes.detach_all();
                self.wants_all_lanes = None;
                self.link = Some(Arc::clone(&link));
            }
            let mut up = link.lanes_up();
            let lanes_up = *up.borrow_and_update();
            while self.lanes.len() < self.wanted_lanes(&link, lanes_up) {
                let lane = keep_lane(Arc::clone(&self.near), Arc::clone(&link));
                self.lanes.spawn(lane);
            }
            tokio::select! {
                Some(ended) = self.lanes.join_next() => {
                    self.lanes_ended(ended.unwrap_or_default(), &link).await;
                }
                Ok(()) = up.changed() => {
                    if *up.borrow() > lanes_up {
                        self.near.clear_error();
                    }
                }
                () = link.want_lanes.notified() => self.wants_all_lanes = Some(Instant::now()),
                // The link may have expired or faulted.
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// The first lane decides about the link, and finds out whether there is a peer; the
    /// others join it.
    fn wanted_lanes(&self, link: &SharedLink, lanes_up: usize) -> usize {
        if lanes_up == 0 {
            return 1;
        }
        let most = link.with(|link, _| link.lanes_max());
        let wanted = match self.wants_all_lanes {
            Some(since) if since.elapsed() < LOSS_REMEMBERED => most,
            _ => most.min(self.near.config.common.lanes.into()),
        };
        match self.enough {
            Some((lanes, since)) if since.elapsed() < ENOUGH => wanted.min(lanes),
            _ => wanted,
        }
    }

    /// A lane that lived is dialled again at once; one that died young is not. Those that end
    /// together are waited for together.
    async fn lanes_ended(&mut self, mut lived: Duration, link: &SharedLink) {
        while let Some(ended) = self.lanes.try_join_next() {
            lived = lived.max(ended.unwrap_or_default());
        }
        if lived > RETRY_MAX {
            self.retry = RETRY_MIN;
            return;
        }
        if link.fault().is_some() {
            // The peer is there, and a new link is all it takes.
            self.retry = RETRY_MIN;
        }
        let lanes_up = *link.lanes_up().borrow();
        if lanes_up > 0 {
            self.enough = Some((lanes_up, Instant::now()));
        }
        self.back_off().await;
    }

    async fn back_off(&mut self) {
        sleep(self.retry).await;
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }
}

/// Dials a lane and carries it until it ends; says how long it lived.
async fn keep_lane(near: Arc<Near>, link: Arc<SharedLink>) -> Duration {
    let within = near.policy.load().timeouts.connect;
    let peer = near.config.peer.to_string();
    let dialled = async {
        let (stream, address) = connect(&peer, &near.tls, within).await?;
        lane::prepare(
            stream.get_ref().0.tcp(),
            near.config.common.timeouts.dead_after,
        )
        .map_err(|error| error.to_string())?;
        let (lane, signals) =
            link.begin_lane(|link, now| link.dial_lane(now).ok_or("the link has no lane left"))?;
        Ok::<_, String>((stream, address, lane, signals))
    };
    let (stream, address, lane, signals) = match dialled.await {
        Ok(dialled) => dialled,
        Err(error) => {
            near.note_error(error);
            return Duration::ZERO;
        }
    };
    let began = Instant::now();
    let end = lane::run(link, lane, signals, stream, near.pace.clone()).await;
    let text = match end {
        LaneEnd::Io(error) => near.tls.explain(error, address).to_string(),
        other => other.to_string(),
    };
    near.note_error(format!("a lane ended: {text}"));
    began.elapsed()
}

impl Links for Near {
    fn link(&self) -> Option<Arc<SharedLink>> {
        self.link.read().expect("held for a moment").clone()
    }
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

    fn peers(&self) -> Vec<PeerReport> {
        let last_error = self.last_error.lock().expect("held for a moment").clone();
        vec![PeerReport {
            key: self.config.peer_key,
            name: Some(self.config.peer.to_string()),
            link: self.link(),
            last_error,
        }]
    }
}

/// Connects to a far end and makes the handshake; errors are for the user.
pub async fn connect(
    peer: &str,
    tls: &ClientTls,
    within: Duration,
) -> Result<(crate::wire::LaneStream, SocketAddr), String> {
    let connecting = async {
        let addresses = lookup_host(peer)
            .await
            .map_err(|error| format!("{peer}: {error}"))?;
        let mut failure = format!("{peer}: the name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(tcp) => {
                    // A handshake is small writes by turns.
                    let _ = tcp.set_nodelay(true);
                    return Ok((tcp, address));
                }
                Err(error) => failure = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(failure)
    };
    let connected = timeout(within, connecting).await;
    let (tcp, address) =
        connected.map_err(|_| format!("{peer} did not answer within {within:?}"))??;
    let (stream, _key): (_, PublicKey) = tls
        .connect(tcp, address, within)
        .await
        .map_err(|error| error.to_string())?;
    Ok((stream, address))
}
