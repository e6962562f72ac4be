//! How well `auto` chooses the effort: a transfer over a link with a rate and a delay, whose encoder is pretended, beside
//! the same transfer on each rung alone. In virtual time, with the engines' own credit, blocks and effort.

use core::fmt;
use std::time::Duration;

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    LinkConfig, Mode,
    effort::EffortMode,
    predictions::history::{Found, HistoryRequest, Wanted},
};

use crate::paced::{Encoder, History, PacedPair, RUNGS, Way};

/// How long a transfer shall take on the rung on which `auto` begins.
const SECONDS: f64 = 2.5;
const CONTENT_BYTES_MAX: f64 = 2e9;

/// A link without a rate still copies bytes.
const UNLIMITED_BYTES_PER_S: f64 = 4e9;

/// What is carried. Costs and ratios of tars and text are measured (`full-speed.md`'s machine, of an idle core),
/// those of noise and pages are assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Successive releases of sources.
    Tars,
    /// Prose that repeats little.
    Text,
    /// Revisions of a page.
    Pages,
    /// Nothing that can be saved.
    Noise,
}

/// A transfer to be made.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The link's rate; 0 for one without.
    pub mbit: u32,
    /// One way.
    pub delay_ms: u32,
    /// What is carried.
    pub content: Content,
}

/// How its effort is chosen.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// One rung.
    Fixed(usize),
    /// By the engine, which begins on a rung that the last link ended on.
    Auto(Option<usize>),
}

/// How it went.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How long it took.
    pub seconds: f64,
    /// What went over the link.
    pub link_bytes: f64,
    /// The rung at its end.
    pub rung: usize,
}

/// `auto` beside fixed efforts.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Of what.
    pub case: Case,
    /// Whether the link limits it: the most effort is as fast as any.
    pub is_link_limited: bool,
    /// Seconds of the slower of processor and link over those of the other, on the best rung.
    pub imbalance: f64,
    /// At first contact, and once the peer is known: link bytes over those of the best rung, seconds over the fewest.
    pub ratios: [(f64, f64); 2],
    /// Where `auto` ended, both times.
    pub rungs: [usize; 2],
}

impl Content {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Tars, Self::Text, Self::Pages, Self::Noise];

    fn encoder(self) -> Encoder {
        let (ns_per_byte, ratio) = match self {
            Self::Tars => (
                [0.69, 0.73, 0.83, 1.3, 2.4, 3.1, 6.6],
                [0.162, 0.129, 0.106, 0.093, 0.084, 0.082, 0.081],
            ),
            Self::Text => (
                [1.0, 1.3, 1.4, 2.5, 4.8, 7.0, 15.0],
                [0.304, 0.249, 0.195, 0.177, 0.165, 0.160, 0.157],
            ),
            Self::Pages => (
                [0.4, 0.42, 0.45, 0.5, 0.6, 0.7, 1.0],
                [0.030, 0.026, 0.023, 0.021, 0.020, 0.0198, 0.0196],
            ),
            Self::Noise => ([0.5; RUNGS], [1.0; RUNGS]),
        };
        Encoder {
            cost: ns_per_byte.map(|ns: f64| ns * 1e-9),
            ratio,
            forgotten_bytes: 60e3,
        }
    }
}

impl Case {
    /// Those of the model that the law of effort comes from.
    pub fn all() -> impl Iterator<Item = Self> {
        let rates = [1, 5, 20, 100, 1000, 0];
        let delays = [0, 10, 50, 200];
        rates.into_iter().flat_map(move |mbit| {
            delays.into_iter().flat_map(move |delay_ms| {
                Content::ALL.into_iter().map(move |content| Self {
                    mbit,
                    delay_ms,
                    content,
                })
            })
        })
    }

    fn bytes_per_s(self) -> f64 {
        match self.mbit {
            0 => UNLIMITED_BYTES_PER_S,
            mbit => f64::from(mbit) * 125_000.0,
        }
    }

    /// Makes the transfer.
    ///
    /// # Panics
    /// If other bytes arrive, or none do.
    pub fn run(self, choice: Choice) -> Outcome {
        let mut encoder = self.content.encoder();
        let begins_at = 3;
        let bytes = (SECONDS * self.bytes_per_s() / encoder.ratio[begins_at])
            .min(SECONDS / encoder.cost[begins_at])
            .min(CONTENT_BYTES_MAX);
        let first_rung = match choice {
            Choice::Fixed(rung) => {
                // The engine may move as it likes.
                encoder.cost = [encoder.cost[rung]; RUNGS];
                encoder.ratio = [encoder.ratio[rung]; RUNGS];
                encoder.forgotten_bytes = 0.0;
                None
            }
            Choice::Auto(rung) => rung,
        };
        let unsent_bytes = (self.bytes_per_s() * 0.02).clamp(16e3, 2e6) as u64;
        let way = Way {
            bytes_per_s: self.bytes_per_s(),
            round_trip: Duration::from_millis(2 * u64::from(self.delay_ms))
                + Duration::from_micros(200),
            unsent_bytes,
            encoder: Some(encoder),
        };
        let config = LinkConfig {
            mode: Mode::Off,
            effort: EffortMode::Auto,
            window_bytes: 64 << 20,
            first_rung,
            ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
        };
        let mut pair = PacedPair::new(way, config.clone(), config, Nothing);
        // Zeros that were never written take no memory.
        let content = vec![0; bytes as usize];
        let took = pair.fetch("a:1", b"?", &content);
        Outcome {
            seconds: took.as_secs_f64(),
            link_bytes: pair.link_bytes(),
            rung: pair.far.effort_rung(),
        }
    }

    /// Compares `auto` with all rungs.
    ///
    /// # Panics
    /// If other bytes arrive, or none do.
    pub fn compare(self) -> Comparison {
        let fixed = [0, 1, 2, 3, 4, 5, 6].map(|rung| self.run(Choice::Fixed(rung)));
        let max = fixed[RUNGS - 1];
        let (fastest, _) = fixed
            .iter()
            .enumerate()
            .min_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds))
            .expect("there are rungs");
        let seconds = fixed[fastest].seconds;
        let is_link_limited = max.seconds <= 1.02 * seconds;
        let best = if is_link_limited { RUNGS - 1 } else { fastest };
        let encoder = self.content.encoder();
        let link = encoder.ratio[best] / self.bytes_per_s();
        let balance = encoder.cost[best] / link;
        let first = self.run(Choice::Auto(None));
        let second = self.run(Choice::Auto(Some(first.rung)));
        let ratios = [first, second].map(|outcome| {
            (
                outcome.link_bytes / fixed[best].link_bytes,
                outcome.seconds / seconds,
            )
        });
        Comparison {
            case: self,
            is_link_limited,
            imbalance: balance.max(1.0 / balance),
            ratios,
            rungs: [first.rung, second.rung],
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mbit,
            delay_ms,
            content,
        } = self;
        write!(f, "{content:?}, {mbit} Mbit/s, {delay_ms} ms")
    }
}

/// A history that knows nothing.
struct Nothing;

impl History for Nothing {
    fn handle(&mut self, _request: HistoryRequest) -> Option<(Wanted, Found)> {
        None
    }
}
