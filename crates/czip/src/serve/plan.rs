//! What a span of an archive's content is made of: units that the cache may have, and what lies between
//! them.
//!
//! A plan holds no chunk. It is made once a span and kept in the cache beside the chunks, so that
//! sending what is cached takes no look at the table. Where a span is made of very many pieces, a plan
//! has less of it: what a request takes in memory is bounded, however an archive was cut.

use std::collections::HashMap;

use bytes::Bytes;

use super::opened::{Opened, SPAN_BYTES};
use crate::{
    archive::{Grain, ReadError, Section},
    format::{
        ChunkName, FormatError, Portion, Stream, Violation, header::Profile, part::StoredFrame,
    },
};

/// Pieces of a plan at most. Spans of most archives have some hundred.
const PIECES_MAX: usize = 1 << 16;
/// Bytes of a plan where a span has more pieces; each begins at a multiple of it. No piece is shorter
/// than a byte.
const SHORT_BYTES: u64 = PIECES_MAX as u64;
/// Pieces that a span of an archive far away may have, of which each chunk has to be brought. Honest
/// archives have some thousand.
const BROUGHT_PIECES_MAX: usize = 1 << 18;

const _: () = assert!(SPAN_BYTES.is_multiple_of(SHORT_BYTES));

/// What the chunk cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The plain bytes of a chunk that stands alone.
    Chunk(ChunkName),
    /// The plain bytes of a frame, by its digest and its base's.
    Frame([u8; 12], Option<[u8; 12]>),
    Stored([u8; 12]),
    /// What an opening is made of from a place on.
    Plan(u64, u64),
}

/// What the cache has under one key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    /// A frame of a file.
    Frame(FrameUnit),
    /// A chunk of the content, which is kept, or brought from far away.
    Chunk { name: ChunkName, number: u64 },
}

impl Unit {
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Frame(frame) => frame.key,
            Self::Chunk { name, .. } => Key::Chunk(*name),
        }
    }
}

/// A frame, plain or as stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameUnit {
    pub(super) key: Key,
    pub(super) stream: Stream,
    pub(super) number: u64,
    pub(super) frame: StoredFrame,
    base: Option<StoredFrame>,
}

impl FrameUnit {
    pub(super) fn stored(stream: Stream, number: u64, frame: StoredFrame) -> Self {
        Self {
            key: Key::Stored(frame.digest),
            stream,
            number,
            frame,
            base: None,
        }
    }

    /// The plain bytes of a frame of the content.
    fn plain(opened: &Opened, number: u64) -> Result<Self, ReadError> {
        let stream = Stream::Content;
        let archive = &opened.archive;
        let frame = archive.frame_row(stream, number)?;
        let base = match frame.base {
            Some(base) => Some(archive.frame_row(stream, base)?),
            None => None,
        };
        let key = match archive.header().profile {
            Profile::Shared => Key::Chunk(archive.name(stream, number)?),
            Profile::Small => Key::Frame(frame.digest, base.map(|base| base.digest)),
        };
        Ok(Self {
            key,
            stream,
            number,
            frame,
            base,
        })
    }

    /// The unit that has to be there first.
    pub(super) fn base(&self) -> Option<Self> {
        let (frame, number) = (self.base?, self.frame.base?);
        // A frame that only has a base because it is hostile is refused by what it lacks then.
        Some(Self {
            key: Key::Frame(frame.digest, None),
            stream: self.stream,
            number,
            frame: StoredFrame {
                base: None,
                ..frame
            },
            base: None,
        })
    }
}

/// Bytes that come from one place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slice {
    /// Of a unit, by its place in the plan.
    Unit {
        index: u32,
        offset: u32,
        bytes: u32,
    },
    /// The next ones of [`Plan::literals`], from `offset` on.
    Literal {
        offset: u32,
        bytes: u32,
    },
    Zeros {
        bytes: u32,
    },
}

impl Slice {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::Unit { bytes, .. } | Self::Literal { bytes, .. } | Self::Zeros { bytes } => bytes,
        }
    }
}

