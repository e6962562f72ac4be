//! Plain bytes of one direction of a flow, put in the order in which they were sent.
//!
//! On one lane they come in order. Where loss holds lanes up a flow travels on several, and
//! what comes early waits here until the bytes before it have come, within the flow's credit.
//! Only the application waits then: blocks are decoded as they come, whatever their flow has.

use std::collections::{BTreeMap, VecDeque};

use crate::fault::Violation;
use crate::limits::FLOW_BYTES_MAX;

/// A piece that the application takes has about so many bytes. So a flow that stood still for a while gives back what it
/// holds as its reader takes it.
const PIECE_BYTES: usize = 64 << 10;

/// Memory of pieces that were taken, for the next ones. An allocator gives much of it back to the system, whose clearing
/// costs more than the copy of a block.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<Vec<u8>>);

impl Spares {
    /// How many are kept.
    const MAX: usize = 16;

    /// Takes the memory of a piece, if it is one of the usual size.
    pub(crate) fn put(&mut self, mut piece: Vec<u8>) {
        if piece.capacity() == PIECE_BYTES && self.0.len() < Self::MAX {
            piece.clear();
            self.0.push(piece);
        }
    }

    /// An empty piece for `len` bytes. Few bytes get none of the spare ones, so that their reader holds up no more memory
    /// than twice what it was sent.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let fits = len <= PIECE_BYTES && PIECE_BYTES <= 2 * len;
        let spare = self.0.pop_if(|_| fits);
        spare.unwrap_or_default()
    }
}

/// Bytes that came, those that can be taken and those that are early.
#[derive(Debug, Default)]
pub(crate) struct InOrder {
    /// What the application can take, in pieces; the last one grows, and none is empty.
    ready: VecDeque<Vec<u8>>,
    /// The offset behind `ready`: all before it has come.
    end: u64,
    /// What came early, by offset: runs that are disjoint, never adjacent, and beyond `end`.
    early: BTreeMap<u64, VecDeque<u8>>,
}

impl InOrder {
    /// The offset up to which all has come.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether there is something to take.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The piece that was appended to last.
    pub(crate) fn latest(&self) -> &[u8] {
        self.ready.back().map_or(&[], Vec::as_slice)
    }

    /// Takes the next piece of what is ready; an empty one if there is none.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.ready.pop_front().unwrap_or_default()
    }

    /// Runs that wait for bytes before them.
    pub(crate) fn early_runs(&self) -> usize {
        self.early.len()
    }

    /// Whether `len` bytes at `offset` are the next ones; otherwise they are early.
    pub(crate) fn is_next(&self, offset: u64, len: usize) -> Result<bool, Violation> {
        let end = offset
            .checked_add(len as u64)
            .filter(|&end| end <= FLOW_BYTES_MAX)
            .ok_or(Violation::BlockAtWrongOffset)?;
        let next = self.early.range(offset..).next();
        let before = self.run_before(offset);
        if offset < self.end
            || before.is_some_and(|(_, end)| end > offset)
            || next.is_some_and(|(&start, _)| start < end)
        {
            return Err(Violation::BlockAtWrongOffset);
        }
        Ok(offset == self.end)
    }

    /// Where to append the next `len` bytes; [`appended`](Self::appended) follows.
    pub(crate) fn next(&mut self, len: usize, spares: &mut Spares) -> &mut Vec<u8> {
        let is_full = |piece: &Vec<u8>| piece.len() >= PIECE_BYTES;
        if self.ready.back().is_none_or(is_full) {
            self.ready.push_back(spares.take(len));
        }
        self.ready.back_mut().expect("just pushed")
    }

    /// `len` bytes were appended to the next ones: those that waited for them follow.
    pub(crate) fn appended(&mut self, len: usize) {
        self.end += len as u64;
        if let Some(after) = self.early.remove(&self.end) {
            self.end += after.len() as u64;
            let (first, second) = after.as_slices();
            let latest = self.ready.back_mut().expect("bytes were appended");
            latest.extend_from_slice(first);
            latest.extend_from_slice(second);
        }
    }

    /// Keeps early bytes until those before them come.
    pub(crate) fn keep(&mut self, offset: u64, bytes: Vec<u8>) {
        let after = self.early.remove(&(offset + bytes.len() as u64));
        let (start, before) = match self.run_before(offset) {
            Some((start, end)) if end == offset => (start, self.early.remove(&start)),
            _ => (offset, None),
        };
        let run = join(before.unwrap_or_default(), bytes.into());
        let run = join(run, after.unwrap_or_default());
        self.early.insert(start, run);
    }

    fn run_before(&self, offset: u64) -> Option<(u64, u64)> {
        let (&start, bytes) = self.early.range(..=offset).next_back()?;
        Some((start, start + bytes.len() as u64))
    }
}

