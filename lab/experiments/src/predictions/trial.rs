//! One series of objects, fetched one after the other by a near end from a far one.

use std::{fmt, time::Duration};

use anyhow::Context;
use refrain_codec::{chunk::stream::ChunkBounds, geometry::CacheGeometry, marker::PackMask};
use refrain_proto::{
    LinkConfig, Mode,
    predictions::history::{HistoryConfig, Predict},
};
use refrain_sim::{
    paced::{PacedPair, Way},
    remembered::Remembered,
};
use serde::{Serialize, Serializer};

pub(super) const LINUX: &str = "Linux";

/// What the other trials differ from.
pub(crate) const USUAL: Trial = Trial {
    series: LINUX,
    chunk_kib: 8,
    mbit: MBIT,
    round_trip_ms: 50,
    is_fine: false,
    predicted: Predicted::Window,
    mode: Mode::Receiver,
    cache_mib: 128,
};

/// The link's rate, unless a trial is for another.
pub(super) const MBIT: u32 = 100;

/// Largest block where nothing but the round trip shall be in flight.
const FINE_BLOCK_BYTES: usize = 512;

/// What a transport takes before it waits for the link, elsewhere.
const UNSENT_BYTES: u64 = 16 << 10;

/// How a receiver predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Predicted {
    /// The paper's way.
    Aligned,
    /// Expected chunks wherever they come, once a known one came.
    WindowWithoutOpening,
    /// And before the first byte.
    Window,
}

impl Predicted {
    pub(super) const ALL: [Self; 3] = [Self::Aligned, Self::WindowWithoutOpening, Self::Window];
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trial {
    pub series: &'static str,
    /// Average of chunks; the shortest is a quarter of it, the longest four times.
    pub chunk_kib: u32,
    pub mbit: u32,
    pub round_trip_ms: u32,
    /// Small blocks, none of which waits for the link; else as gateways have them.
    pub is_fine: bool,
    pub predicted: Predicted,
    #[serde(serialize_with = "mode_name")]
    pub mode: Mode,
    /// Mirrored cache of a direction, where the mode keeps one.
    pub cache_mib: usize,
}

fn mode_name<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub app_bytes: u64,
    /// Of these, those that were cut into chunks, and among them those in known chunks.
    pub learnt_bytes: u64,
    pub known_bytes: u64,
    pub confirmed_bytes: u64,
    /// All bytes of the link to the receiver, and back; of the latter, frames of offers.
    pub down_bytes: u64,
    pub up_bytes: u64,
    pub offer_frame_bytes: u64,
    pub offers: u64,
    pub offered_bytes: u64,
    /// Right, but their own bytes came first.
    pub overtaken_bytes: u64,
    pub wasted_bytes: u64,
    /// By the sender.
    pub hashed_true_bytes: u64,
    pub hashed_false_bytes: u64,
    /// In virtual time.
    pub took_s: f64,
    /// Share of each object that was confirmed.
    pub confirmed_each: Vec<f64>,
}

impl Outcome {
    /// Of the application's bytes.
    fn share(&self, bytes: u64) -> f64 {
        bytes as f64 / self.app_bytes as f64
    }

    pub(super) fn known(&self) -> f64 {
        self.known_bytes as f64 / self.learnt_bytes.max(1) as f64
    }

    pub(super) fn confirmed(&self) -> f64 {
        self.share(self.confirmed_bytes)
    }

    pub(super) fn down(&self) -> f64 {
        self.share(self.down_bytes)
    }

    pub(super) fn up(&self) -> f64 {
        self.share(self.up_bytes)
    }

    pub(super) fn offer_frames(&self) -> f64 {
        self.share(self.offer_frame_bytes)
    }

    pub(super) fn hashed_true(&self) -> f64 {
        self.share(self.hashed_true_bytes)
    }

    pub(super) fn hashed_false(&self) -> f64 {
        self.share(self.hashed_false_bytes)
    }

    /// Share of what was offered.
    pub(super) fn wasted(&self) -> f64 {
        self.wasted_bytes as f64 / self.offered_bytes.max(1) as f64
    }

