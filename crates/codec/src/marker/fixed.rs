//! FIXED: every p-th byte of a block (EndRE, section 5.1.3).
//!
//! Costs nothing and knows no content: one byte inserted in front moves every marker
//! after it to other content. Here to be measured against.

use alloc::vec::Vec;

use super::{FindMarkers, Sampling, candidates};

/// Finds FIXED markers: positions 0, p, 2p, ...
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed;

impl FindMarkers for Fixed {
    fn find(&self, sampling: Sampling, block: &[u8], markers: &mut Vec<u32>) {
        let end = candidates(block, sampling.window).len() as u32;
        markers.extend((0..end).step_by(sampling.period.bytes()));
    }
}
