//! The search for places in a flow's waiting bytes where a chunk may begin: anchors, and backup
//! anchors where none came for long.

use std::collections::VecDeque;

use refrain_codec::{chunk::cuts::CutFinder, marker::PackMask};

use super::Waiting;

/// One anchor in so many bytes is looked at, over a stretch; where a run of one byte is all
/// anchors, the rest are passed over.
const BYTES_A_PROBE: u64 = 256;

/// Probes that may be saved up.
const PROBES_MAX: u64 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Scan {
    finder: CutFinder,
    /// Flow offset of the finder's first byte.
    start: u64,
    /// Anchors that were found and not yet looked at, as the finder counts.
    anchors: VecDeque<u64>,
    probes: u64,
}

impl Scan {
    /// From the flow's offset `start` on.
    pub(super) fn new(mask: PackMask, start: u64) -> Self {
        Self {
            finder: CutFinder::new(mask),
            start,
            anchors: VecDeque::new(),
            probes: PROBES_MAX,
        }
    }

    /// Offset behind what was searched.
    pub(super) fn end(&self) -> u64 {
        self.start + self.finder.fed_bytes()
    }

    /// The first anchor among the waiting bytes that is to be looked at. They begin at
    /// [`end`](Self::end) or before.
    pub(super) fn next(&mut self, waiting: &Waiting<'_>) -> Option<u64> {
        let Waiting { offset, bytes, .. } = *waiting;
        loop {
            while let Some(&anchor) = self.anchors.front() {
                let at = self.start + anchor;
                if at >= offset && self.probes > 0 {
                    return Some(at);
                }
                self.anchors.pop_front();
            }
            let unfed = &bytes[(self.end() - offset) as usize..];
            if unfed.is_empty() {
                return None;
            }
            let part = &unfed[..unfed.len().min(16 << 10)];
            let mut anchors = Vec::new();
            self.finder.feed(part, &mut anchors);
            self.anchors.extend(anchors);
            self.probes = PROBES_MAX.min(self.probes + part.len() as u64 / BYTES_A_PROBE);
        }
    }

    /// Nothing begins at `at`.
    pub(super) fn pass(&mut self, at: u64) {
        let front = self.anchors.front();
        if front.is_some_and(|&anchor| self.start + anchor == at) {
            self.anchors.pop_front();
            self.probes -= 1;
        }
    }
}
