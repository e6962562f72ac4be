//! The values of `refrain status` and its JSON: the gateway, each peer, each flow. The program prints the tables.

mod store;
mod targets;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

pub use refrain_proto::counters::PredictionCounters as Predictions;
use refrain_proto::{
    Exclusion, TrafficClass,
    counters::{
        Count, DirectionCounters, EventCounters, LayerCounters, LinkCounters, WaitCounters,
    },
    effort::{self, EffortReason},
    limited,
    link::{FlowPredictions, FlowStatus, LinkStatus},
    targets::place,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    gateway::{self, Gateway, Turn},
    keys::PublicKey,
    last_error::LastError,
    machine::{cpu_time, resident_bytes},
    options::TRANSPARENT,
    target::FlowTarget,
};
pub use store::{Store, StoreAlso};
pub(crate) use targets::class_name;
pub use targets::{CarriedBytes, TargetTraffic};

/// A gateway as it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// `near` or `far`.
    pub role: String,
    /// The program's version.
    pub version: String,
    /// The instructions that its kernels use: `portable`, `avx2`, `avx512` or `neon`.
    pub kernels: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Seconds of CPU time that its process has taken, in all threads; none from a program that did
    /// not count it.
    #[serde(default)]
    pub cpu_s: Option<f64>,
    /// Which end finds what repeats, as this one wants it: `auto`, `sender`, `receiver`, `off`.
    pub mode: String,
    /// Memory.
    pub memory: Memory,
    /// What it keeps to predict from, if it does.
    pub store: Option<Store>,
    /// What all links carried since it started, those included that are over; 0 from a program that
    /// did not count it.
    #[serde(default)]
    pub total: Total,
    /// What the links of each peer counted since it started, those included that are over, by the
    /// peer's key. Counters of rows begin anew with their links; these never fall.
    #[serde(skip)]
    pub(crate) counted: BTreeMap<PublicKey, LinkCounters>,
    /// What was carried since it started, a row for each target and class; none from a program that
    /// did not count it.
    #[serde(default)]
    pub targets: Vec<TargetTraffic>,
    /// Its listeners for applications; none from a program that did not name them.
    #[serde(default)]
    pub listeners: Vec<Listening>,
    /// The interception of connections; none without a listener for them.
    #[serde(default)]
    pub interception: Option<Interception>,
    /// The names whose TLS it opens; none from one that opens none.
    #[serde(default)]
    pub opening: Option<Opening>,
    /// The last connection from a client's address whose answers did not come here; none if there was none.
    #[serde(default)]
    pub answers_elsewhere: Option<AnswersElsewhere>,
    /// A row a link; a peer without a link has one row too.
    pub peers: Vec<Peer>,
    /// A row a flow.
    pub flows: Vec<Flow>,
}

/// A listener for applications.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listening {
    /// The option that names it, such as `socks5`.
    pub option: String,
    /// Its address, with the port that the system chose for port 0.
    pub address: SocketAddr,
    /// Whether it asks for a password.
    pub asks_password: bool,
    /// The web sites that it serves; none from a program that did not name them.
    #[serde(default)]
    pub sites: Vec<String>,
}

/// The names whose TLS is opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opening {
    /// They, separated by commas.
    pub names: String,
    /// Clients that did not accept a certificate, each with a name: their connections pass.
    pub refused_clients: usize,
    /// Names that could not be opened: connections there pass.
    pub refused_names: usize,
    /// Up to 100 of these clients, each with the name that it connects to.
    #[serde(default)]
    pub passing_clients: Vec<String>,
    /// Up to 100 of these names.
    #[serde(default)]
    pub passing_names: Vec<String>,
}

impl Opening {
    fn of(gateway: &Gateway) -> Option<Opening> {
        let names = gateway.policy.load().opening.describe()?;
        let now = std::time::Instant::now();
        let (refused_clients, refused_names) = gateway.opening.counts(now);
        let (passing_clients, passing_names) = gateway.opening.passing(now);
        Some(Opening {
            names,
            refused_clients,
            refused_names,
            passing_clients,
            passing_names,
        })
    }
}

/// A connection from a client's address that a far end gave up, since the server answers this end's own address only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AnswersElsewhere {
    /// The server and the client.
    pub connection: String,
    /// Seconds since then.
    pub ago_s: f64,
}

