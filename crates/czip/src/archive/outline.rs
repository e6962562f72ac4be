//! What makes up a range of the plain content, without reading any of the content's frames.
//!
//! Who sends a range to many readers has the frames in a cache of its own; it needs to know which of
//! their bytes follow each other, and what the weave puts between them.

use std::ops::Range;

use super::{Archive, ReadError, Source, content::unweave, table::ReferenceRun};
use crate::{
    format::{FormatError, Portion, Stream},
    weave::Step,
};

/// Bytes that follow each other in the plain content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// A part of the plain bytes of a frame of the content, or of a chunk of it.
    Content {
        number: u64,
        offset: u32,
        bytes: u32,
    },
    /// The next bytes of [`Outline::other`].
    Other { bytes: u32 },
    /// Zeros.
    Zeros { bytes: u32 },
}

/// What the content is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grain {
    /// Frames, as they lie in the archive.
    Frames,
    /// Chunks, which other archives may have too.
    Chunks,
}

/// A range of the plain content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) sections: Vec<Section>,
    /// What is not content: headers of members.
    pub(crate) other: Vec<u8>,
}

/// Bytes of one outline at most.
pub(crate) const OUTLINE_BYTES_MAX: u64 = 16 << 20;

impl<S: Source> Archive<S> {
    /// What the `bytes` bytes from `offset` on are made of; at most [`OUTLINE_BYTES_MAX`]. None if that is
    /// more than `sections_max` sections.
    ///
    /// # Errors
    /// If they are beyond the end, or the archive is damaged.
    pub(crate) fn outline(
        &self,
        offset: u64,
        bytes: u64,
        grain: Grain,
        sections_max: usize,
    ) -> Result<Option<Outline>, ReadError> {
        let end = self.plain_bytes();
        let wanted = offset.saturating_add(bytes.min(OUTLINE_BYTES_MAX));
        if wanted > end {
            return Err(ReadError::BeyondEnd { end, wanted });
        }
        let mut outline = Outline::default();
        let mut run = None;
        let how = (grain, sections_max);
        if !self.header().is_woven {
            self.content_sections(offset..wanted, how, &mut run, &mut outline)?;
            return Ok(outline.of_at_most(sections_max));
        }
        let mut position = offset;
        while position < wanted {
            let start = position;
            let (left, mut unweaver) = unweave(self, position)?;
            let stretch_end = wanted.min(start + left);
            let mut content = unweaver.content().position();
            while position < stretch_end {
                let step = unweaver.step(stretch_end - position, &mut outline.other)?;
                position += match step {
                    None => return Err(FormatError::Truncated(Portion::Weave).into()),
                    Some(Step::Content(bytes)) => {
                        let next = content + bytes;
                        self.content_sections(content..next, how, &mut run, &mut outline)?;
                        content = next;
                        bytes
                    }
                    Some(Step::Zeros(bytes)) => {
                        let zeros = bytes as u32;
                        outline.push(Section::Zeros { bytes: zeros });
                        bytes
                    }
                    Some(Step::Appended(bytes)) => {
                        let other = bytes as u32;
                        outline.push(Section::Other { bytes: other });
                        bytes
                    }
                };
                if outline.sections.len() > sections_max {
                    return Ok(None);
                }
            }
            if stretch_end == start + left {
                unweaver.finish()?;
            }
        }
        Ok(outline.of_at_most(sections_max))
    }

    /// Stops when there are more than `sections_max`.
    fn content_sections(
        &self,
        content: Range<u64>,
        (grain, sections_max): (Grain, usize),
        run: &mut Option<ReferenceRun>,
        outline: &mut Outline,
    ) -> Result<(), ReadError> {
        let Range {
            start: mut position,
            end,
        } = content;
        while position < end && outline.sections.len() <= sections_max {
            let of = match *run {
                Some(run) if (run.start..run.start + run.bytes).contains(&position) => run,
                _ => *run.insert(self.run_at(Stream::Content, position)?),
            };
            let within = (position - of.start) % of.period;
            let piece = self.piece(Stream::Content, of.unique_start + within)?;
            let bytes = u64::from(piece.bytes).min(end - position) as u32;
            let (number, offset) = match grain {
                Grain::Frames => (piece.frame, piece.offset),
                Grain::Chunks => (piece.chunk, piece.within),
            };
            outline.push(Section::Content {
                number,
                offset,
                bytes,
            });
            position += u64::from(bytes);
        }
        Ok(())
    }
}

impl Outline {
    fn of_at_most(self, sections_max: usize) -> Option<Self> {
        (self.sections.len() <= sections_max).then_some(self)
    }

    /// Adds a section, or more of the last one.
    fn push(&mut self, section: Section) {
        match (self.sections.last_mut(), section) {
            (
                Some(Section::Content {
                    number,
                    offset,
                    bytes,
                }),
                Section::Content {
                    number: of,
                    offset: at,
                    bytes: more,
                },
            ) if *number == of && *offset + *bytes == at => *bytes += more,
            (Some(Section::Other { bytes }), Section::Other { bytes: more })
            | (Some(Section::Zeros { bytes }), Section::Zeros { bytes: more }) => *bytes += more,
            _ => self.sections.push(section),
        }
    }
}
