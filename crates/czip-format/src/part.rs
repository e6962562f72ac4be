//! The parts of an archive's table: each holds some items of one kind.
//!
//! What is cumulative (numbers of chunks and frames, offsets) begins in the part's row of the
//! [root](super::root), so that a part is read by itself.

use std::ops::Range;

use crate::{ChunkName, FormatError, Input, limits, put_varint, put_zigzag};

/// Most chunks of a part.
pub const CHUNKS_MAX: usize = 1024;
/// Most frames of a part, where they are not as many as chunks.
pub const FRAMES_MAX: usize = 256;
/// Most runs of a reference part.
pub const RUNS_MAX: usize = 128;
/// Most restart points of a part.
pub const POINTS_MAX: usize = 256;

/// What a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Names of chunks.
    Chunks,
    /// Stored frames.
    Frames,
    /// Lengths of chunks, and where they lie in frames.
    Lengths,
    /// Which chunks make up a stream.
    References,
    /// Keys of frames.
    Keys,
    /// Where the weave may be entered.
    WeaveIndex,
}

impl PartKind {
    /// Most items of a part.
    pub(crate) fn items_max(self) -> usize {
        match self {
            Self::Chunks | Self::Lengths | Self::Frames | Self::Keys => CHUNKS_MAX,
            Self::References => RUNS_MAX,
            Self::WeaveIndex => POINTS_MAX,
        }
    }

    /// For errors.
    pub fn what(self) -> &'static str {
        match self {
            Self::Chunks => "chunk part",
            Self::Frames => "frame part",
            Self::Lengths => "length part",
            Self::References => "reference part",
            Self::Keys => "key part",
            Self::WeaveIndex => "weave index part",
        }
    }
}

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkPlace {
    /// The number of its frame.
    pub frame: u64,
    /// In the frame's plain bytes.
    pub offset: u32,
}

/// A frame, as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFrame {
    /// Where in the archive.
    pub offset: u64,
    /// Its bytes there.
    pub stored_bytes: u32,
    /// The frame whose plain bytes come before its own.
    pub base: Option<u64>,
    /// Digest of its stored bytes.
    pub digest: [u8; 12],
}

impl StoredFrame {
    /// Where its stored bytes are in the archive.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.stored_bytes)
    }
}

/// Which chunks follow each other in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Chunks that occur first here.
    New {
        /// How many.
        count: u64,
    },
    /// Chunks that occurred before, in order of number.
    Copy {
        /// How many.
        count: u64,
        /// The first is this much + 1 before the next new one.
        distance: u64,
    },
    /// One chunk again and again.
    Repeat {
        /// How often.
        count: u64,
        /// It is this much + 1 before the next new one.
        distance: u64,
    },
}

impl Run {
    /// References in it.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::New { count } | Self::Copy { count, .. } | Self::Repeat { count, .. } => count,
        }
    }
}

/// Whether a chunk part ends with this name, of chunk `number`, the `count`th in it. Parts become longer
/// as a stream does, so that the root, which is read whole, grows much slower.
pub fn ends_part(name: ChunkName, number: u64, count: usize) -> bool {
    let [first, second, ..] = name.0;
    let (min, max, is_drawn) = match number {
        0..0x10_0000 => (16, 256, first.is_multiple_of(64)),
        0x10_0000..0x100_0000 => (64, CHUNKS_MAX, first == 0),
        0x100_0000.. => (256, CHUNKS_MAX, first == 0 && second.is_multiple_of(64)),
    };
    count >= max || count >= min && is_drawn
}

/// Names as a chunk part.
pub fn encode_names(names: &[ChunkName]) -> Vec<u8> {
    names.iter().flat_map(|name| name.0).collect()
}

/// A chunk part of `count` names.
pub fn parse_names(bytes: &[u8], count: usize) -> Result<Vec<ChunkName>, FormatError> {
    let (names, rest) = bytes.as_chunks::<{ ChunkName::BYTES }>();
    match names.len() == count && rest.is_empty() {
        true => Ok(names.iter().copied().map(ChunkName).collect()),
        false => Err(FormatError::Truncated {
            what: PartKind::Chunks.what(),
        }),
    }
}