impl AnswersElsewhere {
    fn of(gateway: &Gateway) -> Option<AnswersElsewhere> {
        let last = gateway.answers_elsewhere.last()?;
        Some(AnswersElsewhere {
            ago_s: last.age_s(),
            connection: last.text,
        })
    }
}

/// The interception of connections by the firewall.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interception {
    /// Whether new connections may be intercepted. Otherwise they go direct, or are refused by their rule.
    pub gate_open: bool,
    /// Whether `refrain bypass on` closed the gate.
    pub bypassed: bool,
}

impl Interception {
    fn of(gateway: &Gateway) -> Option<Interception> {
        let mut ways_in = gateway.config.ways_in.iter();
        let has_listener = ways_in.any(|way_in| *way_in.option == TRANSPARENT);
        has_listener.then(|| Interception {
            gate_open: gateway.gate.is_open(),
            bypassed: gateway.gate.is_bypassed(),
        })
    }
}

impl Listening {
    fn rows(gateway: &Gateway) -> Vec<Listening> {
        let config = &gateway.config;
        let has_users = gateway.policy.load().access.users.is_some();
        let rows = config.ways_in.iter().zip(gateway.ways_in());
        let rows = rows.map(|(way_in, &address)| Listening {
            option: way_in.option.key.to_owned(),
            address,
            asks_password: has_users && way_in.is_proxy(),
            sites: way_in.sites(),
        });
        rows.collect()
    }
}

/// The bound on memory, in bytes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Memory {
    /// What all links may hold together.
    pub bound_bytes: u64,
    /// What they have reserved of it.
    pub reserved_bytes: u64,
    /// What their caches, tables and second stages take now. Buffers, the store's index and the
    /// program itself are not in it.
    pub allocated_bytes: u64,
    /// What the whole process has resident, where the system says so.
    #[serde(default)]
    pub resident_bytes: Option<u64>,
}

/// What all links carried; it says nothing of caches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Total {
    /// What this end sent.
    pub sent: Direction,
    /// What this end received.
    pub received: Direction,
}

/// Which end drives one direction of a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Driver {
    /// `sender`, `receiver`, or `nobody`.
    pub by: String,
    /// Why.
    pub reason: String,
    /// How often chains break, 0 to 255, where there are predictions.
    pub dispersion: Option<u8>,
}

/// A peer and its link.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Its name or address, if it has one.
    pub name: Option<String>,
    /// Where a near end finds it.
    #[serde(default)]
    pub address: Option<String>,
    /// Its key.
    pub key: String,
    /// Whether a lane is up.
    pub up: bool,
    /// Whether a near end's new flows go there, where nothing names another peer for them.
    #[serde(default)]
    pub serves: Option<bool>,
    /// Why.
    #[serde(default)]
    pub serves_reason: Option<String>,
    /// Seconds since its link lost its last lane; `None` while it is up, or without a link.
    pub down_s: Option<f64>,
    /// What last went wrong, until it goes well again.
    pub last_error: Option<String>,
    /// Seconds since that was last met.
    pub last_error_s: Option<f64>,
    /// Lanes that are up.
    pub lanes: usize,
    /// Lanes that loss holds up.
    pub(crate) lanes_held_up: usize,
    /// Smoothed round trip.
    pub round_trip_ms: Option<f64>,
    /// Present effort of this end's sender.
    pub effort: Option<Effort>,
    /// What this end sends.
    pub sent: Direction,
    /// What this end receives.
    pub received: Direction,
    /// Open flows.
    pub flows_open: usize,
    /// Holes in this end's log now.
    pub holes: usize,
    /// Plain bytes that are held in memory for what this end offered.
    pub offered_bytes_held: u64,
    /// How long the sending of its flows waited since the link began, summed over open and ended flows.
    #[serde(default)]
    pub limited_by: LimitedBy,
    /// What happened since the link began.
    #[serde(flatten)]
    pub counters: EventCounters,
}

/// How hard the sender tries, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Effort {
    /// Sampling period.
    pub period_bytes: u16,
    /// zstd's level.
    pub zstd_level: i32,
    /// Why these.
    pub reason: String,
}

