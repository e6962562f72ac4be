//! Chunk parts and length parts: what chunks are called, how long they are, and where they lie in frames.

use crate::{
    ChunkName, FormatError, Input, Portion, Violation,
    kind::{CHUNKS_MAX, PartKind},
    put_varint, put_zigzag,
};

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkPlace {
    /// The number of its frame.
    pub frame: u64,
    /// In the frame's plain bytes.
    pub offset: u32,
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
        false => Err(FormatError::Truncated(Portion::Part(PartKind::Chunks))),
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
        let mut input = Input::new(Portion::Part(PartKind::Lengths), bytes);
        let mut starts = Vec::with_capacity(count + 1);
        starts.push(0);
        let mut end = 0_u32;
        for _ in 0..count {
            let length = input.varint()?;
            FormatError::check_limit("a chunk", length, chunk_bytes_max.into())?;
            let Some(next) = end.checked_add(length as u32).filter(|_| length > 0) else {
                return Err(FormatError::Invalid(Violation::ChunkLength));
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

    /// Where a chunk lies that is so far in the part, and has this number.
    pub fn place(&self, within: usize, number: u64) -> ChunkPlace {
        let alone = ChunkPlace {
            frame: number,
            offset: 0,
        };
        self.places.get(within).copied().unwrap_or(alone)
    }
}

fn parse_places(
    input: &mut Input<'_>,
    starts: &[u32],
    frame_bytes_max: u32,
) -> Result<Vec<ChunkPlace>, FormatError> {
    const WRONG_RUNS: FormatError = FormatError::Invalid(Violation::RunsInFrames);
    let count = starts.len() - 1;
    let runs = input.varint()?;
    FormatError::check_limit("the number of runs in frames", runs, count as u64)?;
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
            return Err(FormatError::Invalid(Violation::ChunkBeyondFrame));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::tests::{assert_refused, numbers};

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
}
