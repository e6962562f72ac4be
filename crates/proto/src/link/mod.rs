//! A link: everything that two peers share, as one end sees it.
//!
//! The engine does no I/O. Its caller owns the lanes' transports and the applications'
//! connections, and
//!
//! - hands over what came: [`Link::receive`], [`Link::write`] or [`Link::write_and_confirm`],
//!   [`Link::finish`], [`Link::reset`], [`Link::close_lane`];
//! - after any call, takes the [`Event`]s: [`Link::poll_event`], until `None`;
//! - on [`Event::Transmit`], and whenever a lane's transport has room, takes what shall
//!   be sent: [`Link::poll_transmit`], until it gives nothing;
//! - if the link has a history, takes what it is asked: [`Link::poll_history`], and brings the
//!   answers: [`Link::history_answered`];
//! - while little moves, may prefault the caches: [`Link::poll_prefault`];
//! - calls [`Link::handle_timeout`] at [`Link::poll_timeout`], which may move after any call.
//!
//! | file | what |
//! |---|---|
//! | `lanes` | hellos, death and settlement of lanes |
//! | `frames` | what comes: frames to events |
//! | `transmit` | what goes: flows in turn, blocks, acknowledgements |
//! | `flows` | the applications' side |
//! | `predictions` | this end's offers, and its history |
//! | `confirming` | the other end's offers, and what is confirmed of them |
//! | `strands` | flows on several lanes, because theirs is held up or busy |
//! | `timers` | deadlines |
//! | `status` | what users see |

mod confirming;
mod flows;
mod frames;
mod lanes;
mod predictions;
mod status;
mod strands;
mod timers;
mod transmit;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use refrain_codec::{
    EncoderConfig, LogPosition, Prefault, chunk::hash::ChunkHasher, geometry::CacheGeometry,
    marker::MarkerFinder, matching::MatchingAlgorithm, simd::Backend,
};

pub use flows::OpenError;
pub use lanes::LaneRefused;
pub use status::{
    DirectionStatus, FlowPredictions, FlowStatus, LaneStatus, LinkSetting, LinkStatus,
};
pub use timers::smoothed_round_trip;

use crate::{
    counters::LinkCounters,
    credit::{ReceiveWindow, SendWindow},
    effort::{EffortControl, EffortMode},
    fault::{LaneFault, LinkFault},
    flow::Flow,
    frame::{FlowId, LaneId},
    in_order::Spares,
    limits::{BLOCK_BYTES_MAX, FLOWS_MAX, LANES_MAX, PENDING_BYTES_LINK_MAX, WINDOW_BYTES_MAX},
    matching::{receiver::Receiver, sender::Sender, unproven::Unproven},
    mode::{Mode, SecondStage},
    moment::Moment,
    predictions::{history::HistoryConfig, link_history::LinkHistory},
    targets::TargetCounts,
    terms::{OfferKey, OfferTerms},
};
use lanes::{DeadLane, Lane};

/// Which end of the link this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that dials lanes; its flows have even numbers.
    Near,
    /// The end that accepts them; its flows have odd numbers.
    Far,
}

/// What a link is made of, at one end.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// What this end does about what repeats.
    pub mode: Mode,
    /// How this end predicts as a receiver, if it has a history to predict from.
    pub history: Option<HistoryConfig>,
    /// Cache that this end can keep as a sender; the smaller of both ends' counts.
    pub send_cache: CacheGeometry,
    /// Cache that this end can keep as a receiver.
    pub receive_cache: CacheGeometry,
    /// How repeats are found.
    pub matching: MatchingAlgorithm,
    /// What this end does with what matching leaves, as a sender.
    pub second_stage: SecondStage,
    /// How markers are selected.
    pub markers: MarkerFinder,
    /// The digest of Chunk-Match.
    pub chunk_hasher: ChunkHasher,
    /// The kernels to encode with.
    pub backend: Backend,
    /// How effort is chosen.
    pub effort: EffortMode,
    /// The rung of the ladder that the last link to this peer ended on.
    pub first_rung: Option<usize>,
    /// Most flows at once.
    pub flows_max: usize,
    /// The option that sets this bound, for the words of a refusal.
    pub flows_max_option: &'static str,
    /// Most lanes alive at once, 1 to [`LANES_MAX`].
    pub lanes_max: usize,
    /// Plain bytes that all flows may hold for their readers, beyond the floor of each.
    pub window_bytes: u64,
    /// Plain bytes that all flows may have waiting for their lanes.
    pub pending_bytes_max: usize,
    /// Most plain bytes in a block, 1 to [`BLOCK_BYTES_MAX`]. What a slow link takes long to
    /// carry, other flows wait for.
    pub block_bytes_max: usize,
    /// A lane on which nothing came for so long although it was pinged is dead; never less
    /// than four round trips.
    pub dead_after: Duration,
}

