//! The near end: dials lanes to its one peer and keeps them, serves applications.

mod dial_plan;
mod dialler;

use std::{
    net::SocketAddr,
    sync::{Arc, RwLock},
    time::Duration,
};

use refrain_codec::simd::InstructionSet;
use refrain_proto::{Link, Mode, Role};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

use crate::{
    config::{HistoryOptions, NearConfig},
    gateway::{Gateway, PeerReport, StartError, Tasks, random_instance},
    history::{History, HistoryReport},
    keys::PublicKey,
    last_error::Trouble,
    link::SharedLink,
    listeners::{self, Links, Listening, Service},
    memory::MemoryBudget,
    offered,
    pace::Pace,
    policy::SharedPolicy,
    status::Total,
    tls::ClientTls,
    totals::Totals,
};
use dialler::Dialer;

/// A near gateway: listeners, a link, and the lanes that it dials.
pub struct Near {
    config: NearConfig,
    policy: Arc<SharedPolicy>,
    link: RwLock<Option<Arc<SharedLink>>>,
    budget: MemoryBudget,
    pace: Option<Arc<Pace>>,
    tls: ClientTls,
    trouble: Trouble,
    started: Instant,
    listening: Vec<Listening>,
    history: Option<Arc<History>>,
    totals: Arc<Totals>,
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
        let history = match &config.history {
            Some(options) => Some(History::open(options).await?),
            None => None,
        };
        let near = Arc::new(Near {
            history,
            totals: Arc::default(),
            policy: Arc::new(SharedPolicy::new(common)),
            link: RwLock::new(None),
            budget: MemoryBudget::new(common.memory.0, 1),
            pace: common.rate.map(|rate| Arc::new(Pace::new(rate))),
            tls: ClientTls::new(&common.key, config.peer_key),
            trouble: Trouble::default(),
            started: Instant::now(),
            listening: listening
                .iter()
                .filter_map(|(listener, service)| Listening::of(listener, service))
                .collect(),
            config,
        });
        near.trouble.note("not connected yet".to_owned());
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
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Waits until all that is to be kept is on disk: the gateway ends. Blocks.
    pub fn settle(&self) {
        if let Some(history) = &self.history {
            history.settle();
        }
    }

    /// Takes rules and time-outs from `config`; the rest needs a restart.
    pub fn reload(&self, config: &NearConfig) {
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
        let (config, memory) = self.budget.link(&self.config.common, engine)?;
        let link = Link::new(Role::Near, random_instance(), config);
        let (link, offers) = SharedLink::start(
            self.config.peer_key,
            link,
            memory,
            self.history.clone(),
            Arc::clone(&self.totals),
        );
        tokio::spawn(offered::serve(
            Arc::clone(&link),
            offers,
            Arc::clone(&self.policy),
        ));
        *present = Some(Arc::clone(&link));
        Some(link)
    }

    fn note_error(&self, error: String) {
        if self.trouble.note(error.clone()) {
            tracing::warn!(peer = %self.config.peer, "{error}");
        }
    }

    fn clear_error(&self) {
        self.trouble.clear();
    }
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

    fn mode(&self) -> Mode {
        self.config.common.mode
    }

    fn history(&self) -> Option<HistoryReport> {
        self.history.as_ref().map(|history| history.report())
    }

    fn total(&self) -> Total {
        self.totals.sum()
    }

    fn peers(&self) -> Vec<PeerReport> {
        vec![PeerReport {
            key: self.config.peer_key,
            name: Some(self.config.peer.to_string()),
            link: self.link(),
            last_error: self.trouble.last(),
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
