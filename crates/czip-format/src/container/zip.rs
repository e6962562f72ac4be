//! The shape of a zip archive, read from its beginning as it comes.
//!
//! A member whose size its local header does not say (it was written to a pipe, or is beyond 4 GiB)
//! ends where the next record seems to begin.

use super::Pieces;
use super::shape::{self, Kind, Shape, Want};

/// Where in a zip archive the cutter is.
pub(super) enum Zip {
    /// Before a signature.
    Between,
    Record(Record),
    /// In bytes that nothing is known of, up to a signature.
    Lost,
    /// Before what may be a signature there.
    Found,
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
    pub(super) fn of(head: &[u8]) -> Option<Zip> {
        head.starts_with(b"PK\x03\x04").then_some(Zip::Between)
    }

    fn local<P: Pieces>(
        &mut self,
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<(), P::Error> {
        let size = number(head, 18, 4);
        out.fields(&head[..10])?;
        out.times(&head[10..14])?;
        out.fields(&head[14..])?;
        pass.push((Kind::Fields, number(head, 26, 2)));
        pass.push((Kind::Times, number(head, 28, 2)));
        // A streamed member's is 0, and no signature follows, or one does.
        if size == u64::from(u32::MAX) {
            *self = Zip::Lost;
        } else {
            pass.extend(shape::member(size));
        }
        Ok(())
    }

    /// The directory repeats what local headers say, and adds where they are, which every change moves.
    fn central<P: Pieces>(
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<(), P::Error> {
        out.fields(&head[..12])?;
        out.times(&head[12..16])?;
        out.fields(&head[16..42])?;
        out.times(&head[42..])?;
        pass.push((Kind::Fields, number(head, 28, 2)));
        pass.push((Kind::Times, number(head, 30, 2)));
        pass.push((Kind::Fields, number(head, 32, 2)));
        Ok(())
    }
}

impl Shape for Zip {
    fn want(&self) -> Want {
        match self {
            Zip::Between | Zip::Found => Want::Head(4),
            Zip::Record(record) => Want::Head(record.bytes()),
            Zip::Lost => Want::Find(b'P'),
        }
    }

    fn head<P: Pieces>(
        &mut self,
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<usize, P::Error> {
        let Zip::Record(record) = *self else {
            if let Some(record) = Record::of(head) {
                out.boundary()?;
                *self = Zip::Record(record);
                return Ok(0);
            }
            *self = Zip::Lost;
            // Or what is not a signature would be found again.
            out.content(&head[..1])?;
            return Ok(1);
        };
        *self = Zip::Between;
        match record {
            Record::Local => self.local(head, pass, out)?,
            Record::Descriptor => out.fields(head)?,
            Record::Central => Zip::central(head, pass, out)?,
            Record::LargeEnd => {
                out.times(head)?;
                match number(head, 4, 8) {
                    rest @ 0..=4096 => pass.push((Kind::Times, rest)),
                    _ => *self = Zip::Lost,
                }
            }
            Record::Locator => out.times(head)?,
            Record::End => {
                out.times(head)?;
                pass.push((Kind::Fields, number(head, 20, 2)));
            }
        }
        Ok(head.len())
    }

    fn found(&mut self) {
        *self = Zip::Found;
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