impl Effort {
    pub(crate) fn of(effort: effort::Effort, reason: EffortReason) -> Effort {
        Effort {
            period_bytes: effort.period_bytes,
            zstd_level: effort.level,
            reason: reason.to_string(),
        }
    }
}

/// One direction of a link or a flow.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Direction {
    /// Plain bytes of applications.
    pub app_bytes: u64,
    /// Bytes on the link; for a link with all of TLS, for a flow its own blocks' frames.
    pub link_bytes: u64,
    /// What Max-Match or Chunk-Match saved, net of its tokens.
    pub matching_saved_bytes: i64,
    /// What confirmed predictions stood for.
    pub prediction_saved_bytes: u64,
    /// What zstd saved of the rest.
    pub zstd_saved_bytes: i64,
    /// What went outside of the cache.
    pub bypassed_blocks: u64,
    /// Blocks.
    pub blocks: u64,
    /// Size of the cache; 0 for a flow and in a total.
    pub cache_bytes: u64,
    /// How much of it is filled; 0 for a flow and in a total.
    pub cache_filled_bytes: u64,
    /// Predictions.
    pub predictions: Predictions,
}

/// A flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// Its number in its link.
    pub id: u64,
    /// The peer's name or key.
    pub peer: String,
    /// Its target.
    pub target: String,
    /// The client whose address the target sees, if a rule has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// `out` if this end opened it, `in` if the peer did.
    pub opened: String,
    /// Seconds since it was opened.
    pub age_s: f64,
    /// `ordinary`, `full-entropy`, `excluded` or `unknown`.
    pub class: String,
    /// The lane that carries it.
    pub lane: u32,
    /// What this end sent.
    pub sent: Direction,
    /// What this end received.
    pub received: Direction,
    /// Which end drives what this one sends, and why.
    pub send_driver: Driver,
    /// The same for what it receives.
    pub receive_driver: Driver,
    /// How long this end's sending waited, and for what.
    #[serde(default)]
    pub limited_by: LimitedBy,
}

/// How long the sending of a flow waited, by cause. The rest of its age it had nothing to send.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct LimitedBy {
    /// Seconds for its reader at the other end, which takes slowly what has come.
    pub reader_s: f64,
    /// Seconds for credit of the link's window, while the reader keeps up.
    pub credit_s: f64,
    /// Seconds for the sockets of the link.
    pub link_s: f64,
    /// Seconds for this end's processor: matching, compression, encryption.
    pub processor_s: f64,
}

impl Status {
    /// The gateway as it stands now.
    pub fn of(gateway: &Gateway) -> Status {
        let (counted, targets) = gateway.totals.sum();
        let config = &gateway.config;
        let bound_bytes = config.memory.0;
        let mut sum = LinkCounters::default();
        counted.values().for_each(|of_peer| sum.add(of_peer));
        let mut status = Status {
            role: config.role.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernels: config.matching.backend.instruction_set().to_string(),
            uptime_s: gateway.started.elapsed().as_secs_f64(),
            cpu_s: Some(cpu_time().as_secs_f64()),
            memory: Memory {
                bound_bytes,
                reserved_bytes: bound_bytes - gateway.budget.free_bytes(),
                allocated_bytes: 0,
                resident_bytes: resident_bytes(),
            },
            mode: config.mode.to_string(),
            store: gateway.history.as_ref().map(|it| Store::of(it.report())),
            targets: TargetTraffic::rows(&targets),
            total: Total {
                sent: Direction::of(&sum.sent),
                received: Direction::of(&sum.received),
            },
            counted,
            listeners: Listening::rows(gateway),
            opening: Opening::of(gateway),
            interception: Interception::of(gateway),
            answers_elsewhere: AnswersElsewhere::of(gateway),
            peers: Vec::new(),
            flows: Vec::new(),
        };
        for (peer, turn) in gateway.peers() {
            let called = peer.name().unwrap_or_else(|| peer.key.to_string());
            let row = Peer::of(&peer, turn);
            let links = peer.links();
            if links.is_empty() {
                status.peers.push(row.clone());
            }
            for link in links {
                let stand = link.status();
                status.memory.allocated_bytes += stand.allocated_bytes as u64;
                let flows = stand.flows.iter();
                let flows = flows.map(|flow| Flow::of(flow, &called));
                status.flows.extend(flows);
                let gone_at = link.lanes_gone_at();
                status.peers.push(row.clone().with_link(&stand, gone_at));
            }
        }
        status
    }
}

