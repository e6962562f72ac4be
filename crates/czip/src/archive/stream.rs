//! Reads one stream of an archive.

use std::sync::Arc;

use super::{
    Archive, ReadError, Source,
    table::{Piece, ReferenceRun},
};
use crate::format::{FormatError, Stream, Violation};

/// What has plain bytes, by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Frame(u64),
    Chunk(u64),
}

/// Reads a stream from any place on.
pub struct StreamReader<'a, S> {
    archive: &'a Archive<S>,
    stream: Stream,
    end: u64,
    position: u64,
    run: Option<ReferenceRun>,
    /// What was last read from.
    held: Option<(Held, Arc<Vec<u8>>)>,
}

impl<'a, S: Source> StreamReader<'a, S> {
    pub(super) fn new(archive: &'a Archive<S>, stream: Stream) -> Self {
        Self {
            archive,
            stream,
            end: archive.root().stream(stream).bytes(),
            position: 0,
            run: None,
            held: None,
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
        let wanted = left.min(buffer.len() as u64) as usize;
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
            let (begin, plain) = self.hold(&piece)?;
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

    /// What has the bytes of `piece`, and where they begin: a frame in memory, its chunk that is kept, or its
    /// frame.
    fn hold(&mut self, piece: &Piece) -> Result<(usize, &[u8]), ReadError> {
        let (frame, chunk) = (Held::Frame(piece.frame), Held::Chunk(piece.chunk));
        let has_it = |(held, _): &(Held, _)| *held == frame || *held == chunk;
        if !self.held.as_ref().is_some_and(has_it) {
            let kept = match self.archive.has_in_memory(self.stream, piece.frame) {
                true => None,
                false => self.archive.kept_chunk(self.stream, piece.chunk),
            };
            self.held = Some(match kept {
                Some(plain) => (chunk, Arc::new(plain)),
                None => (frame, self.archive.frame(self.stream, piece.frame)?),
            });
        }
        let (held, plain) = self.held.as_ref().expect("it was just read");
        let begin = match held {
            Held::Frame(_) => piece.offset,
            Held::Chunk(_) => piece.within,
        };
        Ok((begin as usize, plain))
    }
}