/// Lengths, and places unless each chunk is a frame.
pub fn encode_lengths(lengths: &[u32], places: Option<&[ChunkPlace]>) -> Vec<u8> {
    let mut out = Vec::new();
    for &length in lengths {
        put_varint(&mut out, length.into());
    }
    let Some(places) = places else {
        return out;
    };
    let mut runs: Vec<(u64, ChunkPlace)> = Vec::new();
    let mut expected = None;
    for (place, &length) in places.iter().zip(lengths) {
        match runs.last_mut() {
            Some((more, _)) if expected == Some(*place) => *more += 1,
            _ => runs.push((0, *place)),
        }
        expected = Some(ChunkPlace {
            frame: place.frame,
            offset: place.offset + length,
        });
    }
    put_varint(&mut out, runs.len() as u64);
    for (more, _) in &runs {
        put_varint(&mut out, *more);
    }
    let mut before = 0;
    for (_, place) in &runs {
        put_zigzag(&mut out, before, place.frame);
        before = place.frame;
    }
    for (_, place) in &runs {
        put_varint(&mut out, place.offset.into());
    }
    out
}

/// A length part.
#[derive(Clone, Debug)]
pub struct LengthPart {
    /// Where each chunk begins in the part's unique bytes, and where the last ends.
    pub starts: Vec<u32>,
    /// Empty where each chunk is a frame.
    pub places: Vec<ChunkPlace>,
}

impl LengthPart {
    /// Parses a part of `count` chunks; `frame_bytes_max` bounds where in frames they lie.
    pub fn parse(
        bytes: &[u8],
        count: usize,
        chunk_bytes_max: u32,
        frame_bytes_max: Option<u32>,
    ) -> Result<Self, FormatError> {
        let mut input = Input::new(PartKind::Lengths.what(), bytes);
        let mut starts = Vec::with_capacity(count + 1);
        starts.push(0);
        let mut end = 0_u32;
        for _ in 0..count {
            let length = input.varint()?;
            FormatError::check_limit("a chunk", length, chunk_bytes_max.into())?;
            let Some(next) = end.checked_add(length as u32).filter(|_| length > 0) else {
                return Err(FormatError::Invalid {
                    what: "a chunk is empty, or a part's chunks are too long",
                });
            };
            end = next;
            starts.push(end);
        }
        let places = match frame_bytes_max {
            Some(frame_bytes_max) => parse_places(&mut input, &starts, frame_bytes_max)?,
            None => Vec::new(),
        };
        input.finish()?;
        Ok(Self { starts, places })
    }
}

fn parse_places(
    input: &mut Input<'_>,
    starts: &[u32],
    frame_bytes_max: u32,
) -> Result<Vec<ChunkPlace>, FormatError> {
    const WRONG_RUNS: FormatError = FormatError::Invalid {
        what: "runs in frames do not cover a part's chunks",
    };
    let count = starts.len() - 1;
    let runs = input.varint()?;
    FormatError::check_limit("runs in frames", runs, count as u64)?;
    let mut lengths = Vec::with_capacity(runs as usize);
    for _ in 0..runs {
        lengths.push(input.varint()?.checked_add(1).ok_or(WRONG_RUNS)?);
    }
    let mut frames = Vec::with_capacity(runs as usize);
    let mut frame = 0_u64;
    for _ in 0..runs {
        frame = frame
            .checked_add_signed(input.zigzag()?)
            .ok_or(WRONG_RUNS)?;
        frames.push(frame);
    }
    let mut places = Vec::with_capacity(count);
    for (length, frame) in lengths.into_iter().zip(frames) {
        let begin = input.varint()?;
        let first = places.len();
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| first.checked_add(length))
            .filter(|&end| end <= count)
            .ok_or(WRONG_RUNS)?;
        let bytes = u64::from(starts[end] - starts[first]);
        let is_within = begin
            .checked_add(bytes)
            .is_some_and(|end| end <= frame_bytes_max.into());
        if !is_within {
            return Err(FormatError::Invalid {
                what: "a chunk lies beyond its frame",
            });
        }
        places.extend((first..end).map(|chunk| ChunkPlace {
            frame,
            offset: begin as u32 + (starts[chunk] - starts[first]),
        }));
    }
    match places.len() == count {
        true => Ok(places),
        false => Err(WRONG_RUNS),
    }
}

