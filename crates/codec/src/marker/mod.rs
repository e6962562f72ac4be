//! Markers: the positions of a block at which fingerprints are taken
//! (EndRE, section 5.1).
//!
//! A block enters, the increasing positions of its markers leave. A window of
//! [`WindowBytes`] that begins at a marker is a *representative* of its block: about
//! one in [`SamplingPeriod`] of all windows. Max-Match takes its fingerprint there,
//! Chunk-Match cuts there.
//!
//! One file per algorithm; all implement [`FindMarkers`], and each has a slow twin in
//! [`reference::markers`](crate::reference::markers) that says what it computes.
//!
//! | algorithm | chosen by | markers in random data | robust to insertions |
//! |---|---|---|---|
//! | [`SampleByte`] | one byte's value | 1 in p/2 + 256/n, for n values in the table | yes |
//! | [`Modp`] | Rabin fingerprint of the window | 1 in p | yes |
//! | [`Maxp`] | local maximum over p bytes, of eight-byte values or of bytes | 1 in p + 1 | yes |
//! | [`Fixed`] | position | 1 in p | no |
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
pub mod fixed;
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
pub use fixed::Fixed;
pub use found::FoundAnchors;
pub use maxp::Maxp;
pub use modp::Modp;
pub use modp_anchors::{ModpAnchorFinder, RabinTables};
pub use pack::AnchorFinder;
pub use samplebyte::{SampleByte, SampleByteTable, TableError};

use alloc::vec::Vec;

use crate::simd::Backend;

/// Finds the markers of one block after another.
///
/// Blocks stand alone: nothing is carried from one to the next.
pub trait FindMarkers {
    /// Replaces the contents of `markers` by the markers of `block`, in increasing order.
    ///
    /// A whole window of *w* bytes follows each: `marker + w <= block.len()`. A block
    /// shorter than a window has none.
    ///
    /// # Panics
    /// If `block` is 4 GiB or longer, whose positions do not fit 32 bits.
    fn find(&self, block: &[u8], markers: &mut Vec<u32>);
}

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

        /// Any one of the algorithms, chosen at run time.
        ///
        /// ```
        /// use refrain_codec::marker::{FindMarkers, MarkerFinder};
        ///
        /// let finder = MarkerFinder::default();
        /// let mut markers = Vec::new();
        /// finder.find(b"It was the best of times, it was the worst of times", &mut markers);
        /// assert_eq!(markers, [1, 18], "a `t`, and the first `t`, `s`, `e`, `i` or space at 18 or later");
        /// ```
        #[derive(Clone, Debug)]
        pub struct MarkerFinder(Finder);

        #[derive(Clone, Debug)]
        enum Finder {
            $($algorithm($finder),)+
        }

        impl MarkerFinder {
            /// A finder of `algorithm`'s markers; only SampleByte looks at `table`.
            #[must_use]
            pub fn new(
                algorithm: MarkerAlgorithm,
                period: SamplingPeriod,
                window: WindowBytes,
                table: SampleByteTable,
            ) -> Self {
                Self(match algorithm {
                    $(MarkerAlgorithm::$algorithm => {
                        let new: fn(_, _, SampleByteTable) -> $finder = $new;
                        Finder::$algorithm(new(period, window, table))
                    })+
                })
            }

            /// The same finder on the kernels of `backend`, instead of the machine's best.
            #[must_use]
            pub fn with_backend(mut self, backend: Backend) -> Self {
                match &mut self.0 {
                    $(Finder::$algorithm(finder) => finder.backend = backend,)+
                }
                self
            }

            /// The period with which the next block is sampled.
            #[must_use]
            pub fn period(&self) -> SamplingPeriod {
                match &self.0 {
                    $(Finder::$algorithm(finder) => finder.period,)+
                }
            }

            /// The window that follows each marker.
            #[must_use]
            pub fn window(&self) -> WindowBytes {
                match &self.0 {
                    $(Finder::$algorithm(finder) => finder.window,)+
                }
            }

            /// Samples the blocks to come with another period.
            pub fn set_period(&mut self, period: SamplingPeriod) {
                match &mut self.0 {
                    $(Finder::$algorithm(finder) => finder.period = period,)+
                }
            }
        }

        impl FindMarkers for MarkerFinder {
            fn find(&self, block: &[u8], markers: &mut Vec<u32>) {
                match &self.0 {
                    $(Finder::$algorithm(finder) => finder.find(block, markers),)+
                }
            }
        }
    };
}

algorithms! {
    /// Bytes of a few values, and then a skip; see [`SampleByte`].
    #[default]
    SampleByte "samplebyte" SampleByte = SampleByte::new,
    /// Windows of a few Rabin fingerprints; see [`Modp`].
    Modp "modp" Modp = |period, window, _| Modp::new(period, window),
    /// Local maxima of eight-byte values; see [`Maxp`].
    Maxp "maxp" Maxp = |period, window, _| Maxp::new(period, window),
    /// Local maxima of bytes; see [`Maxp`].
    MaxpBytes "maxp-bytes" Maxp = |period, window, _| Maxp::of_bytes(period, window),
    /// Every p-th position; see [`Fixed`].
    Fixed "fixed" Fixed = |period, window, _| Fixed::new(period, window),
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