/// What a span is made of, or the part of one.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) begin: u64,
    /// Bytes of all slices.
    pub(super) bytes: u64,
    pub(super) units: Vec<Unit>,
    pub(super) slices: Vec<Slice>,
    pub(super) literals: Bytes,
}

impl Plan {
    /// What it takes in memory.
    pub(super) fn weight(&self) -> u64 {
        let bytes = size_of_val(&self.units[..]) + size_of_val(&self.slices[..]);
        (bytes + self.literals.len()) as u64
    }

    /// How many units, from the first on, its first `bytes` bytes are made of.
    pub(super) fn units_within(&self, bytes: u64) -> usize {
        let mut position = 0;
        let mut units = 0;
        for slice in &self.slices {
            if position >= bytes {
                break;
            }
            if let Slice::Unit { index, .. } = slice {
                units = units.max(*index as usize + 1);
            }
            position += u64::from(slice.bytes());
        }
        units
    }

    /// Where plans may begin that `position` is in: its span's, and the one to go to if that is short.
    pub(super) fn begins(opened: &Opened, position: u64) -> [u64; 2] {
        [opened.span_bytes(), SHORT_BYTES].map(|bytes| position - position % bytes)
    }

    pub(super) fn covers(&self, position: u64) -> bool {
        (self.begin..self.begin + self.bytes).contains(&position)
    }

    /// Reads the table, for what is from `begin` on: all of a span that begins there, unless it has too
    /// many pieces.
    pub(super) fn read(opened: &Opened, begin: u64) -> Result<Self, ReadError> {
        let end = opened.archive.plain_bytes();
        let span_bytes = opened.span_bytes();
        let of = |bytes_max: u64| Self::of_range(opened, begin, end.min(begin + bytes_max));
        let whole = match begin.is_multiple_of(span_bytes) {
            true => of(span_bytes)?,
            false => None,
        };
        let (mut plan, bytes_max) = match whole {
            Some(plan) => (plan, span_bytes),
            None => {
                let short = match opened.is_remote() {
                    true => None,
                    false => of(SHORT_BYTES)?,
                };
                let violation = Violation::TooManyPieces;
                (short.ok_or(FormatError::Invalid(violation))?, SHORT_BYTES)
            }
        };
        plan.begin = begin;
        let slices = plan.slices.iter();
        plan.bytes = slices.map(|slice| u64::from(slice.bytes())).sum();
        match plan.bytes == (end - begin).min(bytes_max) {
            true => Ok(plan),
            false => Err(FormatError::Truncated(Portion::Table).into()),
        }
    }

    /// None if it has too many pieces.
    fn of_range(opened: &Opened, begin: u64, end: u64) -> Result<Option<Self>, ReadError> {
        let (grain, pieces_max) = match opened.is_remote() {
            true => (Grain::Chunks, BROUGHT_PIECES_MAX),
            false => (Grain::Frames, PIECES_MAX),
        };
        let outline = opened
            .archive
            .outline(begin, end - begin, grain, pieces_max)?;
        let Some(outline) = outline else {
            return Ok(None);
        };
        let mut plan = Self::default();
        let mut indices = HashMap::new();
        let mut literals = 0;
        for section in outline.sections {
            let slice = match section {
                Section::Content {
                    number,
                    offset,
                    bytes,
                } => {
                    let index = match indices.get(&number) {
                        Some(&index) => index,
                        None => {
                            let index = plan.units.len() as u32;
                            plan.units.push(match grain {
                                Grain::Frames => Unit::Frame(FrameUnit::plain(opened, number)?),
                                Grain::Chunks => Unit::Chunk {
                                    name: opened.archive.name(Stream::Content, number)?,
                                    number,
                                },
                            });
                            indices.insert(number, index);
                            index
                        }
                    };
                    Slice::Unit {
                        index,
                        offset,
                        bytes,
                    }
                }
                Section::Other { bytes } => {
                    let offset = literals;
                    literals += bytes;
                    Slice::Literal { offset, bytes }
                }
                Section::Zeros { bytes } => Slice::Zeros { bytes },
            };
            plan.slices.push(slice);
        }
        plan.literals = outline.other.into();
        plan.units.shrink_to_fit();
        plan.slices.shrink_to_fit();
        Ok(Some(plan))
    }
}
