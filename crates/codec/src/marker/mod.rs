//! Markers: the positions of a block at which fingerprints are taken
//! (EndRE, section 5.1).
//!
//! A block enters, the increasing positions of its markers leave. A window of
//! [`WindowBytes`] that begins at a marker is a *representative* of its block: about
//! one in [`SamplingPeriod`] of all windows. Max-Match takes its fingerprint there,
//! Chunk-Match cuts there.
//!
//! One file per algorithm; each has a slow twin in
//! [`reference::markers`](crate::reference::markers) that says what it computes.
//!
//! | algorithm | chosen by | markers in random data | robust to insertions |
//! |---|---|---|---|
//! | [`SampleByte`](MarkerAlgorithm::SampleByte) | one byte's value | 1 in p/2 + 256/n, for n values in the table | yes |
//! | [`Modp`](MarkerAlgorithm::Modp) | Rabin fingerprint of the window | 1 in p | yes |
//! | [`Maxp`](MarkerAlgorithm::Maxp) | local maximum over p bytes, of eight-byte values or of bytes | 1 in p + 1 | yes |
//! | [`Fixed`](MarkerAlgorithm::Fixed) | position | 1 in p | no |
//!
//! The markers of streams, which come in pieces, are *anchors*: windows of 48 bytes, chosen by content
//! alone. What finds them implements [`FindAnchors`]; and there is what ends a chunk where there is
//! none.
//!
//! | finder | chosen by | anchors in random data |
//! |---|---|---|
//! | [`AnchorFinder`] | PACK's rolling value | 1 in 64 to 32 Ki |
//! | [`AnchorFinder::sparse`] | the same, and beyond 32 Ki a hash of the window | 1 in 64 to 1 Mi |
//! | [`ModpAnchorFinder`] | Rabin fingerprint of the window | 1 in 64 to 1 Mi |

pub(crate) mod backup;
mod fixed;
mod found;
mod maxp;
mod modp;
mod modp_anchors;
pub mod pack;
pub(crate) mod piece;
mod samplebyte;
pub mod sparse;
#[cfg(test)]
mod tests;

pub use crate::sampling::{
    AnchorDistance, InvalidAnchorDistance, InvalidPackMask, InvalidSamplingPeriod, InvalidWindow,
    PackMask, SamplingPeriod, WindowBytes,
};
pub use found::FoundAnchors;
pub use modp_anchors::{ModpAnchorFinder, RabinTables};
pub use pack::AnchorFinder;
pub use samplebyte::{SampleByteTable, TableError};

use alloc::{boxed::Box, vec::Vec};

use crate::simd::{Backend, maxp::Value, modp::Kernel};
use fixed::Fixed;
use maxp::Maxp;
use modp::Modp;
use samplebyte::SampleByte;

/// Finds the anchors of a stream that comes in pieces: windows of
/// [48 bytes](pack::WINDOW_BYTES), chosen by nothing but what is in them.
pub trait FindAnchors {
    /// The next `piece` of the stream: appends the anchors whose windows end in it, each as
    /// the offset in the stream of the window's first byte, in increasing order.
    ///
    /// How the stream is split does not matter. There are at most as many as `piece` has bytes,
    /// which a stream may be made to reach.
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>);

    /// Bytes of the stream so far.
    fn fed_bytes(&self) -> u64;

    /// Starts over, for another stream.
    fn reset(&mut self);

    /// Every window of the stream so far that begins before this offset has been tested.
    fn tested_bytes(&self) -> u64 {
        self.fed_bytes()
            .saturating_sub(pack::WINDOW_BYTES as u64 - 1)
    }
}

