//! Reads one stream of an archive.

use std::sync::Arc;

use super::{Archive, ReadError, Source, table::ReferenceRun};
use crate::format::{FormatError, Stream, Violation};

/// Reads a stream from any place on.
pub struct StreamReader<'a, S> {
    archive: &'a Archive<S>,
    stream: Stream,
    end: u64,
    position: u64,
    run: Option<ReferenceRun>,
    /// The frame last read from.
    frame: Option<(u64, Arc<Vec<u8>>)>,
}

impl<'a, S: Source> StreamReader<'a, S> {
    pub(super) fn new(archive: &'a Archive<S>, stream: Stream) -> Self {
        Self {
            archive,
            stream,
            end: archive.root().stream(stream).bytes(),
            position: 0,
            run: None,
            frame: None,
        }
    }

    /// Bytes of the stream.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Goes on from `position`, which may be beyond the end: then nothing is left.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Where it is.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Passes over bytes, perhaps beyond the end.
    pub fn skip(&mut self, count: u64) {
        self.position = self.position.saturating_add(count);
    }

    /// Reads some bytes; none only at the stream's end.
    ///
    /// # Errors
    /// If the archive cannot be read, or is damaged.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let left = self.end.saturating_sub(self.position);
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut filled = 0;
        while filled < wanted {
            let run = self.run()?;
            let within = (self.position - run.start) % run.period;
            let at = run.unique_start + within;
            let together = (wanted - filled).min((run.period - within) as usize);
            let together = &mut buffer[filled..filled + together];
            if (self.archive.source()).read_unique_at(together, self.stream, at)? {
                filled += together.len();
                self.position += together.len() as u64;
                continue;
            }
            let piece = self.archive.piece(self.stream, at)?;
            let count = (wanted - filled).min(piece.bytes as usize);
            let begin = piece.offset as usize;
            let plain = self.frame(piece.frame)?;
            let Some(bytes) = plain.get(begin..begin + count) else {
                return Err(FormatError::Invalid(Violation::ChunkBeyondFrame).into());
            };
            buffer[filled..filled + count].copy_from_slice(bytes);
            filled += count;
            self.position += count as u64;
        }
        Ok(wanted)
    }

    /// Fills all of `buffer`.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if the stream ends before.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ReadError> {
        let wanted = self.position.saturating_add(buffer.len() as u64);
        if wanted > self.end {
            return Err(FormatError::BeyondStream {
                stream: self.stream,
                end: self.end,
                wanted,
            }
            .into());
        }
        self.read(buffer).map(|_| ())
    }

    /// The run that is read now.
    fn run(&mut self) -> Result<ReferenceRun, ReadError> {
        match self.run {
            Some(run) if (run.start..run.start + run.bytes).contains(&self.position) => Ok(run),
            _ => {
                let run = self.archive.run_at(self.stream, self.position)?;
                Ok(*self.run.insert(run))
            }
        }
    }

    fn frame(&mut self, number: u64) -> Result<&[u8], ReadError> {
        if self.frame.as_ref().is_none_or(|(of, _)| *of != number) {
            self.frame = Some((number, self.archive.frame(self.stream, number)?));
        }
        let (_, plain) = self.frame.as_ref().expect("it was just read");
        Ok(plain)
    }
}
