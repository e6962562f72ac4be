//! The shape of a cpio archive in its newc form, with or without checksums.

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
    pub(super) fn of(head: &[u8]) -> Option<Box<dyn Shape>> {
        is_header(head).then_some(Box::new(Cpio::Header))
    }

    /// The bytes of the name and of the data. None if this is no header.
    fn sizes(head: &[u8]) -> Option<(u64, u64)> {
        let name_bytes = hexadecimal(&head[NAME_BYTES])?;
        let size = hexadecimal(&head[SIZE])?;
        (is_header(head) && name_bytes <= NAME_BYTES_MAX).then_some((name_bytes, size))
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

    fn head(&mut self, head: &[u8], pass: &mut Vec<(Kind, u64)>) {
        match self {
            Cpio::Header => {
                let Some((name_bytes, size)) = Cpio::sizes(head) else {
                    *self = Cpio::Lost;
                    return;
                };
                let name_end = HEADER_BYTES as u64 + name_bytes;
                pass.extend([
                    (Kind::Fields, INODE.start as u64),
                    (Kind::Times, INODE.len() as u64),
                    (Kind::Fields, (MTIME.start - INODE.end) as u64),
                    (Kind::Times, MTIME.len() as u64),
                    (Kind::Fields, (HEADER_BYTES - MTIME.end) as u64),
                    (Kind::Written(hexadecimal(&head[MTIME]).unwrap_or(0)), 0),
                    (Kind::Fields, name_bytes + padding_bytes(name_end) as u64),
                ]);
                pass.extend(shape::member(size));
                *self = Cpio::Padding(padding_bytes(size));
            }
            Cpio::Between if head != [0; 4] => *self = Cpio::Header,
            Cpio::Between | Cpio::Padding(_) | Cpio::Lost => {
                *self = Cpio::Between;
                let kind = match head.iter().all(|byte| *byte == 0) {
                    true => Kind::Zeros,
                    false => Kind::Content,
                };
                pass.push((kind, head.len() as u64));
            }
        }
    }
}

fn is_header(head: &[u8]) -> bool {
    MAGICS.iter().any(|magic| head.starts_with(magic))
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