/// Defines the algorithms: what each is, its name, its finder, and how that is made.
macro_rules! algorithms {
    ($($(#[$about:meta])+ $algorithm:ident $name:literal $finder:ty = $new:expr,)+) => {
        names! {
            /// The ways to choose markers.
            #[derive(Default)]
            pub enum MarkerAlgorithm {
                $($(#[$about])+ $algorithm = $name,)+
            }
        }

        #[derive(Clone, Debug)]
        enum Finder {
            $($algorithm($finder),)+
        }

        impl Finder {
            fn new(algorithm: MarkerAlgorithm, window: WindowBytes, table: SampleByteTable) -> Self {
                match algorithm {
                    $(MarkerAlgorithm::$algorithm => {
                        let new: fn(WindowBytes, SampleByteTable) -> $finder = $new;
                        Self::$algorithm(new(window, table))
                    })+
                }
            }

            fn find(&self, sampling: Sampling, block: &[u8], markers: &mut Vec<u32>) {
                match self {
                    $(Self::$algorithm(finder) => finder.find(sampling, block, markers),)+
                }
            }
        }
    };
}

/// What the algorithms have in common.
#[derive(Clone, Copy, Debug)]
struct Sampling {
    period: SamplingPeriod,
    window: WindowBytes,
    backend: Backend,
}

/// An algorithm that finds the markers of a block, as [`MarkerFinder::find`] says; of `markers`, which are none
/// yet, it makes them.
trait FindMarkers {
    fn find(&self, sampling: Sampling, block: &[u8], markers: &mut Vec<u32>);
}

algorithms! {
    /// Bytes of a few values, and then a skip.
    #[default]
    SampleByte "samplebyte" SampleByte = |_, table| SampleByte(Box::new(table)),
    /// Windows of a few Rabin fingerprints.
    Modp "modp" Modp = |window, _| Modp(Kernel::new(window)),
    /// Local maxima of eight-byte values.
    Maxp "maxp" Maxp = |_, _| Maxp(Value::EightBytes),
    /// Local maxima of bytes.
    MaxpBytes "maxp-bytes" Maxp = |_, _| Maxp(Value::Byte),
    /// Every p-th position.
    Fixed "fixed" Fixed = |_, _| Fixed,
}

/// Finds the markers of one block after another, by any of the algorithms.
///
/// Blocks stand alone: nothing is carried from one to the next.
///
/// ```
/// use refrain_codec::marker::MarkerFinder;
///
/// let finder = MarkerFinder::default();
/// let mut markers = Vec::new();
/// finder.find(b"It was the best of times, it was the worst of times", &mut markers);
/// assert_eq!(markers, [1, 18], "a `t`, and the first `t`, `s`, `e`, `i` or space at 18 or later");
/// ```
#[derive(Clone, Debug)]
pub struct MarkerFinder {
    sampling: Sampling,
    finder: Finder,
}

impl MarkerFinder {
    /// A finder of `algorithm`'s markers, on the machine's best kernels; only SampleByte looks at
    /// `table`.
    #[must_use]
    pub fn new(
        algorithm: MarkerAlgorithm,
        period: SamplingPeriod,
        window: WindowBytes,
        table: SampleByteTable,
    ) -> Self {
        Self {
            sampling: Sampling {
                period,
                window,
                backend: Backend::best(),
            },
            finder: Finder::new(algorithm, window, table),
        }
    }

    /// The same finder on the kernels of `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.sampling.backend = backend;
        self
    }

    /// The period with which the next block is sampled.
    #[must_use]
    pub fn period(&self) -> SamplingPeriod {
        self.sampling.period
    }

    /// The window that follows each marker.
    #[must_use]
    pub fn window(&self) -> WindowBytes {
        self.sampling.window
    }

    /// Samples the blocks to come with another period.
    pub fn set_period(&mut self, period: SamplingPeriod) {
        self.sampling.period = period;
    }

    /// Replaces the contents of `markers` by the markers of `block`, in increasing order.
    ///
    /// A whole window of *w* bytes follows each: `marker + w <= block.len()`. A block
    /// shorter than a window has none.
    ///
    /// # Panics
    /// If `block` is 4 GiB or longer, whose positions do not fit 32 bits.
    pub fn find(&self, block: &[u8], markers: &mut Vec<u32>) {
        markers.clear();
        self.finder.find(self.sampling, block, markers);
    }
}

impl Default for MarkerFinder {
    /// SampleByte, p = 32, w = 32, the paper's table.
    fn default() -> Self {
        Self::new(
            MarkerAlgorithm::default(),
            SamplingPeriod::default(),
            WindowBytes::default(),
            SampleByteTable::default(),
        )
    }
}

/// The bytes of `block` at which a whole window begins: where a marker may stand.
fn candidates(block: &[u8], window: WindowBytes) -> &[u8] {
    let count = (block.len() + 1).saturating_sub(window.bytes());
    assert!(u32::try_from(count).is_ok(), "positions are 32 bits wide");
    &block[..count]
}
