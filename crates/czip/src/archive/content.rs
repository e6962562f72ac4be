//! Reads the plain content of an archive.
//!
//! It is unwoven stretch by stretch, each from a restart point to the next, so that any place is
//! reached without what is long before it.

use super::{Archive, ReadError, Source, StreamReader};
use crate::{
    format::{FormatError, Portion, Stream},
    weave::{self, Streams, Unweaver},
};

/// Reads the plain content from any place on.
pub struct ContentReader<'a, S> {
    archive: &'a Archive<S>,
    position: u64,
    state: State<'a, S>,
}

enum State<'a, S> {
    /// The content is the plain content.
    Plain(Box<StreamReader<'a, S>>),
    /// What is left of a stretch, if one was begun.
    Woven(Option<Unwoven<'a, S>>),
}

impl<'a, S: Source> ContentReader<'a, S> {
    pub(super) fn new(archive: &'a Archive<S>, offset: u64) -> Result<Self, ReadError> {
        let end = archive.plain_bytes();
        if offset > end {
            return Err(ReadError::BeyondEnd {
                end,
                wanted: offset,
            });
        }
        let state = match archive.header().is_woven {
            true => State::Woven(None),
            false => {
                let mut content = archive.stream(Stream::Content);
                content.seek(offset);
                State::Plain(Box::new(content))
            }
        };
        Ok(Self {
            archive,
            position: offset,
            state,
        })
    }

    /// Reads some bytes; none only at the end.
    ///
    /// # Errors
    /// If the archive cannot be read, or is damaged.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let left = self.archive.plain_bytes() - self.position;
        let wanted = left.min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        match &mut self.state {
            State::Plain(content) => content.read_exact(buffer)?,
            State::Woven(stretch) => {
                let mut filled = 0;
                while filled < wanted {
                    let (left, unweaver) = match stretch {
                        Some((left, unweaver)) if *left > 0 => (left, unweaver),
                        _ => {
                            let position = self.position + filled as u64;
                            let (left, unweaver) = stretch.insert(unweave(self.archive, position)?);
                            (left, unweaver)
                        }
                    };
                    let count = (wanted - filled).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let read = unweaver.read(&mut buffer[filled..filled + count])?;
                    if read < count {
                        return Err(FormatError::Truncated(Portion::Weave).into());
                    }
                    filled += count;
                    *left -= count as u64;
                    if *left == 0 {
                        unweaver.finish()?;
                    }
                }
            }
        }
        self.position += wanted as u64;
        Ok(wanted)
    }
}

/// What unweaves a stretch, and how many bytes are left of it.
pub(super) type Unwoven<'a, S> = (u64, Box<Unweaver<Stretch<'a, S>>>);

/// What is left of the stretch that `position` is in, and its unweaver there.
pub(super) fn unweave<'a, S: Source>(
    archive: &'a Archive<S>,
    position: u64,
) -> Result<Unwoven<'a, S>, ReadError> {
    let (start, end) = archive.stretch_at(position)?;
    // A restart point has the plain content first.
    let stretch = |of: usize, stream: Stream| {
        let mut reader = archive.stream(stream);
        reader.seek(start[of]);
        Stretch {
            reader,
            left: end[of] - start[of],
        }
    };
    let mut unweaver = Unweaver::new(Streams {
        weave: stretch(1, Stream::Weave),
        content: stretch(2, Stream::Content),
        fields: stretch(3, Stream::Fields),
        times: stretch(4, Stream::Times),
    });
    let before = position - start[0];
    if unweaver.skip(before)? < before {
        return Err(FormatError::Truncated(Portion::Weave).into());
    }
    Ok((end[0] - position, Box::new(unweaver)))
}

/// A stream, up to where the next stretch begins.
pub(super) struct Stretch<'a, S> {
    reader: StreamReader<'a, S>,
    left: u64,
}

impl<S: Source> Stretch<'_, S> {
    /// Where in the stream it is.
    pub(super) fn position(&self) -> u64 {
        self.reader.position()
    }
}

impl<S: Source> weave::StreamReader for Stretch<'_, S> {
    type Error = ReadError;

    fn left(&self) -> u64 {
        self.left
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.left -= bytes.len() as u64;
        self.reader.read_exact(bytes)
    }

    fn skip(&mut self, count: u64) -> Result<(), ReadError> {
        self.left -= count;
        self.reader.skip(count);
        Ok(())
    }
}
