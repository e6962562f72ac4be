//! FIXED: every p-th byte of a block (EndRE, section 5.1.3).
//!
//! Costs nothing and knows no content: one byte inserted in front moves every marker
//! after it to other content. Here to be measured against.

use alloc::vec::Vec;

use super::{FindMarkers, SamplingPeriod, WindowBytes, candidates};
use crate::simd::Backend;

/// Finds FIXED markers: positions 0, p, 2p, ...
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub(super) period: SamplingPeriod,
    pub(super) window: WindowBytes,
    /// It has nothing to compute.
    pub(super) backend: Backend,
}

impl Fixed {
    /// A finder with this period and window.
    #[must_use]
    pub fn new(period: SamplingPeriod, window: WindowBytes) -> Self {
        Self {
            period,
            window,
            backend: Backend::PORTABLE,
        }
    }
}

impl FindMarkers for Fixed {
    fn find(&self, block: &[u8], markers: &mut Vec<u32>) {
        markers.clear();
        let end = candidates(block, self.window).len() as u32;
        markers.extend((0..end).step_by(self.period.bytes()));
    }
}