/// Frames as a part; the first has number `first`.
pub fn encode_frames(frames: &[StoredFrame], first: u64, has_bases: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        put_varint(&mut out, frame.stored_bytes.into());
    }
    let mut end = frames.first().map_or(0, |frame| frame.offset);
    for frame in frames {
        put_varint(&mut out, frame.offset - end);
        end = frame.range().end;
    }
    if has_bases {
        for (number, frame) in (first..).zip(frames) {
            put_varint(&mut out, frame.base.map_or(0, |base| number - base));
        }
    }
    for frame in frames {
        out.extend_from_slice(&frame.digest);
    }
    out
}

/// A frame part of `count` frames, the first of which has number `first` and begins at `offset`.
pub fn parse_frames(
    bytes: &[u8],
    count: usize,
    first: u64,
    offset: u64,
    has_bases: bool,
    stored_bytes_max: u64,
) -> Result<Vec<StoredFrame>, FormatError> {
    let mut input = Input::new(PartKind::Frames.what(), bytes);
    let mut frames = Vec::with_capacity(count);
    for _ in 0..count {
        let stored_bytes = input.varint()?;
        FormatError::check_limit("a stored frame", stored_bytes, stored_bytes_max)?;
        if stored_bytes == 0 {
            return Err(FormatError::Invalid {
                what: "a frame has no bytes",
            });
        }
        frames.push(StoredFrame {
            offset: 0,
            stored_bytes: stored_bytes as u32,
            base: None,
            digest: [0; 12],
        });
    }
    let mut end = offset;
    for (place, frame) in frames.iter_mut().enumerate() {
        let gap = input.varint()?;
        let begin = end.checked_add(gap).filter(|_| place > 0 || gap == 0);
        let next = begin.and_then(|begin| begin.checked_add(frame.stored_bytes.into()));
        let (Some(begin), Some(next)) = (begin, next) else {
            return Err(FormatError::Invalid {
                what: "a frame is where there can be none",
            });
        };
        frame.offset = begin;
        end = next;
    }
    if has_bases {
        for (number, frame) in (first..).zip(&mut frames) {
            let distance = input.varint()?;
            frame.base = match distance {
                0 => None,
                _ => Some(number.checked_sub(distance).ok_or(FormatError::Invalid {
                    what: "a frame's base is before the first frame",
                })?),
            };
        }
    }
    for frame in &mut frames {
        frame.digest = input.array()?;
    }
    input.finish()?;
    Ok(frames)
}

/// Runs as a reference part.
pub fn encode_runs(runs: &[Run]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in runs {
        let (kind, distance) = match *run {
            Run::New { .. } => (0, None),
            Run::Copy { distance, .. } => (1, Some(distance)),
            Run::Repeat { distance, .. } => (2, Some(distance)),
        };
        put_varint(&mut out, (run.count() - 1) << 2 | kind);
        if let Some(distance) = distance {
            put_varint(&mut out, distance);
        }
    }
    out
}

