//! The circular log of plain bytes that both ends of a link mirror
//! (EndRE, section 5.2.1: "a fixed-size circular FIFO log of data blocks").
//!
//! The log only stores and reads; who may refer to what is the business of
//! [`Reach`](crate::matching::Reach) at the encoder and of the bounds that
//! [`Decoder`](crate::Decoder) checks.

use crate::{
    LogPosition,
    memory::{HUGE_PAGE_BYTES, Pages, Prefault},
    simd::{
        Backend,
        compare::{common_prefix, common_suffix},
        prefetch::prefetch,
    },
};

/// The most memory that is prefaulted beyond what is filled.
const PREFAULTED_BYTES_MAX: usize = 64 << 20;

/// A circular log of `capacity` bytes, which takes memory as it fills.
#[derive(Debug)]
pub(crate) struct Log {
    bytes: Pages<u8>,
    /// How far into `bytes` anything was written yet.
    filled: usize,
    /// How many bytes were written, as far as the log is long.
    written: usize,
    /// How far into `bytes` memory was to be prefaulted.
    prefaults: usize,
    /// Where the last write ended, and its offset: others are counted from it, which is
    /// quicker than a division each.
    end: LogPosition,
    end_offset: usize,
    backend: Backend,
}

impl Log {
    /// An empty log of `capacity` bytes, none of which takes memory yet.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub(crate) fn new(capacity: usize, backend: Backend) -> Self {
        assert!(capacity > 0, "a log needs a capacity");
        Self {
            bytes: Pages::zeroed(capacity),
            filled: 0,
            written: 0,
            prefaults: 0,
            end: LogPosition(0),
            end_offset: 0,
            backend,
        }
    }

    /// How many bytes the log keeps.
    #[must_use]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// How much memory the log takes now, in whole huge pages; at most its capacity.
    #[must_use]
    pub(crate) fn allocated_bytes(&self) -> usize {
        let touched = self.filled.next_multiple_of(HUGE_PAGE_BYTES);
        let touched = touched.max(self.bytes.prefaulted_bytes());
        touched.min(self.capacity())
    }

    /// Whether there is more to prefault: beyond what is filled, as much as was written.
    pub(crate) fn wants_prefault(&self) -> bool {
        let beyond = self.written.min(PREFAULTED_BYTES_MAX);
        let most = (self.filled + beyond).min(self.capacity());
        self.bytes.can_prefault() && self.next_page() + HUGE_PAGE_BYTES <= most
    }

    /// The huge page that it will need next, if there is more to prefault.
    pub(crate) fn prefault(&mut self) -> Option<Prefault> {
        let page = self.next_page();
        self.prefaults = self.wants_prefault().then_some(page + HUGE_PAGE_BYTES)?;
        self.bytes.prefault(page..self.prefaults)
    }

    /// The first huge page that was neither written nor to be prefaulted.
    fn next_page(&self) -> usize {
        let filled = self.filled.next_multiple_of(HUGE_PAGE_BYTES);
        filled.max(self.prefaults)
    }

    /// Writes `data` at `at`, over whatever lay there a capacity earlier.
    ///
    /// # Panics
    /// If `data` is longer than the log.
    pub(crate) fn write(&mut self, at: LogPosition, data: &[u8]) {
        assert!(data.len() <= self.capacity(), "a block longer than the log");
        let offset = self.offset(at);
        let first = data.len().min(self.capacity() - offset);
        self.filled = self.filled.max(offset + first);
        self.written = (self.written + data.len()).min(self.capacity());
        self.bytes[offset..offset + first].copy_from_slice(&data[..first]);
        let rest = &data[first..];
        self.bytes[..rest.len()].copy_from_slice(rest);
        self.end_offset = self.offset(at + data.len() as u64);
        self.end = at + data.len() as u64;
    }

    /// The `len` bytes from `from`, in at most two pieces where the range wraps;
    /// `None` beyond the highest offset that was ever written.
    #[inline(always)]
    #[must_use]
    pub(crate) fn pieces(&self, from: LogPosition, len: usize) -> Option<(&[u8], &[u8])> {
        if len > self.capacity() {
            return None;
        }
        let offset = self.offset(from);
        let first = len.min(self.capacity() - offset);
        let head = self.written().get(offset..offset + first)?;
        let tail = self.written().get(..len - first)?;
        Some((head, tail))
    }

    /// All bytes from `from` to where the log wraps, or where nothing was written yet.
    #[inline]
    pub(crate) fn run(&self, from: LogPosition) -> &[u8] {
        self.written().get(self.offset(from)..).unwrap_or_default()
    }

    /// Asks the processor for the bytes at `offset`.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u32) {
        prefetch(&self.bytes, offset as usize);
    }

    /// The eight bytes at `offset`; `None` where they wrap, or memory for them was never
    /// written.
    #[inline]
    pub(crate) fn chunk(&self, offset: u32) -> Option<&[u8; 8]> {
        self.written().get(offset as usize..)?.first_chunk()
    }

    /// The latest position before `at` whose byte lies at `offset`; `None` where there was
    /// none.
    #[inline]
    pub(crate) fn latest(&self, offset: u32, at: LogPosition) -> Option<LogPosition> {
        let (offset, at_offset) = (offset as usize, self.offset(at));
        let distance = match at_offset.checked_sub(offset) {
            Some(distance @ 1..) => distance,
            _ => at_offset + self.capacity() - offset,
        };
        at.0.checked_sub(distance as u64).map(LogPosition)
    }

    /// How many bytes of `block` equal the log from `from` on, up to `len` of them.
    #[inline(always)]
    #[must_use]
    pub(crate) fn common_prefix(&self, from: LogPosition, block: &[u8], len: usize) -> usize {
        let Some((head, tail)) = self.pieces(from, len.min(block.len())) else {
            return 0;
        };
        let equal = common_prefix(self.backend, head, block);
        if equal < head.len() {
            return equal;
        }
        equal + common_prefix(self.backend, tail, &block[head.len()..])
    }

    /// How many bytes at the end of `block` equal the log before `before`, up to `len`.
    #[inline(always)]
    #[must_use]
    pub(crate) fn common_suffix(&self, before: LogPosition, block: &[u8], len: usize) -> usize {
        let len = len.min(block.len());
        let Some((head, tail)) = self.pieces(before.back(len as u64), len) else {
            return 0;
        };
        let equal = common_suffix(self.backend, tail, block);
        if equal < tail.len() {
            return equal;
        }
        equal + common_suffix(self.backend, head, &block[..block.len() - tail.len()])
    }

    /// Where the byte at `at` lies in memory.
    #[inline]
    pub(crate) fn offset(&self, at: LogPosition) -> usize {
        let capacity = self.capacity() as u64;
        let back = self.end.0.wrapping_sub(at.0);
        if back <= self.end_offset as u64 {
            self.end_offset - back as usize
        } else if back <= capacity {
            self.end_offset + (capacity - back) as usize
        } else {
            (at.0 % capacity) as usize
        }
    }

    #[inline(always)]
    fn written(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_os = "linux", not(miri)))]
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn read(log: &Log, from: u64, len: usize) -> Vec<u8> {
        let (head, tail) = log.pieces(LogPosition(from), len).expect("written");
        [head, tail].concat()
    }

    #[test]
    fn keeps_the_last_capacity_bytes() {
        let mut log = Log::new(10, Backend::best());
        log.write(LogPosition(0), b"abcdefgh");
        log.write(LogPosition(8), b"ijklm");
        assert_eq!(read(&log, 3, 10), b"defghijklm");
        assert_eq!(log.allocated_bytes(), 10);
    }

    #[test]
    fn takes_memory_as_it_fills() {
        let mut log = Log::new(64 << 20, Backend::best());
        assert_eq!(log.allocated_bytes(), 0);
        log.write(LogPosition(0), &[1; 1000]);
        assert_eq!(log.allocated_bytes(), HUGE_PAGE_BYTES);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn as_much_memory_is_prefaulted_as_was_written() {
        let mut log = Log::new(64 << 20, Backend::best());
        let mut write = |from: u64, to: u64| {
            let bytes = vec![1; (to - from) as usize];
            log.write(LogPosition(from), &bytes);
            let prefaults = core::iter::from_fn(|| log.prefault());
            let pages = prefaults.map(Prefault::run).count();
            (pages, log.allocated_bytes() >> 20)
        };
        const MIB: u64 = 1 << 20;
        assert_eq!(write(0, MIB), (0, 2));
        assert_eq!(write(MIB, 3 * MIB), (1, 6));
        assert_eq!(write(3 * MIB, 5 * MIB), (2, 10));
        assert_eq!(write(30 * MIB, 31 * MIB), (2, 36), "only 6 were written");
        assert_eq!(write(31 * MIB, 60 * MIB), (2, 64));
        assert_eq!(write(60 * MIB, 70 * MIB), (0, 64));
    }

    #[test]
    fn an_offset_means_the_latest_position_before() {
        let mut log = Log::new(100, Backend::best());
        log.write(LogPosition(1000), &[0; 30]);
        let latest = |offset, at| log.latest(offset, LogPosition(at)).map(|at| at.0);
        assert_eq!(latest(7, 1010), Some(1007));
        assert_eq!(latest(10, 1010), Some(910));
        assert_eq!(latest(99, 1010), Some(999));
        assert_eq!(latest(99, 10), None);
        assert_eq!(latest(10, 1110), Some(1010));
    }

    #[test]
    fn unwritten_memory_is_not_read() {
        let log = Log::new(4096, Backend::best());
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
            let mut log = Log::new(64, Backend::best());
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
