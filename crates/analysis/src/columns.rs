//! The columns: one file a kind, and a line in [`ALL`].

mod cache;
mod compression;
mod dot;
mod engine;
mod inflated;
mod pack;
mod repeats;
mod shared;

use refrain_codec::marker::MarkerAlgorithm;
use refrain_proto::effort::EffortMode;

use crate::{
    blocks::{GroupNumber, Step},
    details::Details,
};
use engine::Engine;
use inflated::Inflated;
pub use inflated::Stream as InflatedStream;
pub(crate) use repeats::regions;

/// One way to remove repeats, with the data that it has seen.
pub trait Column: Send {
    /// Takes the capture's next step.
    fn step(&mut self, step: Step<'_>);

    /// Its findings, after all steps.
    fn finish(self: Box<Self>) -> Outcome;
}

/// The findings of a column.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bytes that it would have sent, by group.
    pub sent: Vec<u64>,
    /// Bytes that belong to no group, such as handshakes of the link.
    pub others: u64,
    /// Memory of its caches at both ends, in bytes.
    pub memory_bytes: u64,
    /// Further findings.
    pub details: Details,
}

impl Outcome {
    /// Counts `bytes` that are sent of a group.
    pub(crate) fn add(&mut self, group: GroupNumber, bytes: u64) {
        let index = group.0 as usize;
        if self.sent.len() <= index {
            self.sent.resize(index + 1, 0);
        }
        self.sent[index] += bytes;
    }

    /// Counts `bytes` that need not be sent after all.
    pub(crate) fn subtract(&mut self, group: GroupNumber, bytes: u64) {
        if let Some(sent) = self.sent.get_mut(group.0 as usize) {
            *sent = sent.saturating_sub(bytes);
        }
    }

    /// All bytes that it would have sent.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sent.iter().sum::<u64>() + self.others
    }
}

/// A column of the report.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name in options and JSON.
    pub name: &'static str,
    /// Its head in tables.
    pub title: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Whether it is estimated by default.
    pub is_default: bool,
    /// Its share of the memory, beside those of other columns. 0 if its memory is fixed.
    pub(crate) memory_share: u64,
    /// Makes one that has seen nothing, for so many bytes of memory.
    pub make: fn(u64) -> Box<dyn Column>,
}

const ENDRE: &str = "EndRE, Table 4: a cache of 10 MB per pair of machines and direction";

macro_rules! endre {
    ($name:literal, $title:literal, $algorithm:ident, $period:literal) => {
        Kind {
            name: $name,
            title: $title,
            source: ENDRE,
            is_default: false,
            memory_share: 1,
            make: |memory| {
                let algorithm = MarkerAlgorithm::$algorithm;
                Box::new(repeats::Repeats::max_match(algorithm, $period, memory))
            },
        }
    };
}