    /// Application bytes in virtual time.
    pub(super) fn mbyte_per_s(&self) -> f64 {
        self.app_bytes as f64 / 1e6 / self.took_s
    }
}

impl Trial {
    /// Fetches `objects`, each on a flow of its own.
    pub(crate) fn run(self, objects: &[Vec<u8>]) -> anyhow::Result<Outcome> {
        let mut pair = self.pair()?;
        let mut took = Duration::ZERO;
        let mut confirmed_each = Vec::new();
        let mut confirmed_before = 0;
        for (number, object) in objects.iter().enumerate() {
            // No opening is known to a target that is new.
            let target = match self.predicted {
                Predicted::WindowWithoutOpening => format!("target-{number}.example:80"),
                Predicted::Aligned | Predicted::Window => "target.example:80".to_owned(),
            };
            took += pair.fetch(&target, b"fetch it", object);
            let confirmed = pair.near_status().counters.received.layers.confirmed_bytes;
            confirmed_each.push((confirmed - confirmed_before) as f64 / object.len() as f64);
            confirmed_before = confirmed;
        }
        let (near, far) = (pair.near_status(), pair.far_status());
        Ok(Outcome {
            app_bytes: near.counters.received.layers.app_bytes,
            learnt_bytes: pair.history.learnt_bytes,
            known_bytes: pair.history.known_bytes,
            confirmed_bytes: near.counters.received.layers.confirmed_bytes,
            down_bytes: near.counters.received.link_bytes,
            up_bytes: far.counters.received.link_bytes,
            offer_frame_bytes: near.counters.received.predictions.offer_frame_bytes,
            offers: near.counters.received.predictions.offers,
            offered_bytes: near.counters.received.predictions.offered_bytes,
            overtaken_bytes: near.counters.received.predictions.overtaken_bytes,
            wasted_bytes: near.counters.received.predictions.wasted_bytes,
            hashed_true_bytes: far.counters.sent.predictions.hashed_true_bytes,
            hashed_false_bytes: far.counters.sent.predictions.hashed_false_bytes,
            took_s: took.as_secs_f64(),
            confirmed_each,
        })
    }

    /// A new pair, whose history is empty.
    ///
    /// # Errors
    /// If PACK has no mask for such chunks.
    pub(super) fn pair(self) -> anyhow::Result<PacedPair<Remembered>> {
        let average = self.chunk_kib as usize * 1024;
        let history = HistoryConfig {
            predict: match self.predicted {
                Predicted::Aligned => Predict::Aligned,
                Predicted::WindowWithoutOpening | Predicted::Window => Predict::Window,
            },
            mask: PackMask::with_bits(average.ilog2() as u8)?,
            bounds: ChunkBounds::new(average / 4, 4 * average).context("invalid bounds")?,
            ..HistoryConfig::default()
        };
        let cache = CacheGeometry::new(self.cache_mib << 20).context("invalid cache size")?;
        let mut far = LinkConfig {
            mode: self.mode,
            ..LinkConfig::with_cache(cache)
        };
        let mut way = Way {
            bytes_per_s: f64::from(self.mbit) * 125_000.0,
            round_trip: Duration::from_millis(self.round_trip_ms.into()),
            unsent_bytes: UNSENT_BYTES,
            encoder: None,
        };
        if self.is_fine {
            far.block_bytes_max = FINE_BLOCK_BYTES;
            way.unsent_bytes = 0;
        }
        let near = LinkConfig {
            history: self.mode.predicts().then_some(history),
            ..far.clone()
        };
        Ok(PacedPair::new(way, near, far, Remembered::default()))
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            series,
            chunk_kib,
            mbit,
            round_trip_ms,
            is_fine,
            predicted,
            mode,
            cache_mib,
        } = self;
        let blocks = if *is_fine { "small" } else { "usual" };
        write!(
            f,
            "{series}, {chunk_kib} KiB, {mbit} Mbit/s, {round_trip_ms} ms, {blocks} blocks, {mode}, \
             {predicted:?}, {cache_mib} MiB"
        )
    }
}