impl Peer {
    /// A peer without a link.
    fn of(peer: &gateway::Peer, turn: Turn) -> Peer {
        let last_error = peer.trouble.last();
        let dialled = peer.dialled.as_ref();
        Peer {
            name: peer.name(),
            address: dialled.map(|dialled| dialled.address.to_string()),
            serves: dialled.map(|_| turn.serves),
            serves_reason: dialled.map(|_| turn.reason.to_owned()),
            key: peer.key.to_string(),
            last_error_s: last_error.as_ref().map(LastError::age_s),
            last_error: last_error.map(|last| last.text),
            ..Peer::default()
        }
    }

    fn with_link(self, link: &LinkStatus, gone_at: Option<Instant>) -> Peer {
        let mut peer = self;
        peer.counters = link.counters.events;
        peer.limited_by = LimitedBy::from(link.counters.waits);
        let up = link.lanes.iter().filter(|lane| lane.is_up);
        peer.lanes = up.clone().count();
        peer.up = peer.lanes > 0;
        if !peer.up {
            peer.down_s = gone_at.map(|at| at.elapsed().as_secs_f64());
        }
        peer.lanes_held_up = up.filter(|lane| lane.is_held_up).count();
        peer.round_trip_ms = link.round_trip.map(|time| time.as_secs_f64() * 1e3);
        peer.effort = Some(Effort::of(link.effort, link.effort_reason));
        peer.flows_open = link.flows.len();
        peer.holes = link.holes;
        peer.offered_bytes_held = link.offered_bytes_held;
        for (direction, counters, of_link) in [
            (&mut peer.sent, &link.counters.sent, &link.sent),
            (&mut peer.received, &link.counters.received, &link.received),
        ] {
            *direction = Direction::of(counters);
            direction.cache_bytes = of_link.cache_bytes;
            direction.cache_filled_bytes = of_link.cache_filled_bytes;
        }
        peer
    }
}

impl Peer {
    /// What it is called: by its name, or the short form of its key.
    pub fn label(&self) -> String {
        let short = || self.key.parse().map(|key: PublicKey| key.fingerprint());
        let name = self.name.clone();
        name.unwrap_or_else(|| short().unwrap_or_else(|_| self.key.clone()))
    }

    /// Adds another link of the same peer, without what either counted.
    pub(crate) fn add(&mut self, other: &Peer) {
        self.up |= other.up;
        self.lanes += other.lanes;
        self.lanes_held_up += other.lanes_held_up;
        self.flows_open += other.flows_open;
        self.holes += other.holes;
        self.offered_bytes_held += other.offered_bytes_held;
        self.sent.add_cache(&other.sent);
        self.received.add_cache(&other.received);
        self.down_s = match (self.up, self.down_s, other.down_s) {
            (true, ..) => None,
            (false, Some(one), Some(other)) => Some(one.min(other)),
            (false, one, other) => one.or(other),
        };
        if other.up {
            self.round_trip_ms = other.round_trip_ms;
            self.effort = other.effort.clone();
        }
    }
}

impl Direction {
    pub(crate) fn add_cache(&mut self, other: &Direction) {
        self.cache_bytes += other.cache_bytes;
        self.cache_filled_bytes += other.cache_filled_bytes;
    }

    /// What was counted of a direction; nothing of its cache.
    pub(crate) fn of(counters: &DirectionCounters) -> Direction {
        let layers = &counters.layers;
        Direction {
            app_bytes: layers.app_bytes,
            link_bytes: counters.link_bytes,
            matching_saved_bytes: layers.matching_saved_bytes(),
            prediction_saved_bytes: layers.confirmed_bytes,
            zstd_saved_bytes: layers.second_stage_saved_bytes(),
            bypassed_blocks: layers.bypassed_blocks,
            blocks: layers.blocks,
            predictions: counters.predictions,
            ..Direction::default()
        }
    }
}

