//! A flow's plain bytes that wait for their lane.

use core::{mem, ops::Deref};

use crate::limits::PENDING_BYTES_MAX;

/// Memory of so many bytes and more is worth being used again: the system clears what an allocator gives back.
const SPARE_BYTES_MIN: usize = 32 << 10;

/// Bytes that come at the end and leave at the front, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct PendingBytes {
    bytes: Vec<u8>,
    /// Of them, what has left.
    sent: usize,
}

impl PendingBytes {
    /// Many bytes use `spare` memory, if there is some.
    pub(crate) fn push(&mut self, bytes: &[u8], spare: &mut Vec<u8>) {
        if self.bytes.capacity() == 0 && bytes.len() >= SPARE_BYTES_MIN {
            self.bytes = mem::take(spare);
        }
        // Not at every piece that leaves: a flow that leaves in small ones would move the rest
        // for each.
        if self.sent > self.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The first `len` bytes are sent. If they were the last, their memory may be `spare` now.
    pub(crate) fn take(&mut self, len: usize, spare: &mut Vec<u8>) {
        self.sent += len;
        if self.is_empty() {
            // Ten thousand idle flows shall not each keep their largest write.
            let mut memory = mem::take(self).bytes;
            if (SPARE_BYTES_MIN..=2 * PENDING_BYTES_MAX).contains(&memory.capacity()) {
                memory.clear();
                *spare = memory;
            }
        }
    }
}

impl Deref for PendingBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::Index};

    #[test]
    fn memory_of_many_bytes_is_used_again_and_no_other() {
        let mut spare = Vec::new();
        let mut pending = PendingBytes::default();
        pending.push(&[1; SPARE_BYTES_MIN], &mut spare);
        pending.take(SPARE_BYTES_MIN, &mut spare);
        let kept = spare.capacity();
        assert!(kept >= SPARE_BYTES_MIN && spare.is_empty());
        pending.push(&[2; 10], &mut spare);
        assert!(pending.bytes.capacity() < kept);
        pending.take(10, &mut spare);
        assert_eq!(spare.capacity(), kept);
        pending.push(&vec![3; 3 * PENDING_BYTES_MAX], &mut spare);
        assert_eq!(spare.capacity(), 0);
        pending.take(3 * PENDING_BYTES_MAX, &mut spare);
        assert_eq!(spare.capacity(), 0);
    }

    proptest! {
        #[test]
        fn bytes_leave_as_they_came(writes in vec((vec(any::<u8>(), 0..50), any::<Index>()), 0..50)) {
            let mut pending = PendingBytes::default();
            let mut expected = Vec::new();
            let mut spare = Vec::new();
            for (bytes, sent) in writes {
                pending.push(&bytes, &mut spare);
                expected.extend(bytes);
                prop_assert_eq!(&pending[..], &expected[..]);
                prop_assert!(pending.bytes.len() <= 2 * expected.len());
                let sent = sent.index(expected.len() + 1);
                pending.take(sent, &mut spare);
                expected.drain(..sent);
                prop_assert_eq!(&pending[..], &expected[..]);
                prop_assert!(!expected.is_empty() || pending.bytes.capacity() == 0);
            }
        }
    }
}
