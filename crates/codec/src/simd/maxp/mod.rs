//! MAXP's markers: local maxima, no two within reach of one another.
//!
//! ```text
//! for i in 0..positions:
//!     maximum = no position from i - reach to i + reach has a larger value than i
//!     if maximum and the last marker is not within reach of i:
//!         marker at i
//! ```
//!
//! # How
//! The positions are cut into segments of no more than `reach`. All maxima of a segment have
//! its largest value, so at most one is a marker. Which one, three comparisons with that value
//! tell: where a value equals it; where one `reach` before, and where one `reach` after is
//! larger. A larger value in a segment before reaches all positions up to its own place in
//! its segment, one after reaches all positions from its place on. So the work does not depend
//! on what the values are.
//!
//! The portable version looks for these places instead, where the segments beside have larger
//! values at all.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
mod portable;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod stretch;

use alloc::vec::Vec;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use self::stretch::{Words, find as find_by_stretches};
use super::Backend;

/// Bytes of the longer kind of value; no more than the shortest window has.
pub(crate) const VALUE_BYTES: usize = 8;

/// Fewer positions take less time than the vectors' buffers take to be cleared.
const SHORT_POSITIONS: usize = 256;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A position's byte.
    Byte,
    /// A position's byte and the seven after it, the first the most significant.
    EightBytes,
}

/// Appends to `markers` those of the first `positions` of `block`. `reach`: 16, 32, 64, 128 or
/// 256.
///
/// # Panics
/// If the shortest window does not fit in at the last position.
pub(crate) fn find(
    backend: Backend,
    value: Value,
    block: &[u8],
    positions: usize,
    reach: usize,
    markers: &mut Vec<u32>,
) {
    if positions < SHORT_POSITIONS {
        return portable::find(value, block, positions, reach, markers);
    }
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    macro_rules! by_stretches {
        ($kernel:ident) => {
            match value {
                Value::Byte => find_by_stretches(
                    backend,
                    block,
                    positions,
                    reach,
                    // SAFETY: the backend exists, so its instructions do.
                    |values, shadow, bitmap| unsafe {
                        $kernel::choose_bytes(values, shadow, bitmap)
                    },
                    markers,
                ),
                Value::EightBytes => find_by_stretches(
                    backend,
                    Words(block, |block: &[u8], values: &mut [i64]| {
                        // SAFETY: as above.
                        unsafe { $kernel::read_words(block, values) }
                    }),
                    positions,
                    reach,
                    // SAFETY: as above.
                    |values, shadow, bitmap| unsafe {
                        $kernel::choose_words(values, shadow, bitmap)
                    },
                    markers,
                ),
            }
        };
    }
    match backend.instruction_set() {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        super::InstructionSet::Avx512 => by_stretches!(avx512),
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        super::InstructionSet::Avx2 => by_stretches!(avx2),
        _ => portable::find(value, block, positions, reach, markers),
    }
}
