//! What breaks in a run, and when.

use std::time::Duration;

use fastrand::Rng;
use refrain_codec::{
    chunk::stream::ChunkBounds,
    geometry::CACHE_BYTES_MIN,
    marker::{MarkerAlgorithm, PackMask},
    matching::MatchingAlgorithm,
};
use refrain_proto::{
    Mode,
    effort::EffortMode,
    limits::BLOCK_BYTES_MAX,
    predictions::history::{HistoryConfig, Predict},
};

use crate::{End, kinds::Kind};

/// Troubles come within the first part of a run.
pub(crate) const TROUBLE_ENDS: Duration = Duration::from_secs(6);

/// Something that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A transport breaks; both ends notice, each in its own time.
    Cut,
    /// A transport breaks, and one end notices.
    CutAtOneEnd(End),
    /// What this end says on a transport is lost from now on.
    Silence(End),
    /// A transport stands still for a while.
    Stall,
    /// All transports break: a reunion, if both ends live.
    CutAll,
    /// A transport breaks with blocks in flight, which come late, while word of it stalls and
    /// another transport carries more than a window: the case of `docs/architecture.md`, 6.
    LateBlocks(End),
    /// No transport can be had for a while.
    Blackout,
    /// A process dies and comes back at once, with nothing.
    Restart(End),
    /// An end takes no more flows.
    Drain(End),
    /// The near end leaves a lane that it does not need. It harms nothing.
    Spare,
    /// A transport does this to what it carries.
    Harm(Kind),
}

/// Everything about a run that is drawn at its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// In order of time.
    pub(crate) troubles: Vec<(Duration, Trouble)>,
    /// When flows are opened, and by whom.
    pub(crate) openings: Vec<(Duration, End)>,
    pub(crate) lanes: usize,
    pub(crate) delay_ms_max: u64,
    /// On transports, one piece of so many stands still; 0 for none.
    pub(crate) stalls_one_of: u32,
    /// What the engine is told that encoding took.
    pub(crate) encoding: Duration,
    /// One flow of so many is large.
    pub(crate) large_one_of: u8,
    pub(crate) large_bytes_max: usize,
    /// Of the near end and of the far one.
    pub(crate) cache_bytes: [usize; 2],
    pub(crate) matching: MatchingAlgorithm,
    pub(crate) marker_algorithm: MarkerAlgorithm,
    pub(crate) effort: EffortMode,
    /// Limits of the links, low enough to be reached.
    pub(crate) flows_max: usize,
    pub(crate) window_bytes: u64,
    pub(crate) pending_bytes_max: usize,
    /// As where a link has a rate.
    pub(crate) block_bytes_max: usize,
    /// What the ends do about predictions, where they have histories.
    pub(crate) foresight: Option<Foresight>,
}

/// Histories, and what is done with them.
#[derive(Clone, Debug)]
pub(crate) struct Foresight {
    /// Of the near end and of the far one.
    pub(crate) modes: [Mode; 2],
    pub(crate) histories: [Option<HistoryConfig>; 2],
    /// Longest time that a history takes for an answer.
    pub(crate) answer_ms_max: u64,
    /// One answer of so many comes when some chunks are forgotten.
    pub(crate) forgets_one_of: u32,
    /// Histories that return what is not theirs.
    pub(crate) lies: [bool; 2],
    /// One flow of so many repeats another, with some changes.
    pub(crate) repeats_one_of: u8,
}

impl Foresight {
    /// In a third of the runs. The others are what they were before there were predictions.
    fn draw(rng: &mut Rng) -> Option<Self> {
        if rng.u8(..3) > 0 {
            return None;
        }
        let which = rng.u8(..4);
        let histories = [which != 1, which != 0].map(|has| has.then(|| Self::history(rng)));
        let lies = [(); 2].map(|()| rng.u8(..6) == 0);
        let modes = [(); 2].map(|()| match rng.u8(..10) {
            0 => Mode::Sender,
            1 => Mode::Off,
            2..4 => Mode::Receiver,
            _ => Mode::Auto,
        });
        Some(Self {
            modes,
            histories,
            answer_ms_max: [0, 1, 10, 200][rng.usize(..4)],
            forgets_one_of: [0, 0, 200, 40][rng.usize(..4)],
            lies,
            repeats_one_of: [2, 3, 8][rng.usize(..3)],
        })
    }

    /// About the length of a chunk, for changes that break each second one.
    pub(crate) fn chunk_bytes(&self) -> usize {
        let mut histories = self.histories.iter().flatten();
        histories.next().map_or(1000, |history| {
            (1 << history.mask.count()) + history.bounds.bytes_min() as usize
        })
    }

    fn history(rng: &mut Rng) -> HistoryConfig {
        let predict = match rng.u8(..3) {
            0 => Predict::Aligned,
            _ => Predict::Window,
        };
        // Short chunks: flows are short.
        let mask_bits = [8, 9, 10, 13][rng.usize(..4)];
        let bytes_min = [64, 256, 256, 2048][rng.usize(..4)];
        HistoryConfig {
            predict,
            mask: PackMask::with_bits(mask_bits).expect("6 to 15"),
            bounds: ChunkBounds::new(bytes_min, bytes_min * 16).expect("valid bounds"),
            offered_bytes_max: [50_000, 1 << 20, 128 << 20][rng.usize(..3)],
            ..HistoryConfig::default()
        }
    }
}