/// A reference part of `count` runs, where the next new chunk is `next` and there are `chunks` in all.
pub fn parse_runs(
    bytes: &[u8],
    count: usize,
    mut next: u64,
    chunks: u64,
) -> Result<Vec<Run>, FormatError> {
    const NO_SUCH_CHUNK: FormatError = FormatError::Invalid {
        what: "a chunk is referred to that is not there",
    };
    let mut input = Input::new(PartKind::References.what(), bytes);
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        let value = input.varint()?;
        let count = (value >> 2) + 1;
        let kind = value & 3;
        let distance = match kind {
            0 => 0,
            _ => input.varint()?,
        };
        let is_there = distance < next;
        runs.push(match kind {
            0 => {
                next = next
                    .checked_add(count)
                    .filter(|&next| next <= chunks)
                    .ok_or(NO_SUCH_CHUNK)?;
                Run::New { count }
            }
            1 if is_there && count <= distance + 1 => Run::Copy { count, distance },
            2 if is_there => Run::Repeat { count, distance },
            1 | 2 => return Err(NO_SUCH_CHUNK),
            _ => {
                return Err(FormatError::Invalid {
                    what: "a run of references is of no kind that there is",
                });
            }
        });
    }
    input.finish()?;
    Ok(runs)
}

/// Restart points as a part: where each begins, in plain content, weave, content, fields and times,
/// and where the last ends.
pub fn encode_points(points: &[[u64; 5]], end: &[u64; 5]) -> Vec<u8> {
    let mut out = Vec::new();
    for of in 0..5 {
        for (point, next) in points.iter().zip(points.iter().skip(1).chain([end])) {
            put_varint(&mut out, next[of] - point[of]);
        }
    }
    out
}

/// A weave index part of `count` points, which cover what is between `start` and `end`.
pub fn parse_points(
    bytes: &[u8],
    count: usize,
    start: &[u64; 5],
    end: &[u64; 5],
) -> Result<Vec<[u64; 5]>, FormatError> {
    let mut input = Input::new(PartKind::WeaveIndex.what(), bytes);
    let mut points = vec![[0; 5]; count];
    for of in 0..5 {
        let mut at = start[of];
        for point in &mut points {
            point[of] = at;
            let bytes = input.varint()?;
            let limit = limits::STRETCH_BYTES_MAX;
            FormatError::check_limit("what lies between restart points", bytes, limit)?;
            at = at.saturating_add(bytes);
        }
        if at != end[of] {
            return Err(FormatError::Invalid {
                what: "restart points do not cover what their part does",
            });
        }
    }
    input.finish()?;
    Ok(points)
}

