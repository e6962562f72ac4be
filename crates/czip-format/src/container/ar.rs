//! The shape of an ar archive, such as a Debian package.

use super::shape::{self, Kind, Shape, Want};

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;
const MTIME: std::ops::Range<usize> = 16..28;
const SIZE: std::ops::Range<usize> = 48..58;
const HEADER_END: &[u8] = b"`\n";

/// Where in an ar archive the cutter is.
pub(super) enum Ar {
    Magic,
    Header,
    /// Behind a member of an odd length.
    Filler,
    Lost,
}

impl Ar {
    /// Whether a file begins as an ar archive does.
    pub(super) fn of(head: &[u8]) -> Option<Box<dyn Shape>> {
        head.starts_with(MAGIC).then_some(Box::new(Ar::Magic))
    }
}

impl Shape for Ar {
    fn want(&self) -> Want {
        match self {
            Ar::Magic => Want::Head(MAGIC.len()),
            Ar::Header => Want::Head(HEADER_BYTES),
            Ar::Filler => Want::Head(1),
            Ar::Lost => Want::Rest,
        }
    }

    fn head(&mut self, head: &[u8], pass: &mut Vec<(Kind, u64)>) {
        match self {
            Ar::Header => {
                let Some(size) = decimal(&head[SIZE]).filter(|_| head.ends_with(HEADER_END)) else {
                    *self = Ar::Lost;
                    return;
                };
                pass.extend([
                    (Kind::Fields, MTIME.start as u64),
                    (Kind::Times, MTIME.len() as u64),
                    (Kind::Fields, (HEADER_BYTES - MTIME.end) as u64),
                ]);
                pass.extend(shape::member(size));
                if size % 2 == 1 {
                    *self = Ar::Filler;
                }
            }
            Ar::Filler if head != b"\n" => *self = Ar::Header,
            Ar::Magic | Ar::Filler | Ar::Lost => {
                *self = Ar::Header;
                pass.push((Kind::Fields, head.len() as u64));
            }
        }
    }
}

/// A decimal number with spaces behind it.
fn decimal(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii_end();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(value * 10 + u64::from(digit))
    })
}
