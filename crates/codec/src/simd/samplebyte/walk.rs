//! Walks along the set bits of a bitmap.
//!
//! Where a walk goes next depends on the bit that it found last: a chain of some ten cycles a
//! marker, during which a processor idles. So four walks take turns, each along a quarter of
//! the bitmap, and no branch depends on the data.
//!
//! Three of them begin at a guess. What such a walk found counts from the marker on which the
//! walk before meets it: from a common marker on, both go the same way.
//!
//! ```text
//! for q in 0..4:
//!     found[q] = markers from the begin of quarter q on, to its end
//! all = found[0]
//! for q in 1..4:
//!     walk on behind the last of `all`, to the end of quarter q:
//!         if the marker is in found[q]:
//!             all += found[q] from that marker on
//!             break
//!         all += the marker
//! ```
//!
//! Walks meet after a few markers in random data, and tens to hundreds in text, the more the
//! longer the stride. Where they never meet, as in periodic data, this is one walk along the
//! whole, and the other three were in vain: about a third more work.

use alloc::vec::Vec;
use core::{array, hint::select_unpredictable, ops::Range};

/// Replaces the contents of `markers` by the markers of `candidates`, of which `classify` says
/// which of 64 are in the set, the first in the lowest bit.
///
/// Inlined, so that it is compiled for the instructions that `classify` is.
#[inline(always)]
pub(super) fn find(
    candidates: &[u8],
    stride: usize,
    markers: &mut Vec<u32>,
    classify: impl Fn(&[u8; 64]) -> u64,
) {
    // Clearing the long bitmap would take a large part of a short block's time.
    let mut short;
    let mut long;
    let bitmap: &mut [[u8; 8]] = if candidates.len() <= SHORT_BYTES {
        short = [[0; 8]; SHORT_BYTES / 64 + 1];
        &mut short
    } else {
        long = [[0; 8]; STRIP_BYTES / 64 + 1];
        &mut long
    };
    // There is at most one marker a stride, from wherever a walk begins. So this has room for
    // all four, each in its quarter.
    markers.resize(candidates.len().div_ceil(stride), 0);
    let mut count = 0;
    for (index, candidates) in candidates.chunks(STRIP_BYTES).enumerate() {
        fill(bitmap, candidates, &classify);
        let strip = Strip {
            bitmap: bitmap.as_flattened(),
            len: candidates.len(),
            stride,
        };
        let base = index * STRIP_BYTES;
        // The walk of the strip before may have passed its end without a marker there.
        let begin = match markers[..count].last() {
            Some(&marker) => (marker as usize + stride).saturating_sub(base),
            None => 0,
        };
        let found = count;
        count = strip.walk(Walk::new(begin, count), markers).count();
        if base > 0 {
            for marker in &mut markers[found..count] {
                *marker += base as u32;
            }
        }
    }
    markers.truncate(count);
}

/// Sets the bits of `candidates` in the set, and clears at least 64 bits after the last.
#[inline(always)]
fn fill(bitmap: &mut [[u8; 8]], candidates: &[u8], classify: impl Fn(&[u8; 64]) -> u64) {
    let (groups, rest) = candidates.as_chunks();
    let mut words = bitmap.iter_mut();
    for (group, word) in groups.iter().zip(&mut words) {
        *word = classify(group).to_le_bytes();
    }
    let mut last = [0; 64];
    last[..rest.len()].copy_from_slice(rest);
    let is_candidate = (1_u64 << rest.len()) - 1;
    for (word, bits) in words.zip([classify(&last) & is_candidate, 0]) {
        *word = bits.to_le_bytes();
    }
}

/// A classified piece of a block.
struct Strip<'a> {
    /// Bit `i % 8` of byte `i / 8` belongs to candidate `i`. Clear bits follow the last.
    bitmap: &'a [u8],
    /// Candidates.
    len: usize,
    stride: usize,
}

/// How far a walk has come: a single word, so that registers hold four of them.
#[derive(Clone, Copy)]
struct Walk(u64);

impl Walk {
    fn new(position: usize, count: usize) -> Self {
        Self((count as u64) << 32 | position as u64)
    }

    /// From where on the next marker may stand.
    fn position(self) -> usize {
        self.0 as u32 as usize
    }

    /// Markers found so far, or where in the list of markers the next one belongs.
    fn count(self) -> usize {
        (self.0 >> 32) as usize
    }
}