// A full part of any kind fits what a part may have.
const _: () = assert!(FRAMES_MAX <= CHUNKS_MAX);
const _: () = assert!(CHUNKS_MAX * (3 * 10 + 12) <= limits::PART_BYTES_MAX);
const _: () = assert!(CHUNKS_MAX * (4 + 3 * 10) <= limits::PART_BYTES_MAX);
const _: () = assert!(POINTS_MAX * 5 * 10 <= limits::PART_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_names_end_later_where_a_stream_has_many() {
        let named = |first, second| {
            let mut name = [1; ChunkName::BYTES];
            name[..2].copy_from_slice(&[first, second]);
            ChunkName(name)
        };
        for (numbers, min, max, drawn, not_drawn) in [
            ([0, (1 << 20) - 1], 16, 256, named(192, 1), named(63, 0)),
            (
                [1 << 20, (1 << 24) - 1],
                64,
                1024,
                named(0, 1),
                named(64, 0),
            ),
            ([1 << 24, u64::MAX], 256, 1024, named(0, 192), named(0, 1)),
        ] {
            for number in numbers {
                assert!(!ends_part(drawn, number, min - 1), "{number}");
                assert!(ends_part(drawn, number, min), "{number}");
                assert!(!ends_part(not_drawn, number, max - 1), "{number}");
                assert!(ends_part(not_drawn, number, max), "{number}");
            }
        }
    }

    /// Numbers as parts have them.
    fn numbers(numbers: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &number in numbers {
            put_varint(&mut bytes, number);
        }
        bytes
    }

    #[track_caller]
    fn assert_refused<T: std::fmt::Debug>(parsed: Result<T, FormatError>, why: &str) {
        let error = parsed.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        // Two chunks of at most 100 bytes, in frames of at most 150: lengths, runs, how much longer than one
        // chunk each is, how much further each frame is (doubled), and where in it each begins.
        let parse = |part: &[u64]| LengthPart::parse(&numbers(part), 2, 100, Some(150));
        let part = parse(&[100, 50, 1, 1, 0, 0]).expect("two chunks in a frame");
        assert_eq!(part.starts, [0, 100, 150]);
        assert_eq!(part.places[1].offset, 100);
        for (part, why) in [
            (&[100, 0, 1, 1, 0, 0][..], "is empty"),
            (&[101, 1, 1, 1, 0, 0], "a chunk"),
            (&[1, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], "runs in frames"),
            (&[1, 1, 2, 0, 0, 0, 0, 0, 150], "beyond its frame"),
            (&[100, 51, 1, 1, 0, 0], "beyond its frame"),
            (&[1, 1, 1, 1, 0, u64::MAX], "beyond its frame"),
            (&[1, 1, 1, 0, 0, 0], "do not cover"),
            (&[1, 1, 1, 2, 0, 0], "do not cover"),
            (&[1, 1, 1, u64::MAX, 0, 0], "do not cover"),
            (&[1, 1, 1, 1, 1, 0], "do not cover"),
        ] {
            assert_refused(parse(part), why);
        }
    }

    #[test]
    fn frames_that_cannot_be_are_refused() {
        let parse = |offset: u64, part: &[u64]| {
            let bytes = [numbers(part), vec![7; 24]].concat();
            parse_frames(&bytes, 2, 5, offset, true, 100)
        };
        // Stored bytes, gaps before each, and how far before each its base is.
        let frames = parse(1000, &[100, 50, 0, 3, 0, 1]).expect("two frames");
        assert_eq!(frames[1].offset, 1103);
        assert_eq!(frames[1].base, Some(5));
        for (offset, part, why) in [
            (0, [0, 50, 0, 3, 0, 1], "no bytes"),
            (0, [101, 50, 0, 3, 0, 1], "a stored frame"),
            (0, [100, 50, 1, 3, 0, 1], "where there can be none"),
            (0, [100, 50, 0, u64::MAX, 0, 1], "where there can be none"),
            (
                u64::MAX - 120,
                [100, 50, 0, 0, 0, 1],
                "where there can be none",
            ),
            (0, [100, 50, 0, 3, 6, 1], "before the first frame"),
        ] {
            assert_refused(parse(offset, &part), why);
        }
    }

    #[test]
    fn runs_that_cannot_be_are_refused() {
        // Of six chunks the next new one is 3.
        let parse = |count: usize, part: &[u64]| parse_runs(&numbers(part), count, 3, 6);
        let runs = parse(3, &[2 << 2, 3 << 2 | 1, 5, 9 << 2 | 2, 0]).expect("three runs");
        let (new, copy, repeat) = (
            Run::New { count: 3 },
            Run::Copy {
                count: 4,
                distance: 5,
            },
            Run::Repeat {
                count: 10,
                distance: 0,
            },
        );
        assert_eq!(runs, [new, copy, repeat]);
        for (part, why) in [
            (&[3 << 2][..], "not there"),
            (&[u64::MAX >> 2 << 2], "not there"),
            (&[1, 3], "not there"),
            (&[1 << 2 | 1, 0], "not there"),
            (&[2, 3], "not there"),
            (&[3, 0], "no kind"),
        ] {
            assert_refused(parse(1, part), why);
        }
    }

    #[test]
    fn restart_points_that_cannot_be_are_refused() {
        let parse = |part: &[u64], end: &[u64; 5]| parse_points(&numbers(part), 1, &[3; 5], end);
        let points = parse(&[1; 5], &[4; 5]).expect("one point");
        assert_eq!(points, [[3; 5]]);
        let stretch = limits::STRETCH_BYTES_MAX;
        parse(&[stretch; 5], &[3 + stretch; 5]).expect("as long as may be");
        assert_refused(parse(&[1; 5], &[5; 5]), "do not cover");
        assert_refused(
            parse(&[stretch + 1; 5], &[4 + stretch; 5]),
            "between restart points",
        );
        assert_refused(
            parse(&[u64::MAX; 5], &[u64::MAX; 5]),
            "between restart points",
        );
    }
}
