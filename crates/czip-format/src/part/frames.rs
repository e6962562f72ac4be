//! Frame parts: where stored frames are.

use std::ops::Range;

use crate::{FormatError, Input, Portion, Violation, kind::PartKind, put_varint};

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
    let mut input = Input::new(Portion::Part(PartKind::Frames), bytes);
    let mut frames = Vec::with_capacity(count);
    for _ in 0..count {
        let stored_bytes = input.varint()?;
        FormatError::check_limit("a stored frame", stored_bytes, stored_bytes_max)?;
        if stored_bytes == 0 {
            return Err(FormatError::Invalid(Violation::EmptyFrame));
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
            return Err(FormatError::Invalid(Violation::FramePlace));
        };
        frame.offset = begin;
        end = next;
    }
    if has_bases {
        for (number, frame) in (first..).zip(&mut frames) {
            let distance = input.varint()?;
            frame.base = match distance {
                0 => None,
                _ => Some(
                    number
                        .checked_sub(distance)
                        .ok_or(FormatError::Invalid(Violation::NoSuchBase))?,
                ),
            };
        }
    }
    for frame in &mut frames {
        frame.digest = input.array()?;
    }
    input.finish()?;
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::tests::{assert_refused, numbers};

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
            (0, [100, 50, 1, 3, 0, 1], "invalid position"),
            (0, [100, 50, 0, u64::MAX, 0, 1], "invalid position"),
            (u64::MAX - 120, [100, 50, 0, 0, 0, 1], "invalid position"),
            (0, [100, 50, 0, 3, 6, 1], "before the first frame"),
        ] {
            assert_refused(parse(offset, &part), why);
        }
    }
}
