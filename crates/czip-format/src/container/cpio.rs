//! The shape of a cpio archive in its newc form, with or without checksums.

use super::Pieces;
use super::shape::{self, Kind, Shape, Want};

const MAGICS: [&[u8]; 2] = [b"070701", b"070702"];
const HEADER_BYTES: usize = 110;
/// The inode's number, which says nothing outside of the disk that it was on.
const INODE: std::ops::Range<usize> = 6..14;
const MTIME: std::ops::Range<usize> = 46..54;
const SIZE: std::ops::Range<usize> = 54..62;
const NAME_BYTES: std::ops::Range<usize> = 94..102;
const NAME_BYTES_MAX: u64 = 4096;

/// Where in a cpio archive the cutter is.
pub(super) enum Cpio {
    /// Before a header, or zeros as after the last one.
    Between,
    Header,
    /// Before the zeros behind data.
    Padding(usize),
    Lost,
}

impl Cpio {
    /// Whether a file begins as a cpio archive does.
    pub(super) fn of(head: &[u8]) -> Option<Cpio> {
        let found = MAGICS.iter().any(|magic| head.starts_with(magic));
        found.then_some(Cpio::Header)
    }

    /// The bytes of the name and of the data. None if this is no header.
    fn sizes(head: &[u8]) -> Option<(u64, u64)> {
        Cpio::of(head)?;
        let name_bytes = hexadecimal(&head[NAME_BYTES])?;
        let size = hexadecimal(&head[SIZE])?;
        (name_bytes <= NAME_BYTES_MAX).then_some((name_bytes, size))
    }
}

impl Shape for Cpio {
    fn want(&self) -> Want {
        match self {
            Cpio::Between => Want::Head(4),
            Cpio::Header => Want::Head(HEADER_BYTES),
            Cpio::Padding(count) => Want::Head(*count),
            Cpio::Lost => Want::Rest,
        }
    }

    fn head<P: Pieces>(
        &mut self,
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<usize, P::Error> {
        match self {
            Cpio::Header => {
                let Some((name_bytes, size)) = Cpio::sizes(head) else {
                    *self = Cpio::Lost;
                    return Ok(0);
                };
                out.fields(&head[..INODE.start])?;
                out.times(&head[INODE])?;
                out.fields(&head[INODE.end..MTIME.start])?;
                out.times(&head[MTIME])?;
                out.fields(&head[MTIME.end..])?;
                out.written(hexadecimal(&head[MTIME]).unwrap_or(0));
                let name_end = HEADER_BYTES as u64 + name_bytes;
                pass.push((Kind::Fields, name_bytes + padding_bytes(name_end) as u64));
                pass.extend(shape::member(size));
                *self = Cpio::Padding(padding_bytes(size));
            }
            Cpio::Between if head != [0; 4] => {
                *self = Cpio::Header;
                return Ok(0);
            }
            Cpio::Padding(_) if head.iter().any(|byte| *byte != 0) => {
                *self = Cpio::Between;
                out.content(head)?;
            }
            Cpio::Between | Cpio::Padding(_) | Cpio::Lost => {
                *self = Cpio::Between;
                out.zeros(head.len())?;
            }
        }
        Ok(head.len())
    }
}

/// Zeros up to a multiple of 4.
fn padding_bytes(bytes: u64) -> usize {
    (bytes.wrapping_neg() % 4) as usize
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    field.iter().try_fold(0, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}
