//! Where one is in the records of TLS that come (RFC 8446, section 5.1).
//!
//! No byte of a record is of use before its last. A reader that is woken for each packet reads and puts aside its bytes,
//! eleven times for a record of 16 KiB. So it waits for the whole rest of a record.

/// A record's type, version and length.
const HEADER_BYTES: usize = 5;

/// The records so far.
#[derive(Debug)]
pub(super) struct Records {
    /// The bytes of the next record's header that came.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes of the record that are still to come.
    rest: usize,
    /// The bytes that the connection waits for.
    awaited: usize,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            rest: 0,
            awaited: 1,
        }
    }
}

impl Records {
    /// Notes bytes that came.
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let missing = &mut self.header[self.header_bytes..];
            let (new, others) = bytes.split_at(missing.len().min(bytes.len()));
            missing[..new.len()].copy_from_slice(new);
            self.header_bytes += new.len();
            bytes = others;
            if self.header_bytes == HEADER_BYTES {
                let [.., high, low] = self.header;
                self.rest = usize::from(u16::from_be_bytes([high, low]));
                self.header_bytes = 0;
            }
        }
    }

    /// How many bytes to wait for, if that are others than before.
    pub(super) fn newly_awaited(&mut self) -> Option<usize> {
        let before = self.awaited;
        self.awaited = self.rest.max(1);
        (self.awaited != before).then_some(self.awaited)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(bytes: usize) -> Vec<u8> {
        let length = (bytes as u16).to_be_bytes();
        [&[23, 3, 3][..], &length, &vec![7; bytes]].concat()
    }

    proptest! {
        #[test]
        fn the_rest_of_the_record_is_awaited_wherever_bytes_are_cut(
            lengths in proptest::collection::vec(0..200_usize, 1..10),
            pieces in proptest::collection::vec(1..300_usize, 1..50),
        ) {
            let records: Vec<u8> = lengths.iter().flat_map(|&length| record(length)).collect();
            let mut read = Records::default();
            let mut at = 0;
            for piece in pieces {
                let end = records.len().min(at + piece);
                read.note(&records[at..end]);
                at = end;
                // By looking at all of them.
                let (mut begin, mut rest) = (0, 1);
                for length in &lengths {
                    let has_header = at >= begin + HEADER_BYTES;
                    begin += HEADER_BYTES + length;
                    if has_header && at < begin {
                        rest = begin - at;
                    }
                }
                let before = read.awaited;
                prop_assert_eq!(read.newly_awaited().unwrap_or(before), rest);
                prop_assert_eq!(read.newly_awaited(), None);
            }
        }
    }
}
