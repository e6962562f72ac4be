//! The shape of a tar archive.
//!
//! A block that should be a header and is none is content, and so are all behind it, up to one that
//! is a header for sure. So whatever cannot be understood (a sparse map, a size that lies, an
//! archive behind garbage) costs what it touches and nothing else.

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
    Padding { count: usize, pause: Option<Kind> },
    /// Before a block that may be anything.
    Lost,
}

impl Tar {
    /// Whether a file begins as a tar archive does.
    pub(super) fn of(head: &[u8]) -> Option<Box<dyn Shape>> {
        let header = head.first_chunk()?;
        is_header(header).then_some(Box::new(Tar {
            state: State::Header,
            extended_size: None,
        }))
    }

    fn header(&mut self, header: &Block, pass: &mut Vec<(Kind, u64)>) {
        let block_bytes = header.len() as u64;
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
            pass.push((Kind::TarHeader, block_bytes));
            return;
        };

        let text = kind == b'x' && bytes <= EXTENDED_TEXT_BYTES_MAX;
        let is_member = said == actual && bytes <= MEMBER_BYTES_MAX && (text || kind != b'x');
        let header_kind = match is_member {
            true => Kind::TarMember,
            false => Kind::TarHeader,
        };
        pass.push((header_kind, block_bytes));
        if text {
            self.state = State::Text {
                bytes: bytes as usize,
            };
            return;
        }
        let count = tar::padding_bytes(bytes);
        let mut pause = None;
        match kind {
            b'x' | b'g' => pass.push((Kind::Times, bytes)),
            b'L' | b'K' => pass.push((Kind::Fields, bytes)),
            _ => {
                let written = tar::octal(&header[tar::MTIME]).unwrap_or(0);
                pass.push((Kind::Written(written), 0));
                pass.extend(shape::member(bytes));
                pause = Some(Kind::Pause {
                    draw: draw(header),
                    bytes: bytes.saturating_add(block_bytes + count as u64),
                });
            }
        }
        self.state = State::Padding { count, pause };
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

    fn head(&mut self, head: &[u8], pass: &mut Vec<(Kind, u64)>) {
        match self.state {
            State::Header | State::Lost => {
                let lost = matches!(self.state, State::Lost);
                match head.first_chunk() {
                    Some(header) if is_header(header) && (!lost || has_magic(header)) => {
                        pass.push((Kind::End, 0));
                        self.header(header, pass);
                    }
                    _ if !lost && all_zeros(head) => pass.push((Kind::Zeros, head.len() as u64)),
                    _ => {
                        self.state = State::Lost;
                        pass.push((Kind::Content, head.len() as u64));
                    }
                }
            }
            State::Text { bytes } => {
                let (text, zeros) = head.split_at(bytes);
                self.state = State::Header;
                self.extended_size = tar::extended_number(text, b" size=");
                pass.push((Kind::Times, bytes as u64));
                pass.push((Kind::ExtendedTime(tar::extended_time(text)), 0));
                padding(zeros, pass);
            }
            State::Padding { pause, .. } => {
                self.state = State::Header;
                padding(head, pass);
                pass.extend(pause.map(|pause| (pause, 0)));
            }
        }
    }
}

/// What should be the zeros behind data.
fn padding(bytes: &[u8], pass: &mut Vec<(Kind, u64)>) {
    let count = bytes.len() as u64;
    match all_zeros(bytes) {
        true => pass.push((Kind::TarPadding, count)),
        false => pass.extend([(Kind::TarBroken, 0), (Kind::Content, count)]),
    }
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