/// All, in the order of reports.
pub const ALL: &[Kind] = &[
    Kind {
        name: "gzip",
        title: "gzip",
        source: "EndRE, Table 4: each block separately",
        is_default: false,
        memory_share: 0,
        make: |_| Box::new(compression::Compression::gzip()),
    },
    Kind {
        name: "zstd",
        title: "zstd",
        source: "each block separately, level 3",
        is_default: true,
        memory_share: 0,
        make: |_| Box::new(compression::Compression::zstd()),
    },
    endre!("modp-32", "MODP, p = 32", Modp, 32),
    endre!("modp-64", "MODP, p = 64", Modp, 64),
    endre!("modp-128", "MODP, p = 128", Modp, 128),
    endre!("modp-256", "MODP, p = 256", Modp, 256),
    endre!("modp-512", "MODP, p = 512", Modp, 512),
    endre!("maxp-32", "MAXP, p = 32", Maxp, 32),
    endre!("maxp-64", "MAXP, p = 64", Maxp, 64),
    endre!("maxp-128", "MAXP, p = 128", Maxp, 128),
    endre!("maxp-256", "MAXP, p = 256", Maxp, 256),
    endre!("maxp-512", "MAXP, p = 512", Maxp, 512),
    endre!("fixed-32", "FIXED, p = 32", Fixed, 32),
    endre!("fixed-64", "FIXED, p = 64", Fixed, 64),
    endre!("fixed-128", "FIXED, p = 128", Fixed, 128),
    endre!("fixed-256", "FIXED, p = 256", Fixed, 256),
    endre!("fixed-512", "FIXED, p = 512", Fixed, 512),
    Kind {
        name: "samplebyte-32",
        title: "SAMPLEBYTE, p = 32",
        source: ENDRE,
        is_default: true,
        memory_share: 1,
        make: |memory| Box::new(repeats::Repeats::samplebyte(memory)),
    },
    endre!("samplebyte-64", "SAMPLEBYTE, p = 64", SampleByte, 64),
    endre!("samplebyte-128", "SAMPLEBYTE, p = 128", SampleByte, 128),
    endre!("samplebyte-256", "SAMPLEBYTE, p = 256", SampleByte, 256),
    endre!("samplebyte-512", "SAMPLEBYTE, p = 512", SampleByte, 512),
    Kind {
        name: "samplebyte-1g",
        title: "SAMPLEBYTE, 1 GiB",
        source: "the same with a cache of up to 1 GiB per pair of machines and direction, for EndRE's Figures 8 and 9",
        is_default: true,
        memory_share: 32,
        make: |memory| Box::new(repeats::Repeats::unbounded(memory)),
    },
    Kind {
        name: "samplebyte-by-protocol",
        title: "SAMPLEBYTE by protocol",
        source: "EndRE, section 8.2: a cache of 10 MB for pairs that use HTTP, 4 MB with SMB, 1 MB for others",
        is_default: false,
        memory_share: 1,
        make: |memory| Box::new(repeats::Repeats::by_protocol(memory)),
    },
    Kind {
        name: "samplebyte-zstd",
        title: "SAMPLEBYTE and zstd",
        source: "EndRE, Table 4 (with gzip there): the rest of each block after SAMPLEBYTE, p = 32, is compressed",
        is_default: false,
        memory_share: 1,
        make: |memory| Box::new(repeats::Repeats::with_zstd(memory)),
    },
    Kind {
        name: "chunk-match",
        title: "Chunk-Match",
        source: "EndRE, Table 4: whole chunks of SAMPLEBYTE, p = 32",
        is_default: false,
        memory_share: 1,
        make: |memory| Box::new(repeats::Repeats::chunk_match(memory)),
    },
    Kind {
        name: "endre-dot",
        title: "EndRE and DOT",
        source: "EndRE, Table 4: SAMPLEBYTE, p = 32, and chunks of 2 KiB that another pair of machines has had",
        is_default: false,
        memory_share: 4,
        make: |memory| Box::new(repeats::Repeats::with_dot(memory)),
    },
    Kind {
        name: "middlebox",
        title: "box at the IP layer",
        source: "EndRE, Table 4: MODP, p = 32, and one cache of up to 2 GB for all machines",
        is_default: false,
        memory_share: 16,
        make: |memory| Box::new(shared::Middlebox::new(memory)),
    },
    Kind {
        name: "pack",
        title: "PACK",
        source: "PACK, section 5: chunks of 8 KiB that follow a chunk as they did before, in a store without a bound at \
                 each receiver",
        is_default: true,
        memory_share: 8,
        make: |memory| Box::new(pack::Pack::new(u64::MAX, memory)),
    },
    Kind {
        name: "pack-100mb",
        title: "PACK, 100 MB",
        source: "the same with a store of 100 MB at each receiver",
        is_default: false,
        memory_share: 2,
        make: |memory| Box::new(pack::Pack::new(100_000_000, memory)),
    },
    Kind {
        name: "refrain",
        title: "refrain",
        source: "this program: one pair of gateways, a link of 100 Mbit/s and 10 ms, effort `auto`",
        is_default: true,
        memory_share: 0,
        make: |_| Box::new(Engine::new(EffortMode::Auto)),
    },
    Kind {
        name: "refrain-max",
        title: "refrain, effort max",
        source: "the same with effort `max`",
        is_default: false,
        memory_share: 0,
        make: |_| Box::new(Engine::new(EffortMode::Max)),
    },
    Kind {
        name: "inflated",
        title: "refrain, inflated (not built yet)",
        source: "an upper bound: the same engine over the content of gzip, zlib and zip",
        is_default: false,
        memory_share: 0,
        make: |_| Box::new(Inflated::new()),
    },
];
