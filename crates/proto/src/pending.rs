//! A flow's plain bytes that wait for their lane.

use core::ops::{Deref, Range};
use std::collections::VecDeque;

/// Bytes that come at the end and leave at the front, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct PendingBytes {
    bytes: Vec<u8>,
    /// Of them, what has left.
    sent: usize,
    /// All that has left since nothing was pending.
    left: u64,
    /// What is secret of what waits, counted as `left`: ranges in order, none of them adjacent.
    secrets: VecDeque<Range<u64>>,
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

    /// The same for bytes that are secret.
    pub(crate) fn push_secret(&mut self, bytes: &[u8]) {
        let start = self.left + self.len() as u64;
        self.push(bytes);
        let end = start + bytes.len() as u64;
        match self.secrets.back_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if start < end => self.secrets.push_back(start..end),
            _ => {}
        }
    }

    /// Of the first `len` bytes, how many are alike, and whether they are secret.
    pub(crate) fn alike(&self, len: usize) -> (usize, bool) {
        let Some(secret) = self.secrets.front() else {
            return (len, false);
        };
        let (until, is_secret) = match secret.start <= self.left {
            true => (secret.end, true),
            false => (secret.start, false),
        };
        let until = usize::try_from(until - self.left).unwrap_or(usize::MAX);
        (len.min(until), is_secret)
    }

    /// Whether any of it is secret.
    pub(crate) fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// The first `len` bytes are sent.
    pub(crate) fn take(&mut self, len: usize) {
        self.sent += len;
        self.left += len as u64;
        while self
            .secrets
            .pop_front_if(|secret| secret.end <= self.left)
            .is_some()
        {}
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

        #[test]
        fn secret_bytes_leave_apart_from_others(
            writes in vec((vec(any::<u8>(), 0..20), any::<bool>(), 0..30_usize), 0..50),
        ) {
            let mut pending = PendingBytes::default();
            let mut expected = Vec::new();
            for (bytes, is_secret, sent) in writes {
                match is_secret {
                    true => pending.push_secret(&bytes),
                    false => pending.push(&bytes),
                }
                expected.extend(bytes.into_iter().map(|byte| (byte, is_secret)));
                let (len, is_secret) = pending.alike(sent.min(expected.len()));
                prop_assert!(len > 0 || sent == 0 || expected.is_empty());
                for (byte, expected) in pending[..len].iter().zip(expected.drain(..len)) {
                    prop_assert_eq!((*byte, is_secret), expected);
                }
                pending.take(len);
                let left = expected.iter().any(|(_, is_secret)| *is_secret);
                prop_assert_eq!(pending.has_secrets(), left);
            }
        }
    }
}
