//! The circular log of plain bytes that both ends of a link mirror
//! (EndRE, section 5.2.1: "a fixed-size circular FIFO log of data blocks").
//!
//! The log only stores and reads; who may refer to what is the business of
//! [`Reach`](crate::matching::Reach) at the encoder and of the bounds that
//! [`Decoder`](crate::Decoder) checks.

use alloc::vec::Vec;

use crate::LogPosition;

/// Step in which a log's memory grows until it reaches its capacity.
const GROWTH_BYTES_MIN: usize = 1 << 20;

/// A circular log of `capacity` bytes, allocated as it fills.
#[derive(Debug)]
pub struct Log {
    bytes: Vec<u8>,
    capacity: usize,
}

impl Log {
    /// An empty log of `capacity` bytes; nothing is allocated yet.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a log needs a capacity");
        Self {
            bytes: Vec::new(),
            capacity,
        }
    }

    /// How many bytes the log keeps.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How much memory the log holds now; at most its capacity.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Writes `data` at `at`, over whatever lay there a capacity earlier.
    ///
    /// # Panics
    /// If `data` is longer than the log.
    pub fn write(&mut self, at: LogPosition, data: &[u8]) {
        assert!(data.len() <= self.capacity, "a block longer than the log");
        let offset = self.offset(at);
        let first = data.len().min(self.capacity - offset);
        self.grow_to(offset + first);
        self.bytes[offset..offset + first].copy_from_slice(&data[..first]);
        let rest = &data[first..];
        self.bytes[..rest.len()].copy_from_slice(rest);
    }

    /// The `len` bytes from `from`, in at most two pieces where the range wraps;
    /// `None` where memory for them was never written.
    #[must_use]
    pub fn pieces(&self, from: LogPosition, len: usize) -> Option<(&[u8], &[u8])> {
        if len > self.capacity {
            return None;
        }
        let offset = self.offset(from);
        let first = len.min(self.capacity - offset);
        let head = self.bytes.get(offset..offset + first)?;
        let tail = self.bytes.get(..len - first)?;
        Some((head, tail))
    }

    /// The eight bytes from `from` on; `None` where they wrap, or memory for them was never
    /// written.
    #[inline]
    pub(crate) fn chunk(&self, from: LogPosition) -> Option<&[u8; 8]> {
        self.bytes.get(self.offset(from)..)?.first_chunk()
    }

    /// How many bytes of `block` equal the log from `from` on, up to `len` of them.
    #[must_use]
    pub fn common_prefix(&self, from: LogPosition, block: &[u8], len: usize) -> usize {
        let Some((head, tail)) = self.pieces(from, len.min(block.len())) else {
            return 0;
        };
        let equal = common_prefix(head, block);
        if equal < head.len() {
            return equal;
        }
        equal + common_prefix(tail, &block[head.len()..])
    }

    /// How many bytes at the end of `block` equal the log before `before`, up to `len`.
    #[must_use]
    pub fn common_suffix(&self, before: LogPosition, block: &[u8], len: usize) -> usize {
        let len = len.min(block.len());
        let Some((head, tail)) = self.pieces(before.back(len as u64), len) else {
            return 0;
        };
        let equal = common_suffix(tail, block);
        if equal < tail.len() {
            return equal;
        }
        equal + common_suffix(head, &block[..block.len() - tail.len()])
    }

    fn offset(&self, at: LogPosition) -> usize {
        // The capacity is a usize, so is the remainder.
        (at.0 % self.capacity as u64) as usize
    }

    fn grow_to(&mut self, len: usize) {
        if len <= self.bytes.len() {
            return;
        }
        let step = GROWTH_BYTES_MIN.max(self.bytes.len() / 8);
        let target = len.max(self.bytes.len() + step).min(self.capacity);
        // Exact: a doubling vector would break the promise on memory.
        self.bytes.reserve_exact(target - self.bytes.len());
        self.bytes.resize(target, 0);
    }
}

/// Length of the common prefix of `a` and `b`, eight bytes at a time.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut equal = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let difference = word(x) ^ word(y);
        if difference != 0 {
            return equal + (difference.trailing_zeros() / 8) as usize;
        }
        equal += 8;
    }
    equal
        + a[equal..]
            .iter()
            .zip(&b[equal..])
            .take_while(|(x, y)| x == y)
            .count()
}

/// Length of the common suffix of `a` and `b`, eight bytes at a time.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let mut equal = 0;
    for (x, y) in a.rchunks_exact(8).zip(b.rchunks_exact(8)) {
        let difference = word(x) ^ word(y);
        if difference != 0 {
            return equal + (difference.leading_zeros() / 8) as usize;
        }
        equal += 8;
    }
    let (a, b) = (&a[..a.len() - equal], &b[..b.len() - equal]);
    equal
        + a.iter()
            .rev()
            .zip(b.iter().rev())
            .take_while(|(x, y)| x == y)
            .count()
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("chunks of eight"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(log: &Log, from: u64, len: usize) -> Vec<u8> {
        let (head, tail) = log.pieces(LogPosition(from), len).expect("written");
        [head, tail].concat()
    }

    #[test]
    fn keeps_the_last_capacity_bytes() {
        let mut log = Log::new(10);
        log.write(LogPosition(0), b"abcdefgh");
        log.write(LogPosition(8), b"ijklm");
        assert_eq!(read(&log, 3, 10), b"defghijklm");
        assert_eq!(log.allocated_bytes(), 10);
    }

    #[test]
    fn allocates_as_it_fills() {
        let mut log = Log::new(64 << 20);
        assert_eq!(log.allocated_bytes(), 0);
        log.write(LogPosition(0), &[1; 1000]);
        assert_eq!(log.allocated_bytes(), GROWTH_BYTES_MIN);
    }

    #[test]
    fn unwritten_memory_is_not_read() {
        let log = Log::new(4096);
        assert!(log.pieces(LogPosition(5), 1).is_none());
        assert_eq!(log.common_prefix(LogPosition(5), b"abc", 3), 0);
    }

    proptest! {
        #[test]
        fn common_parts_equal_a_bytewise_search(
            a in proptest::collection::vec(0u8..2, 0..60),
            b in proptest::collection::vec(0u8..2, 0..60),
            at in 0u64..200,
        ) {
            let mut log = Log::new(64);
            log.write(LogPosition(at), &[9; 64]);
            log.write(LogPosition(at), &a);
            let prefix = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(log.common_prefix(LogPosition(at), &b, a.len()), prefix);
            let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
            let end = LogPosition(at + a.len() as u64);
            prop_assert_eq!(log.common_suffix(end, &b, a.len()), suffix);
        }
    }
}