impl Strip<'_> {
    /// The bits from `position` on, of which the lowest [`BITS_SURE`] are sure to be there.
    #[inline(always)]
    fn bits_from(&self, position: usize) -> u64 {
        let byte = position / 8;
        let word = self.bitmap[byte..byte + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(word) >> (position % 8)
    }

    /// Walks to the end, or a little beyond it.
    #[inline(always)]
    fn walk(&self, walk: Walk, markers: &mut [u32]) -> Walk {
        if self.len < QUARTERED_STRIDES_MIN * self.stride {
            self.walk_on(walk, self.len, markers)
        } else {
            self.walk_quarters(walk, markers)
        }
    }

    #[inline(always)]
    fn walk_quarters(&self, walk: Walk, markers: &mut [u32]) -> Walk {
        // Whole strides, so that walks along a run of one value meet at once.
        let quarter_markers = self.len / (WALKS * self.stride);
        let quarter = quarter_markers * self.stride;
        let begins = array::from_fn::<_, WALKS, _>(|index| {
            Walk::new(
                walk.position() + index * quarter,
                walk.count() + index * quarter_markers,
            )
        });
        let ends = array::from_fn::<_, WALKS, _>(|index| match begins.get(index + 1) {
            Some(next) => next.position(),
            None => self.len,
        });
        let mut walks = begins;
        while (0..WALKS).all(|index| walks[index].position() < ends[index]) {
            for walk in &mut walks {
                *walk = self.step(*walk, markers);
            }
        }
        for (walk, end) in walks.iter_mut().zip(ends) {
            *walk = self.walk_on(*walk, end, markers);
        }
        let mut walk = walks[0];
        for index in 1..WALKS {
            let found = begins[index].count()..walks[index].count();
            walk = self.join(walk, ends[index], found, walks[index], markers);
        }
        walk
    }

    /// Takes the next marker, if the bits at hand have one: `walk_on` without its branches.
    #[inline(always)]
    fn step(&self, walk: Walk, markers: &mut [u32]) -> Walk {
        let bits = self.bits_from(walk.position());
        // If there is none, 64 are added, and it is overwritten.
        let marker = walk.0 + u64::from(bits.trailing_zeros());
        markers[walk.count()] = marker as u32;
        let if_found = 1 << 32 | self.stride as u64;
        let if_none = BITS_SURE.wrapping_sub(64);
        Walk(marker.wrapping_add(select_unpredictable(bits != 0, if_found, if_none)))
    }

    /// Walks on to `end`.
    #[inline(always)]
    fn walk_on(&self, mut walk: Walk, end: usize, markers: &mut [u32]) -> Walk {
        while let Some(marker) = self.next(&mut walk, end) {
            markers[walk.count()] = marker as u32;
            walk = Walk::new(marker + self.stride, walk.count() + 1);
        }
        walk
    }

    /// Walks on to `end`, or until it meets the walk that found the markers in `found` and has
    /// come to `other`.
    ///
    /// Until they meet, the two step over each other: a marker of one lies between any two of
    /// the other. So what is written here never reaches what is still to be read in `found`.
    #[inline(always)]
    fn join(
        &self,
        mut walk: Walk,
        end: usize,
        mut found: Range<usize>,
        other: Walk,
        markers: &mut [u32],
    ) -> Walk {
        while let Some(marker) = self.next(&mut walk, end) {
            while !found.is_empty() && markers[found.start] < marker as u32 {
                found.start += 1;
            }
            if !found.is_empty() && markers[found.start] == marker as u32 {
                let count = walk.count() + found.len();
                markers.copy_within(found, walk.count());
                return Walk::new(other.position(), count);
            }
            markers[walk.count()] = marker as u32;
            walk = Walk::new(marker + self.stride, walk.count() + 1);
        }
        walk
    }

    /// The next marker before `end`, or a little after it.
    #[inline(always)]
    fn next(&self, walk: &mut Walk, end: usize) -> Option<usize> {
        while walk.position() < end {
            let bits = self.bits_from(walk.position());
            if bits != 0 {
                return Some(walk.position() + bits.trailing_zeros() as usize);
            }
            *walk = Walk(walk.0 + BITS_SURE);
        }
        None
    }
}

/// Bits that a load from any position has at least.
const BITS_SURE: u64 = 64 - 7;

/// Walks that take turns. With more, a processor of eight instructions a cycle is no faster.
const WALKS: usize = 4;

/// Candidates whose bitmap and markers stay in the first-level cache.
const STRIP_BYTES: usize = 64 << 10;

/// Longest block with the small bitmap.
const SHORT_BYTES: usize = 4 << 10;

/// Shortest strip, in strides, whose walks meet early enough in text.
const QUARTERED_STRIDES_MIN: usize = 64;