/// One end of a link. See the module's documentation for what to call when.
pub struct Link {
    role: Role,
    config: LinkConfig,
    instance: u64,
    peer_instance: Option<u64>,
    caches: Caches,
    lanes: BTreeMap<LaneId, Lane>,
    dead_lanes: BTreeMap<LaneId, DeadLane>,
    next_lane: u32,
    /// Boxed: nodes of the map have room for more entries than they hold.
    flows: BTreeMap<FlowId, Box<Flow>>,
    next_flow: FlowId,
    /// The other end's flows have numbers below this.
    peer_flows_end: FlowId,
    /// What the other end can hold, shared among this end's senders.
    send_window: SendWindow,
    /// What this end can hold for its readers.
    receive_window: ReceiveWindow,
    /// Plain bytes that wait for lanes, of all flows.
    pending_bytes: usize,
    /// Writers that the sum of them holds back, in the order in which they came.
    held_writers: BTreeMap<u64, FlowId>,
    /// How many writers were held back so far.
    writers_held: u64,
    /// Full-entropy bytes in the log that nothing has referred to yet.
    unproven: Unproven,
    /// What was carried, by target and class.
    targets: TargetCounts,
    /// Runs of bytes that came early, of all flows.
    early_runs: usize,
    /// For the next pieces that applications take.
    spare_pieces: Spares,
    /// What this end's receivers ask of the history, if it makes offers.
    history: Option<LinkHistory>,
    /// What this end's senders need to check offers, if both ends want that.
    offer_check: Option<(OfferTerms, OfferKey)>,
    /// Whether both ends count confirmations as they count blocks.
    counts_confirmations: bool,
    /// Whether the other end said that it speaks TLS with targets.
    peer_speaks_tls_to_targets: bool,
    peer_knows_secret_blocks: bool,
    /// Offers that this end's senders keep, of all flows.
    offers_kept: usize,
    /// Flows that are to be looked at again.
    wake_ups: Vec<(Moment, FlowId)>,
    effort: EffortControl,
    /// Since when writers wait for readers, and no lane is written to.
    held_up_since: Option<Moment>,
    round_trip: Option<Duration>,
    /// When loss last held up a lane; forgotten after a while.
    loss_seen_at: Option<Moment>,
    /// Since when the window is full, and where *done* stood then.
    window_wait: Option<WindowWait>,
    draining: bool,
    peer_draining: bool,
    fault: Option<LinkFault>,
    events: VecDeque<Event>,
    /// What this link counted, and its flows that are over.
    counters: LinkCounters,
}

/// The caches of both directions.
struct Caches {
    sender: Sender,
    receiver: Receiver,
    /// Whether the hellos have agreed on their sizes. Before that there are none.
    are_agreed: bool,
    /// `None`: this direction keeps none.
    send_geometry: Option<CacheGeometry>,
    receive_geometry: Option<CacheGeometry>,
}

#[derive(Clone, Copy, Debug)]
struct WindowWait {
    done: LogPosition,
    since: Moment,
    /// Whether flows were told that it ended.
    has_ended: bool,
}

/// What an engine has to say to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lane's hellos are exchanged; it carries flows.
    LaneUp(LaneId),
    /// Close the lane's transport; the engine has forgotten it.
    LaneDown(LaneId, LaneFault),
    /// The lane has something to send.
    Transmit(LaneId),
    /// Loss holds up lanes: as many as the link may have would help (near end only).
    WantLanes,
    /// The other end opened a flow: connect to its target, then [`Link::accept_flow`] or
    /// [`Link::refuse_flow`].
    FlowOffered {
        /// The flow.
        flow: FlowId,
        /// `host:port`, and words that the other end added after a space.
        target: String,
        /// Whether the other end keeps it out of the cache.
        excluded: bool,
    },
    /// The flow's target was reached.
    FlowAccepted(FlowId),
    /// The flow's target was not reached; the flow is over.
    FlowRefused {
        /// The flow.
        flow: FlowId,
        /// The gateways' number for the reason.
        code: u8,
        /// The same in words.
        text: String,
    },
    /// [`Link::take_ready`] has bytes, or the end of them.
    Readable(FlowId),
    /// [`Link::write`] takes bytes again, after it took fewer than it was given.
    Writable(FlowId),
    /// The flow is over: pass it on as a reset.
    FlowReset(FlowId, ResetReason),
    /// A flow is over, both ways: how it stood at last.
    FlowEnded(Box<FlowStatus>),
    /// The other end takes no new flows.
    PeerDraining,
}

/// Why a flow was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// The application at the other end, or its gateway, reset it.
    ByPeer(u8),
    /// Its lane died.
    LaneLost,
    /// The other end confirmed a prediction that was wrong.
    Misconfirmed,
}