/// Why nothing is looked for in an excluded flow.
fn excluded(why: Exclusion) -> String {
    match why {
        Exclusion::Rule => "excluded by a rule".to_owned(),
        _ => format!("encrypted: {}", class_name(TrafficClass::Excluded(why))),
    }
}

/// Why a direction has no predictions, as far as its sender knows.
const UNPREDICTED: &str = "nothing is predicted";

impl Driver {
    /// What `predictions` say of one direction of a flow, in a link whose ends keep a cache of that
    /// direction or not. Both ends say the same: until something is on offer, what is found is found
    /// by the sender. `unpredicted` is why nothing is.
    fn of(
        predictions: Option<&FlowPredictions>,
        class: Option<TrafficClass>,
        has_cache: bool,
        unpredicted: &str,
    ) -> Driver {
        let offers = predictions.map_or(0, |known| known.counters.offers);
        let (by, reason) = match predictions {
            _ if let Some(TrafficClass::Excluded(why)) = class => ("nobody", excluded(why)),
            Some(predictions) if predictions.by_sender => {
                ("sender", "chains break often".to_owned())
            }
            Some(predictions) if predictions.counters.confirmed > 0 => {
                ("receiver", "predictions are right".to_owned())
            }
            _ if offers > 0 => (
                "receiver",
                "nothing that was predicted has come yet".to_owned(),
            ),
            _ => {
                let by = if has_cache { "sender" } else { "nobody" };
                (by, unpredicted.to_owned())
            }
        };
        Driver {
            by: by.to_owned(),
            reason,
            dispersion: predictions.map(|predictions| predictions.dispersion),
        }
    }
}

impl Flow {
    pub(crate) fn of(flow: &FlowStatus, peer: &str) -> Flow {
        let (sending, receiving) = (&flow.send_predictions, &flow.receive_predictions);
        let of = |layers: &LayerCounters, predictions: &Option<FlowPredictions>| {
            Direction::of(&DirectionCounters {
                layers: *layers,
                link_bytes: layers.block_bytes,
                predictions: predictions.map_or_else(Predictions::default, |known| known.counters),
            })
        };
        let link = &flow.link;
        let unpredicted = match link.offers_heeded {
            Some(true) => "nothing known has come yet",
            Some(false) => "the other end heeds no predictions",
            None => UNPREDICTED,
        };
        let client = FlowTarget::from_wire(&flow.target).ok();
        let client = client.and_then(|target| target.client);
        let target = place(&flow.target).to_owned();
        Flow {
            id: flow.id.0,
            peer: peer.to_owned(),
            target,
            client,
            opened: if flow.opened_here { "out" } else { "in" }.to_owned(),
            age_s: flow.age.as_secs_f64(),
            class: match flow.class {
                TrafficClass::Unknown => "unknown",
                TrafficClass::Ordinary => "ordinary",
                TrafficClass::FullEntropy => "full-entropy",
                TrafficClass::Excluded(_) => "excluded",
            }
            .to_owned(),
            lane: flow.lane.0,
            sent: of(&flow.sent, sending),
            received: of(&flow.received, receiving),
            send_driver: Driver::of(
                sending.as_ref(),
                Some(flow.class),
                link.sent_cache_bytes > 0,
                UNPREDICTED,
            ),
            receive_driver: Driver::of(
                receiving.as_ref(),
                None,
                link.received_cache_bytes > 0,
                unpredicted,
            ),
            limited_by: LimitedBy::from(flow.limited_by),
        }
    }
}

impl From<limited::LimitedBy> for LimitedBy {
    fn from(limited_by: limited::LimitedBy) -> Self {
        Self {
            reader_s: limited_by.reader.as_secs_f64(),
            credit_s: limited_by.credit.as_secs_f64(),
            link_s: limited_by.link.as_secs_f64(),
            processor_s: limited_by.processor.as_secs_f64(),
        }
    }
}

impl From<WaitCounters> for LimitedBy {
    fn from(waits: WaitCounters) -> Self {
        let seconds = |us: u64| us as f64 / 1e6;
        Self {
            reader_s: seconds(waits.reader_us),
            credit_s: seconds(waits.credit_us),
            link_s: seconds(waits.link_us),
            processor_s: seconds(waits.processor_us),
        }
    }
}
