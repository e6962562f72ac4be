//! Whose turn it is on a lane: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) of plain bytes. Turns of
//! equal number are not enough: what a writer gets at a time depends on what others leave, from 4 KiB to a block.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{frame::FlowId, limits::BLOCK_BYTES_MAX};

/// How far a turn may begin from the latest one. A flow that had less gets so much before others at most, and one that
/// comes from another lane waits for no more.
const APART_MAX: u64 = BLOCK_BYTES_MAX as u64;

/// Flows that wait for a lane. A turn begins where the flow's one before ended, in plain bytes.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: BinaryHeap<Reverse<(u64, FlowId)>>,
    /// Where the latest turn began.
    latest: u64,
}

impl Turns {
    /// A flow waits for its turn, which begins at `turn` unless that is too far from the latest.
    pub(super) fn push(&mut self, id: FlowId, turn: &mut u64) {
        let earliest = self.latest.saturating_sub(APART_MAX);
        *turn = (*turn).clamp(earliest, self.latest.saturating_add(APART_MAX));
        self.waiting.push(Reverse((*turn, id)));
    }

    pub(super) fn first(&self) -> Option<FlowId> {
        self.waiting.peek().map(|&Reverse((_, id))| id)
    }

    /// The first has its turn.
    pub(super) fn pop_first(&mut self) {
        if let Some(Reverse((turn, _))) = self.waiting.pop() {
            self.latest = self.latest.max(turn);
        }
    }

    /// Takes the first flow out that `may` leave.
    pub(super) fn take(&mut self, may: impl Fn(FlowId) -> bool) -> Option<FlowId> {
        let waiting = self.waiting.iter().map(|&Reverse(turn)| turn);
        let (_, found) = waiting.filter(|&(_, id)| may(id)).min()?;
        self.waiting.retain(|&Reverse((_, id))| id != found);
        Some(found)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn into_flows(self) -> impl Iterator<Item = FlowId> {
        self.waiting.into_iter().map(|Reverse((_, id))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows that wait again after each turn.
    fn serve(turns: &mut Turns, had: &mut [u64], served: usize, bytes_of: impl Fn(usize) -> u64) {
        for _ in 0..served {
            let id = turns.first().expect("all wait");
            turns.pop_first();
            let turn = &mut had[id.0 as usize];
            *turn += bytes_of(id.0 as usize);
            turns.push(id, turn);
        }
    }

    #[test]
    fn flows_have_equal_bytes_whatever_they_send_at_a_time() {
        let (mut turns, mut had) = (Turns::default(), [0; 16]);
        for (id, had) in had.iter_mut().enumerate() {
            turns.push(FlowId(id as u64), had);
        }
        serve(&mut turns, &mut had, 10_000, |flow| {
            4096 * (flow as u64 + 1)
        });
        let (least, most) = (
            had.iter().min().expect("some"),
            had.iter().max().expect("some"),
        );
        assert!(most - least <= BLOCK_BYTES_MAX as u64, "{had:?}");
        assert!(*least > 10_000_000, "{had:?}");
    }

    #[test]
    fn a_flow_that_comes_late_is_neither_far_ahead_of_others_nor_far_behind() {
        let (mut turns, mut had) = (Turns::default(), [0; 3]);
        for (id, had) in had[..2].iter_mut().enumerate() {
            turns.push(FlowId(id as u64), had);
        }
        serve(&mut turns, &mut had, 1000, |_| 50_000);
        for before in [0, u64::MAX / 2] {
            had[2] = before;
            turns.push(FlowId(2), &mut had[2]);
            let latest = had[0].max(had[1]);
            assert!(had[2].abs_diff(latest) <= 2 * APART_MAX, "{had:?}");
            serve(&mut turns, &mut had, 12, |_| 50_000);
            assert!(had[2].abs_diff(had[0]) <= APART_MAX + 50_000, "{had:?}");
            assert!(turns.take(|id| id == FlowId(2)).is_some());
        }
    }
}
