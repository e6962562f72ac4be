//! What a suite of runs must have met. A suite in which one of these never happened
//! proves less than it seems to.

/// Something that happens in some runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A flow ended both ways without an error, at one end.
    FlowCompleted,
    /// An application ended its direction and went on to read.
    HalfClose,
    /// An application reset a flow.
    ResetByApplication,
    /// A flow ended because its lane died, at one end.
    ResetByLane,
    /// A target refused a flow.
    Refusal,
    /// A writer was told to wait, and later to go on.
    WriterHeldBack,
    /// A reader that takes bytes much more slowly than they come.
    SlowReader,
    /// An end that takes no more flows.
    Drain,
    /// Both ends noticed that a lane's transport broke, one after the other.
    LaneCut,
    /// A lane's transport went silent without a word.
    LaneSilenced,
    /// An end found a lane silent and gave it up.
    LaneFoundSilent,
    /// An end gave a lane up because the other one had.
    LaneClosedByPeer,
    /// A lane ended that nothing used.
    LaneSpared,
    /// Bytes reached an end after the other one had given their lane up.
    LateRead,
    /// Bytes overtook others that had left before on another lane.
    Overtaking,
    /// A lane that could not be dialled for a while.
    Blackout,
    /// A lane stalled, as after a loss.
    Stall,
    /// The engine asked for a further lane.
    LaneWanted,
    /// A flow took a further lane, because loss held up its own.
    StrandAdded,
    /// A dead lane's unacknowledged blocks became a hole.
    Hole,
    /// A block left outside of the log.
    BypassedBlock,
    /// The guard window was found full.
    FullWindow,
    /// More was written than a cache holds.
    CacheWrapped,
    /// A link got a lane again after all had died, with its caches.
    Reunion,
    /// References were used after a reunion.
    ReunionHit,
    /// The near end's process died and came back.
    NearRestart,
    /// The far end's process died and came back.
    FarRestart,
    /// The near end found out that the far one had restarted.
    RestartFound,
    /// A bit flipped on its way.
    FlippedBit,
    /// One of a confirmation did.
    AlteredConfirmation,
    /// One of offers did: a wrong length, hint or signature.
    AlteredOffer,
    /// A frame was cut short, and others followed it.
    TruncatedFrame,
    /// A frame came twice.
    DuplicatedFrame,
    /// A frame never came, and others followed it.
    DroppedFrame,
    /// A lane ended because what came on it broke the protocol.
    LaneViolation,
    /// A link ended because the caches contradicted each other.
    CacheViolation,
    /// A receiver offered what it expected.
    OfferMade,
    /// A sender confirmed an offer.
    OfferConfirmed,
    /// Bytes left before a right offer of them came.
    OfferOvertaken,
    /// An offer came to nothing.
    OfferWithdrawn,
    /// A confirmation did not hold, since a history lied or bytes were damaged.
    Misconfirmed,
    /// A sender took a flow over whose chains kept breaking.
    DrivenBySender,
    /// A lane broke at an end that had offers out.
    LaneLostAmidOffers,
    /// A history forgot chunks while flows asked for them.
    Eviction,
    /// It did while offers were out.
    EvictionAmidOffers,
}

/// How often each kind occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds {
    counts: [u64; Kind::ALL.len()],
}

impl Kind {
    /// Each kind, in the order in which reports name them.
    pub const ALL: [Self; 45] = [
        Self::FlowCompleted,
        Self::HalfClose,
        Self::ResetByApplication,
        Self::ResetByLane,
        Self::Refusal,
        Self::WriterHeldBack,
        Self::SlowReader,
        Self::Drain,
        Self::LaneCut,
        Self::LaneSilenced,
        Self::LaneFoundSilent,
        Self::LaneClosedByPeer,
        Self::LaneSpared,
        Self::LateRead,
        Self::Overtaking,
        Self::Blackout,
        Self::Stall,
        Self::LaneWanted,
        Self::StrandAdded,
        Self::Hole,
        Self::BypassedBlock,
        Self::FullWindow,
        Self::CacheWrapped,
        Self::Reunion,
        Self::ReunionHit,
        Self::NearRestart,
        Self::FarRestart,
        Self::RestartFound,
        Self::FlippedBit,
        Self::AlteredConfirmation,
        Self::AlteredOffer,
        Self::TruncatedFrame,
        Self::DuplicatedFrame,
        Self::DroppedFrame,
        Self::LaneViolation,
        Self::CacheViolation,
        Self::OfferMade,
        Self::OfferConfirmed,
        Self::OfferOvertaken,
        Self::OfferWithdrawn,
        Self::Misconfirmed,
        Self::DrivenBySender,
        Self::LaneLostAmidOffers,
        Self::Eviction,
        Self::EvictionAmidOffers,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FlowCompleted => "flows_completed",
            Self::HalfClose => "half_closes",
            Self::ResetByApplication => "resets_by_application",
            Self::ResetByLane => "resets_by_lane",
            Self::Refusal => "refusals",
            Self::WriterHeldBack => "writers_held_back",
            Self::SlowReader => "slow_readers",
            Self::Drain => "drains",
            Self::LaneCut => "lanes_cut",
            Self::LaneSilenced => "lanes_silenced",
            Self::LaneFoundSilent => "lanes_found_silent",
            Self::LaneClosedByPeer => "lanes_closed_by_peer",
            Self::LaneSpared => "lanes_spared",
            Self::LateRead => "late_reads",
            Self::Overtaking => "overtakings",
            Self::Blackout => "blackouts",
            Self::Stall => "stalls",
            Self::LaneWanted => "lanes_wanted",
            Self::StrandAdded => "strands_added",
            Self::Hole => "holes",
            Self::BypassedBlock => "bypassed_blocks",
            Self::FullWindow => "full_windows",
            Self::CacheWrapped => "caches_wrapped",
            Self::Reunion => "reunions",
            Self::ReunionHit => "reunion_hits",
            Self::NearRestart => "near_restarts",
            Self::FarRestart => "far_restarts",
            Self::RestartFound => "restarts_found",
            Self::FlippedBit => "flipped_bits",
            Self::AlteredConfirmation => "altered_confirmations",
            Self::AlteredOffer => "altered_offers",
            Self::TruncatedFrame => "truncated_frames",
            Self::DuplicatedFrame => "duplicated_frames",
            Self::DroppedFrame => "dropped_frames",
            Self::LaneViolation => "lane_violations",
            Self::CacheViolation => "cache_violations",
            Self::OfferMade => "offers_made",
            Self::OfferConfirmed => "offers_confirmed",
            Self::OfferOvertaken => "offers_overtaken",
            Self::OfferWithdrawn => "offers_withdrawn",
            Self::Misconfirmed => "misconfirmed",
            Self::DrivenBySender => "driven_by_sender",
            Self::LaneLostAmidOffers => "lanes_lost_amid_offers",
            Self::Eviction => "evictions",
            Self::EvictionAmidOffers => "evictions_amid_offers",
        }
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            counts: [0; Kind::ALL.len()],
        }
    }
}

impl Kinds {
    /// How often `kind` occurred.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// Kinds that never occurred.
    pub fn missing(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.into_iter().filter(|&kind| self.count(kind) == 0)
    }

    pub(crate) fn note(&mut self, kind: Kind) {
        self.note_many(kind, 1);
    }

    pub(crate) fn note_many(&mut self, kind: Kind, times: u64) {
        self.counts[kind as usize] += times;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }
}
