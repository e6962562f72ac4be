//! The shape of a zip archive, read from its beginning as it comes.
//!
//! A member whose size its local header does not say (it was written to a pipe, or is beyond 4 GiB)
//! ends where the next record seems to begin.

use super::shape::{self, Kind, Shape, Want};

/// Where in a zip archive the cutter is.
pub(super) enum Zip {
    /// Before a signature.
    Between,
    Record(Record),
    /// In bytes that nothing is known of, up to a signature.
    Lost,
}

#[derive(Clone, Copy)]
pub(super) enum Record {
    Local,
    Descriptor,
    Central,
    /// The end of the directory that large archives have.
    LargeEnd,
    Locator,
    End,
}

/// A record's bytes of a fixed number.
impl Record {
    fn of(signature: &[u8]) -> Option<Record> {
        Some(match signature {
            b"PK\x03\x04" => Record::Local,
            b"PK\x07\x08" => Record::Descriptor,
            b"PK\x01\x02" => Record::Central,
            b"PK\x06\x06" => Record::LargeEnd,
            b"PK\x06\x07" => Record::Locator,
            b"PK\x05\x06" => Record::End,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Record::Local => 30,
            Record::Descriptor => 16,
            Record::Central => 46,
            Record::LargeEnd => 12,
            Record::Locator => 20,
            Record::End => 22,
        }
    }
}

impl Zip {
    /// Whether a file begins as a zip archive does.
    pub(super) fn of(head: &[u8]) -> Option<Box<dyn Shape>> {
        head.starts_with(b"PK\x03\x04")
            .then_some(Box::new(Zip::Between))
    }
}

impl Shape for Zip {
    fn want(&self) -> Want {
        match self {
            Zip::Between => Want::Head(4),
            Zip::Record(record) => Want::Head(record.bytes()),
            Zip::Lost => Want::Find(b'P'),
        }
    }

    fn head(&mut self, head: &[u8], pass: &mut Vec<(Kind, u64)>) {
        let record = match *self {
            Zip::Record(record) => record,
            Zip::Lost => {
                *self = Zip::Between;
                return;
            }
            Zip::Between => {
                *self = match Record::of(head) {
                    Some(record) => {
                        pass.push((Kind::End, 0));
                        Zip::Record(record)
                    }
                    None => {
                        // Or what is not a signature would be found again.
                        pass.push((Kind::Content, 1));
                        Zip::Lost
                    }
                };
                return;
            }
        };
        *self = Zip::Between;
        match record {
            Record::Local => {
                let size = number(head, 18, 4);
                pass.extend([
                    (Kind::Fields, 10),
                    (Kind::Times, 4),
                    (Kind::Fields, 16),
                    (Kind::Fields, number(head, 26, 2)),
                    (Kind::Times, number(head, 28, 2)),
                ]);
                // A streamed member's is 0, and no signature follows, or one does.
                if size == u64::from(u32::MAX) {
                    *self = Zip::Lost;
                } else {
                    pass.extend(shape::member(size));
                }
            }
            Record::Descriptor => pass.push((Kind::Fields, 16)),
            Record::Central => pass.extend([
                (Kind::Fields, 12),
                (Kind::Times, 4),
                (Kind::Fields, 26),
                (Kind::Times, 4),
                (Kind::Fields, number(head, 28, 2)),
                (Kind::Times, number(head, 30, 2)),
                (Kind::Fields, number(head, 32, 2)),
            ]),
            Record::LargeEnd => match number(head, 4, 8) {
                rest @ 0..=4096 => pass.push((Kind::Times, 12 + rest)),
                _ => {
                    pass.push((Kind::Times, 12));
                    *self = Zip::Lost;
                }
            },
            Record::Locator => pass.push((Kind::Times, 20)),
            Record::End => pass.extend([(Kind::Times, 22), (Kind::Fields, number(head, 20, 2))]),
        }
    }
}

/// The little-endian number of `bytes` bytes at `at`.
fn number(head: &[u8], at: usize, bytes: usize) -> u64 {
    let field = &head[at..at + bytes];
    field
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}