impl LinkConfig {
    /// Defaults around a cache of `geometry` in both directions.
    #[must_use]
    pub fn with_cache(geometry: CacheGeometry) -> Self {
        Self {
            mode: Mode::default(),
            history: None,
            send_cache: geometry,
            receive_cache: geometry,
            matching: MatchingAlgorithm::default(),
            second_stage: SecondStage::default(),
            markers: MarkerFinder::default(),
            chunk_hasher: ChunkHasher::default(),
            backend: Backend::best(),
            effort: EffortMode::default(),
            first_rung: None,
            flows_max: FLOWS_MAX,
            flows_max_option: "a limit of the protocol",
            lanes_max: LANES_MAX,
            window_bytes: WINDOW_BYTES_MAX,
            pending_bytes_max: PENDING_BYTES_LINK_MAX,
            block_bytes_max: BLOCK_BYTES_MAX,
            dead_after: Duration::from_secs(4),
        }
    }

    /// What a hello says of a cache.
    fn cache_bytes(&self, cache: CacheGeometry) -> u64 {
        match self.mode.keeps_caches() {
            true => cache.cache_bytes() as u64,
            false => 0,
        }
    }

    fn encoder(&self, geometry: CacheGeometry) -> EncoderConfig {
        EncoderConfig {
            geometry,
            matching: self.matching,
            markers: self.markers.clone(),
            chunk_hasher: self.chunk_hasher,
            backend: self.backend,
        }
    }
}

impl Link {
    /// A link with empty caches and no lanes. `instance` is drawn at random, never 0, and
    /// never used twice.
    ///
    /// # Panics
    /// If `instance` is 0.
    #[must_use]
    pub fn new(role: Role, instance: u64, config: LinkConfig) -> Self {
        assert_ne!(instance, 0, "0 stands for no instance on the wire");
        let (own, peer) = match role {
            Role::Near => (FlowId(0), FlowId(1)),
            Role::Far => (FlowId(1), FlowId(0)),
        };
        let effort = EffortControl::new(config.effort, config.first_rung);
        Self {
            role,
            instance,
            peer_instance: None,
            caches: Caches::new(config.backend, effort.effort().level),
            lanes: BTreeMap::new(),
            dead_lanes: BTreeMap::new(),
            next_lane: 0,
            flows: BTreeMap::new(),
            next_flow: own,
            peer_flows_end: peer,
            send_window: SendWindow::default(),
            receive_window: ReceiveWindow::new(config.window_bytes),
            pending_bytes: 0,
            held_writers: BTreeMap::new(),
            writers_held: 0,
            unproven: Unproven::default(),
            targets: TargetCounts::default(),
            early_runs: 0,
            spare_pieces: Spares::default(),
            history: config
                .history
                .clone()
                .filter(|_| config.mode.predicts())
                .map(LinkHistory::new),
            offer_check: None,
            counts_confirmations: false,
            peer_speaks_tls_to_targets: false,
            peer_knows_secret_blocks: false,
            offers_kept: 0,
            wake_ups: Vec::new(),
            effort,
            held_up_since: None,
            config,
            round_trip: None,
            loss_seen_at: None,
            window_wait: None,
            draining: false,
            peer_draining: false,
            fault: None,
            events: VecDeque::new(),
            counters: LinkCounters::default(),
        }
    }

    /// This end's number for the link.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// The other end's number for the link, once it said it.
    #[must_use]
    pub fn peer_instance(&self) -> Option<u64> {
        self.peer_instance
    }

    /// The next thing to tell the caller.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`poll_prefault`](Self::poll_prefault) would give something.
    #[must_use]
    pub fn wants_prefault(&self) -> bool {
        self.caches.sender.wants_prefault() || self.caches.receiver.wants_prefault()
    }

    /// A piece of the memory that a cache will need next. Without it the system gives memory as blocks come, and they wait
    /// for that. Beyond what a cache has filled it never has more than was written to it, nor more than 64 MiB.
    pub fn poll_prefault(&mut self) -> Option<Prefault> {
        let Caches {
            sender, receiver, ..
        } = &mut self.caches;
        sender.prefault().or_else(|| receiver.prefault())
    }

    /// Why the link is over, if it is.
    #[must_use]
    pub fn fault(&self) -> Option<LinkFault> {
        self.fault
    }

    /// The rung of the ladder that this end's sender stands on: where the next link to the same peer may begin.
    #[must_use]
    pub fn effort_rung(&self) -> usize {
        self.effort.rung()
    }

    fn smoothed_round_trip(&self) -> Duration {
        /// Until something was measured: a distant link.
        const UNKNOWN: Duration = Duration::from_millis(100);
        self.round_trip.unwrap_or(UNKNOWN)
    }
}

/// The keys of those values that `is_meant`, taken out of a map that will change.
fn keys_where<K: Copy, V>(map: &BTreeMap<K, V>, is_meant: impl Fn(&V) -> bool) -> Vec<K> {
    let meant = map.iter().filter(|(_, value)| is_meant(value));
    meant.map(|(&key, _)| key).collect()
}
