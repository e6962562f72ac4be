//! MAXP: local maxima over regions of p bytes (EndRE, section 5.1.2, after Anand et al.,
//! "Redundancy in Network Traffic: Findings and Implications", SIGMETRICS 2009).
//!
//! The paper leaves open which region and what happens to equal bytes. Here:
//!
//! - The *value* of a position is its byte and the seven that follow, as a number, the most
//!   significant first: bytes that are equal are told apart by what follows. Or it is its byte
//!   alone (`maxp-bytes`), which is sooner compared, but where content has few values, as text
//!   has, leaves more to chance: the first of equal ones counts.
//! - A position is a *maximum* if no position within p/2 before or after it has a larger
//!   value. Only positions at which a window begins take part.
//! - A maximum is a marker, unless a marker lies within the p/2 positions before it. That
//!   one is then a maximum as well, and of the same value.
//!
//! So a position's content and neighbourhood decide, not where it lies; in random data one
//! position in p + 1 is a marker; two markers are more than p/2 apart; and where content
//! repeats with a short period, as in a run of zeros, every (p/2 + 1)-th maximum or so is
//! one, neither all of them nor none.
//!
//! The work does not depend on p; how it is done: [`simd`](crate::simd), maxp.

use alloc::vec::Vec;

use super::{FindMarkers, Sampling, candidates};
use crate::simd::maxp::{self, Value};

/// Finds MAXP markers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maxp(pub(super) Value);

impl FindMarkers for Maxp {
    fn find(&self, sampling: Sampling, block: &[u8], markers: &mut Vec<u32>) {
        let positions = candidates(block, sampling.window).len();
        let reach = sampling.period.bytes() / 2;
        maxp::find(sampling.backend, self.0, block, positions, reach, markers);
    }
}