impl Plan {
    /// `foresight` is drawn apart from the rest.
    pub(crate) fn draw(rng: &mut Rng, foresight: &mut Rng) -> Self {
        let moment =
            |rng: &mut Rng| Duration::from_micros(rng.u64(..TROUBLE_ENDS.as_micros() as u64));
        let foresight = Foresight::draw(foresight);
        let predicts = foresight.is_some();
        let mut troubles: Vec<_> = match rng.u8(..10) {
            0 => Vec::new(),
            weather => (0..rng.usize(1..12))
                .map(|_| {
                    let at = moment(rng);
                    match Trouble::draw(rng, weather, predicts) {
                        // While there are predictions: most flows begin early.
                        trouble @ Trouble::Harm(Kind::AlteredOffer | Kind::AlteredConfirmation) => {
                            (at / 20, trouble)
                        }
                        trouble => (at, trouble),
                    }
                })
                .collect(),
        };
        troubles.sort_by_key(|&(at, _)| at);
        // Early flows in a bunch, as a page's, and others here and there.
        let flows = match rng.u8(..16) {
            0 => 80,
            _ => rng.usize(3..16),
        };
        let openings = (0..flows)
            .map(|_| {
                let at = match rng.bool() {
                    true => moment(rng),
                    false => moment(rng) / 20,
                };
                let end = if rng.u8(..4) == 0 {
                    End::Far
                } else {
                    End::Near
                };
                (at, end)
            })
            .collect();
        let (large_one_of, large_bytes_max) = match rng.u8(..32) {
            0 => (2, 900_000),
            1..10 => (4, 400_000),
            _ => (30, 200_000),
        };
        Self {
            troubles,
            openings,
            lanes: rng.usize(1..=4),
            delay_ms_max: [2, 20, 100, 400][rng.usize(..4)],
            stalls_one_of: [0, 0, 0, 12][rng.usize(..4)],
            encoding: Duration::from_micros([20, 20, 2_000, 50_000][rng.usize(..4)]),
            large_one_of,
            large_bytes_max,
            cache_bytes: [(); 2].map(|()| CACHE_BYTES_MIN + rng.usize(..3) / 2 * 300_000),
            matching: match rng.u8(..4) {
                0 => MatchingAlgorithm::ChunkMatch,
                _ => MatchingAlgorithm::MaxMatch,
            },
            marker_algorithm: match rng.u8(..8) {
                0 => MarkerAlgorithm::Fixed,
                1 => MarkerAlgorithm::Maxp,
                2 => MarkerAlgorithm::Modp,
                _ => MarkerAlgorithm::SampleByte,
            },
            effort: match rng.u8(..64) {
                0 => EffortMode::Max,
                _ => EffortMode::Auto,
            },
            flows_max: [4, 30, 1000, 1000][rng.usize(..4)],
            window_bytes: [0, 100_000, 1 << 20, 64 << 20][rng.usize(..4)],
            block_bytes_max: [2 << 10, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX][rng.usize(..3)],
            pending_bytes_max: [5_000, 100_000, 1 << 20, 16 << 20][rng.usize(..4)],
            foresight,
        }
    }

    /// Bytes of one direction of a flow: mostly few.
    pub(crate) fn content_bytes(&self, rng: &mut Rng) -> usize {
        if rng.u8(..self.large_one_of) == 0 {
            return rng.usize(..self.large_bytes_max);
        }
        match rng.u8(..16) {
            0 => 0,
            1..8 => rng.usize(..1_000),
            8..14 => rng.usize(..12_000),
            _ => rng.usize(..60_000),
        }
    }
}

impl Trouble {
    /// `weather`, 1 to 9, says how bad it can get.
    fn draw(rng: &mut Rng, weather: u8, predicts: bool) -> Self {
        let end = End::BOTH[rng.usize(..2)];
        let (dying, damaging) = (weather >= 5, weather >= 7);
        match rng.u8(..16) {
            10.. if damaging && predicts && rng.bool() => {
                Self::Harm([Kind::AlteredOffer, Kind::AlteredConfirmation][rng.usize(..2)])
            }
            10.. if damaging => Self::Harm(
                [
                    Kind::FlippedBit,
                    Kind::TruncatedFrame,
                    Kind::DuplicatedFrame,
                    Kind::DroppedFrame,
                ][rng.usize(..4)],
            ),
            10.. if dying => Self::Restart(end),
            9 if rng.bool() => Self::Drain(end),
            9 => Self::Spare,
            8 => match rng.bool() {
                true => Self::Blackout,
                false => Self::LateBlocks(end),
            },
            6..8 => Self::CutAll,
            5 => Self::Stall,
            4 => Self::Silence(end),
            3 => Self::CutAtOneEnd(end),
            _ => Self::Cut,
        }
    }
}