/// One run of two. It costs what the smaller one has, so that no order of blocks makes a long
/// run travel again and again.
fn join(mut before: VecDeque<u8>, mut after: VecDeque<u8>) -> VecDeque<u8> {
    if before.len() >= after.len() {
        before.append(&mut after);
        return before;
    }
    while let Some(byte) = before.pop_back() {
        after.push_front(byte);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(order: &mut InOrder, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
        if order.is_next(offset, bytes.len())? {
            let mut spares = Spares::default();
            order
                .next(bytes.len(), &mut spares)
                .extend_from_slice(bytes);
            order.appended(bytes.len());
        } else {
            order.keep(offset, bytes.to_vec());
        }
        Ok(())
    }

    #[test]
    fn bytes_that_came_before_are_refused() {
        let mut order = InOrder::default();
        assert_eq!(put(&mut order, 0, b"ab"), Ok(()));
        assert_eq!(put(&mut order, 4, b"ef"), Ok(()));
        for (offset, bytes) in [
            (0, &b"a"[..]),
            (1, b"b"),
            (2, b"cde"),
            (3, b"def"),
            (4, b"e"),
            (5, b"f"),
            (u64::MAX, b"zz"),
            (FLOW_BYTES_MAX, b"z"),
        ] {
            assert_eq!(
                put(&mut order, offset, bytes),
                Err(Violation::BlockAtWrongOffset),
                "{offset}"
            );
        }
        assert_eq!((order.end(), order.early_runs()), (2, 1));
        assert_eq!(put(&mut order, 2, b"cd"), Ok(()));
        assert_eq!((order.end(), order.early_runs()), (6, 0));
    }

    #[test]
    fn pieces_of_the_usual_size_are_used_again_for_many_bytes() {
        let mut spares = Spares::default();
        spares.put(Vec::with_capacity(PIECE_BYTES + 1));
        spares.put(Vec::with_capacity(100));
        assert_eq!(spares.take(PIECE_BYTES).capacity(), 0);
        for _ in 0..2 * Spares::MAX {
            spares.put(vec![1; PIECE_BYTES]);
        }
        assert_eq!(spares.0.len(), Spares::MAX);
        for len in [PIECE_BYTES / 2 - 1, PIECE_BYTES + 1] {
            assert_eq!(spares.take(len).capacity(), 0);
        }
        let piece = spares.take(PIECE_BYTES / 2);
        assert_eq!((piece.len(), piece.capacity()), (0, PIECE_BYTES));
    }

    /// If each block cost a copy of the run, this would not end today.
    #[test]
    fn blocks_that_come_from_the_last_to_the_first_cost_no_more_than_others() {
        const BLOCKS: u64 = 500_000;
        let mut order = InOrder::default();
        put(&mut order, BLOCKS, &[7; 8 << 20]).expect("comes once");
        for at in (1..BLOCKS).rev() {
            put(&mut order, at, &[1]).expect("comes once");
        }
        assert_eq!((order.end(), order.early_runs()), (0, 1));
        put(&mut order, 0, &[0]).expect("comes once");
        assert_eq!(order.end(), BLOCKS + (8 << 20));
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_bytes(
            lens in prop::collection::vec(1usize..9, 1..40),
            keys in prop::collection::vec(any::<u32>(), 40),
        ) {
            let total: usize = lens.iter().sum();
            let plain: Vec<u8> = (0..total).map(|at| at as u8).collect();
            let mut start = 0;
            let mut pieces: Vec<_> = lens
                .iter()
                .zip(keys)
                .map(|(&len, key)| {
                    start += len;
                    (key, start - len, len)
                })
                .collect();
            pieces.sort_unstable();
            let mut order = InOrder::default();
            let mut taken = Vec::new();
            for (_, start, len) in pieces {
                put(&mut order, start as u64, &plain[start..start + len]).expect("comes once");
                while order.is_ready() {
                    taken.append(&mut order.take());
                }
                prop_assert_eq!(order.end() as usize, taken.len());
                prop_assert!(plain.starts_with(&taken));
            }
            prop_assert_eq!(taken, plain);
            prop_assert_eq!(order.early_runs(), 0);
        }
    }
}
