//! A flow's plain bytes that wait for their lane.

use core::ops::Deref;

/// Bytes that come at the end and leave at the front, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct PendingBytes {
    bytes: Vec<u8>,
    /// Of them, what has left.
    sent: usize,
}

impl PendingBytes {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Not at every piece that leaves: a flow that leaves in small ones would move the rest
        // for each.
        if self.sent > self.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The first `len` bytes are sent.
    pub(crate) fn take(&mut self, len: usize) {
        self.sent += len;
        if self.is_empty() {
            // Ten thousand idle flows shall not each keep their largest write.
            *self = Self::default();
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

    proptest! {
        #[test]
        fn bytes_leave_as_they_came(writes in vec((vec(any::<u8>(), 0..50), any::<Index>()), 0..50)) {
            let mut pending = PendingBytes::default();
            let mut expected = Vec::new();
            for (bytes, sent) in writes {
                pending.push(&bytes);
                expected.extend(bytes);
                prop_assert_eq!(&pending[..], &expected[..]);
                prop_assert!(pending.bytes.len() <= 2 * expected.len());
                let sent = sent.index(expected.len() + 1);
                pending.take(sent);
                expected.drain(..sent);
                prop_assert_eq!(&pending[..], &expected[..]);
                prop_assert!(!expected.is_empty() || pending.bytes.capacity() == 0);
            }
        }
    }
}
