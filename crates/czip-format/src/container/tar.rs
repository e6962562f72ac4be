//! The shape of a tar archive.
//!
//! A block that should be a header and is none is content, and so are all behind it, up to one that
//! is a header for sure. So whatever cannot be understood (a sparse map, a size that lies, an
//! archive behind garbage) costs what it touches and nothing else.

use super::Pieces;
use super::loom::RESTART_BYTES;
use super::shape::{self, Kind, Shape, Want};
use super::tar_header;
use crate::weave::EXTENDED_TEXT_BYTES_MAX;
use crate::weave::tar::{self, Block};

/// A longer member is not put into one operation, which would leave no room for restart points.
const MEMBER_BYTES_MAX: u64 = RESTART_BYTES;

/// Where in a tar archive the cutter is.
pub(super) struct Tar {
    state: State,
    /// What an extended header says that the next member's size is.
    extended_size: Option<u64>,
}

enum State {
    /// Before a header, or a block of zeros.
    Header,
    /// Before the text of an extended header, and the zeros behind it.
    Text { bytes: usize },
    /// Before the zeros behind data.
    Padding { count: usize, member: Option<Pause> },
    /// Before a block that may be anything.
    Lost,
}

/// What [`Pieces::pause`] is told.
#[derive(Clone, Copy)]
struct Pause {
    draw: u64,
    bytes: u64,
}

impl Tar {
    /// Whether a file begins as a tar archive does.
    pub(super) fn of(head: &[u8]) -> Option<Tar> {
        let header = head.first_chunk()?;
        is_header(header).then_some(Tar {
            state: State::Header,
            extended_size: None,
        })
    }

    fn header<P: Pieces>(
        &mut self,
        header: &Block,
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<(), P::Error> {
        let kind = header[tar::TYPE];
        let said = tar::data_bytes(header);
        let actual = match self.extended_size {
            Some(size) if !matches!(kind, b'1'..=b'6') && !tar::says_more(kind) => Some(size),
            _ => said.or_else(|| large_size(header)),
        };
        if !tar::says_more(kind) {
            self.extended_size = None;
        }
        let Some(bytes) = actual else {
            self.state = State::Lost;
            return out.tar_header(header);
        };

        let text = kind == b'x' && bytes <= EXTENDED_TEXT_BYTES_MAX;
        if said == actual && bytes <= MEMBER_BYTES_MAX && (text || kind != b'x') {
            out.tar_member(header)?;
        } else {
            out.tar_header(header)?;
        }
        if text {
            self.state = State::Text {
                bytes: bytes as usize,
            };
            return Ok(());
        }
        let count = tar::padding_bytes(bytes);
        let mut member = None;
        match kind {
            b'x' | b'g' => pass.push((Kind::Times, bytes)),
            b'L' | b'K' => pass.push((Kind::Fields, bytes)),
            _ => {
                out.written(tar::octal(&header[tar::MTIME]).unwrap_or(0));
                pass.extend(shape::member(bytes));
                member = Some(Pause {
                    draw: draw(header),
                    bytes: bytes.saturating_add((header.len() + count) as u64),
                });
            }
        }
        self.state = State::Padding { count, member };
        Ok(())
    }
}

impl Shape for Tar {
    fn want(&self) -> Want {
        Want::Head(match self.state {
            State::Header | State::Lost => 512,
            State::Text { bytes } => bytes + tar::padding_bytes(bytes as u64),
            State::Padding { count, .. } => count,
        })
    }

    fn head<P: Pieces>(
        &mut self,
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<usize, P::Error> {
        match self.state {
            State::Header | State::Lost => {
                let lost = matches!(self.state, State::Lost);
                match head.first_chunk() {
                    Some(header) if is_header(header) && (!lost || has_magic(header)) => {
                        out.boundary()?;
                        self.header(header, pass, out)?;
                    }
                    _ if !lost && all_zeros(head) => out.zeros(head.len())?,
                    _ => {
                        self.state = State::Lost;
                        out.content(head)?;
                    }
                }
            }
            State::Text { bytes } => {
                let (text, zeros) = head.split_at(bytes);
                self.state = State::Header;
                self.extended_size = tar::extended_number(text, b" size=");
                out.times(text)?;
                padding(zeros, Some(text), out)?;
            }
            State::Padding { member, .. } => {
                self.state = State::Header;
                padding(head, None, out)?;
                if let Some(Pause { draw, bytes }) = member {
                    out.pause(draw, bytes);
                }
            }
        }
        Ok(head.len())
    }

    fn end<P: Pieces>(&mut self, out: &mut P) -> Result<(), P::Error> {
        out.tar_broken()
    }
}

/// What should be the zeros behind data.
fn padding<P: Pieces>(bytes: &[u8], text: Option<&[u8]>, out: &mut P) -> Result<(), P::Error> {
    if all_zeros(bytes) {
        return out.tar_padding(bytes.len(), text);
    }
    out.tar_broken()?;
    out.content(bytes)
}

/// Whether a block has a header's checksum, in any notation.
fn is_header(block: &Block) -> bool {
    tar::octal(&block[tar::CHECKSUM]) == Some(u64::from(tar::checksum(block)))
}

fn has_magic(block: &Block) -> bool {
    block[tar::REST].starts_with(b"ustar")
}

fn all_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A size in GNU's notation for large ones: a bit, and a big-endian number.
fn large_size(header: &Block) -> Option<u64> {
    let (mark, number) = header[tar::SIZE].split_first_chunk::<4>()?;
    let number: [u8; 8] = number.try_into().ok()?;
    (mark == b"\x80\0\0\0").then_some(u64::from_be_bytes(number))
}

/// A number drawn by a member's name below the top: the same in all releases.
fn draw(header: &Block) -> u64 {
    let name = &header[tar::NAME];
    let hash = blake3::hash(&name[tar_header::top_of(name).len()..]);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}
