//! Bytes of full entropy in the log of which nothing repeated so far.
//!
//! Media and archives repeat whole, ciphertext never does, and at first they look the same. So
//! all of it together takes no more than half of what blocks can refer to, and more only where the
//! older half has nothing else that it would push out. When something refers to a flow's bytes,
//! that flow's bytes count as proven, and as any others.

use std::collections::VecDeque;

use refrain_codec::{LogPosition, LogRange, geometry::CacheGeometry};

use crate::{frame::FlowId, limits::UNPROVEN_EXTENTS_MAX};

/// The unproven bytes of a direction's log.
#[derive(Debug, Default)]
pub(crate) struct Unproven {
    /// Disjoint, in order.
    extents: VecDeque<Extent>,
    /// Their sum.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    start: LogPosition,
    end: LogPosition,
    /// Of those between, which may be more than are unproven.
    bytes: u64,
    flow: FlowId,
}

impl Unproven {
    /// Whether `len` more bytes may enter the log at `head`.
    pub(crate) fn admits(
        &mut self,
        head: LogPosition,
        len: usize,
        geometry: CacheGeometry,
    ) -> bool {
        let oldest = geometry.oldest_for(head);
        self.forget_before(oldest);
        let half = (geometry.cache_bytes() - geometry.window_bytes()) as u64 / 2;
        let older_half = oldest..head.min(oldest + half);
        self.bytes + len as u64 <= half || self.covers(older_half)
    }

    /// Bytes of `flow` entered the log from `at` on, `len` with those that repeated something.
    pub(crate) fn add(&mut self, flow: FlowId, at: LogPosition, len: usize, unproven_bytes: u64) {
        let end = at + len as u64;
        self.bytes += unproven_bytes;
        let is_full = self.extents.len() >= UNPROVEN_EXTENTS_MAX;
        match self.extents.back_mut() {
            Some(last) if is_full || last.flow == flow && last.end == at => {
                last.end = end;
                last.bytes += unproven_bytes;
            }
            _ => self.extents.push_back(Extent {
                start: at,
                end,
                bytes: unproven_bytes,
                flow,
            }),
        }
    }

    /// Something refers to `source`: the flow that wrote it is worth its place.
    pub(crate) fn prove(&mut self, source: LogPosition) {
        let Some(flow) = self.at(source).map(|extent| extent.flow) else {
            return;
        };
        let bytes = &mut self.bytes;
        self.extents.retain(|extent| {
            let is_proven = extent.flow == flow;
            *bytes -= if is_proven { extent.bytes } else { 0 };
            !is_proven
        });
    }

    /// Nothing refers to what lies before `oldest` any more.
    fn forget_before(&mut self, oldest: LogPosition) {
        while let Some(first) = self.extents.front().filter(|first| first.end <= oldest) {
            self.bytes -= first.bytes;
            self.extents.pop_front();
        }
        if let Some(first) = self
            .extents
            .front_mut()
            .filter(|first| first.start < oldest)
        {
            let left = first.bytes.min(first.end.since(oldest));
            self.bytes -= first.bytes - left;
            (first.start, first.bytes) = (oldest, left);
        }
    }

    /// Whether all of `range` is unproven.
    fn covers(&self, range: LogRange) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.at(at) {
                Some(extent) => at = extent.end,
                None => return false,
            }
        }
        true
    }

    fn at(&self, position: LogPosition) -> Option<&Extent> {
        let before = self
            .extents
            .partition_point(|extent| extent.start <= position);
        let extent = self.extents.get(before.checked_sub(1)?)?;
        (position < extent.end).then_some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FlowId = FlowId(0);
    const B: FlowId = FlowId(2);
    const BLOCK: usize = 64 << 10;

    /// A log of 8 MiB, of which blocks can refer to 7.
    struct Log {
        unproven: Unproven,
        head: LogPosition,
        geometry: CacheGeometry,
    }

    impl Log {
        fn new() -> Self {
            Self {
                unproven: Unproven::default(),
                head: LogPosition(0),
                geometry: CacheGeometry::new(8 << 20).expect("a valid size"),
            }
        }

        /// Something that is not of full entropy.
        fn ordinary(&mut self, bytes: usize) {
            self.head = self.head + bytes as u64;
        }

        /// What of it enters the log.
        fn noise(&mut self, flow: FlowId, bytes: usize) -> usize {
            let mut entered = 0;
            for _ in 0..bytes / BLOCK {
                if self.unproven.admits(self.head, BLOCK, self.geometry) {
                    self.unproven.add(flow, self.head, BLOCK, BLOCK as u64);
                    self.head = self.head + BLOCK as u64;
                    entered += BLOCK;
                }
            }
            entered
        }
    }

    #[test]
    fn all_flows_together_push_out_no_more_than_half() {
        let mut log = Log::new();
        log.ordinary(7 << 20);
        let entered: usize = (0..5).map(|flow| log.noise(FlowId(flow), 3 << 20)).sum();
        assert_eq!(entered, 7 << 19);
        assert_eq!(log.noise(A, 3 << 20), 0);
        // As it goes, it makes room for as much of others.
        log.ordinary(4 << 20);
        assert_eq!(log.noise(A, 3 << 20), 3 << 20);
        assert!(log.unproven.bytes <= 7 << 19);
        log.ordinary(7 << 20);
        assert_eq!(log.noise(A, 7 << 20), 7 << 19);
    }

    #[test]
    fn a_log_with_nothing_else_in_it_takes_all() {
        let mut log = Log::new();
        for flow in 0..5 {
            assert_eq!(log.noise(FlowId(flow), 3 << 20), 3 << 20);
        }
    }

    #[test]
    fn what_is_referred_to_counts_no_more_and_its_flow_alone() {
        let mut log = Log::new();
        log.ordinary(7 << 20);
        let half = 7 << 19;
        assert_eq!(log.noise(A, 1 << 20), 1 << 20);
        assert_eq!(log.noise(B, half), half - (1 << 20));
        let of_b = log.head.back(1);
        log.unproven.prove(LogPosition(0));
        assert_eq!(log.noise(A, BLOCK), 0, "nothing of these");
        log.unproven.prove(of_b);
        assert_eq!(log.unproven.bytes, 1 << 20);
        assert_eq!(log.noise(A, half), half - (1 << 20));
    }

    #[test]
    fn extents_are_bounded_whoever_takes_turns() {
        let mut log = Log::new();
        for turn in 0..2 * UNPROVEN_EXTENTS_MAX as u64 {
            log.unproven.add(FlowId(turn), log.head, 10, 10);
            log.ordinary(20);
        }
        assert_eq!(log.unproven.extents.len(), UNPROVEN_EXTENTS_MAX);
        assert_eq!(log.unproven.bytes, 20 * UNPROVEN_EXTENTS_MAX as u64);
    }
}
