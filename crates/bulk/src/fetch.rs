//! The first stage: what is to be read where is planned in order, by one thread, and read by
//! several.
//!
//! A batch takes what fits of one file after another. Where it begins within a file, the 47 bytes
//! before are read once more: windows begin in them.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use refrain_codec::marker::pack::WINDOW_BYTES;

use crate::{
    batch::{Batch, Failure, Piece},
    input::{Content, Found, read_full},
    outcome::Failed,
};

/// Bytes of a window without its last one.
const BEFORE: usize = WINDOW_BYTES - 1;

/// Pieces of a batch, at most: files may be empty.
const PIECES_MAX: usize = 4096;

/// A batch, and what is to be read into it.
pub(crate) struct Plan {
    pub(crate) batch: Box<Batch>,
    /// For each of the batch's pieces; those of streams are there.
    reads: Vec<Option<Read>>,
}

/// A piece to be read, as long as its place.
struct Read {
    file: Arc<File>,
    path: Arc<Path>,
}

/// Plans one batch after another.
pub(crate) struct Planner<I> {
    found: I,
    /// Where bytes are read to.
    front: usize,
    /// What is left of the file that was found last.
    rest: Option<Rest>,
    files: u64,
    batches: u64,
    before: StreamEnd,
}

/// The end of what was read of a stream, for the windows that begin in it.
#[derive(Default)]
struct StreamEnd(Vec<u8>);

impl StreamEnd {
    /// Reads all there is room for, and says what went wrong.
    fn read_on(
        &mut self,
        stream: &mut dyn io::Read,
        piece: &mut Piece,
        batch: &mut Batch,
        path: &Arc<Path>,
    ) -> Option<Failure> {
        let start = piece.place.start;
        batch.bytes[start - self.0.len()..start].copy_from_slice(&self.0);
        let (count, error) = read_full(stream, &mut batch.bytes[start..]);
        piece.place.end += count;
        piece.is_last = piece.place.end < batch.bytes.len() || error.is_some();
        self.0.clear();
        if !piece.is_last {
            let kept = (piece.bytes_before + count).min(BEFORE);
            let end = piece.place.end;
            self.0.extend_from_slice(&batch.bytes[end - kept..end]);
        }
        error.map(|error| Failure {
            path: path.clone(),
            failed: Failed::Unread(error),
        })
    }
}

/// A file that was not read to its end.
struct Rest {
    found: Found,
    offset: u64,
}

impl<I: Iterator<Item = Result<Found, Failure>>> Planner<I> {
    /// Plans to read what is `found` into batches with so much room in front.
    pub(crate) fn new(found: I, front: usize) -> Self {
        Self {
            found,
            front,
            rest: None,
            files: 0,
            batches: 0,
            before: StreamEnd::default(),
        }
    }

    /// The next plan; none once there is no more to be read.
    pub(crate) fn plan(&mut self, mut batch: Box<Batch>) -> Option<Plan> {
        batch.clear();
        batch.number = self.batches;
        self.batches += 1;
        let mut reads = Vec::new();
        let mut start = self.front;
        while start < batch.bytes.len() && batch.pieces.len() < PIECES_MAX {
            let next = match self.rest.take() {
                Some(rest) => Ok(rest),
                None => match self.found.next() {
                    Some(found) => found.map(|found| Rest { found, offset: 0 }),
                    None => break,
                },
            };
            let mut piece = Piece {
                file: self.files,
                place: start..start,
                offset: 0,
                bytes_before: 0,
                is_last: false,
                failure: None,
                anchors_end: 0,
                chunks_end: 0,
            };
            match next {
                Ok(rest) => reads.push(self.part(rest, &mut piece, &mut batch)),
                Err(failure) => {
                    piece.failure = Some(failure);
                    reads.push(None);
                }
            }
            self.files += u64::from(self.rest.is_none());
            start = piece.place.end;
            batch.pieces.push(piece);
        }
        (!batch.pieces.is_empty()).then_some(Plan { batch, reads })
    }

    /// The next part of a file: what is to be read of it, unless it was just read.
    fn part(&mut self, mut rest: Rest, piece: &mut Piece, batch: &mut Batch) -> Option<Read> {
        piece.offset = rest.offset;
        piece.bytes_before = rest.offset.min(BEFORE as u64) as usize;
        let read = match &mut rest.found.content {
            Content::File(file, bytes) => {
                let room = (batch.bytes.len() - piece.place.start) as u64;
                let count = room.min(*bytes - rest.offset);
                piece.place.end += count as usize;
                piece.is_last = rest.offset + count == *bytes;
                Some(Read {
                    file: file.clone(),
                    path: rest.found.path.clone(),
                })
            }
            Content::Stream(stream) => {
                piece.failure = self.before.read_on(stream, piece, batch, &rest.found.path);
                None
            }
        };
        rest.offset += piece.place.len() as u64;
        self.rest = (!piece.is_last).then_some(rest);
        read
    }
}

impl Plan {
    /// Reads what is to be read.
    pub(crate) fn read(self) -> Box<Batch> {
        let Self { mut batch, reads } = self;
        let Batch { bytes, pieces, .. } = &mut *batch;
        for (piece, read) in pieces.iter_mut().zip(reads) {
            let Some(read) = read else {
                continue;
            };
            let from = piece.place.start - piece.bytes_before;
            let at = piece.offset - piece.bytes_before as u64;
            let target = &mut bytes[from..piece.place.end];
            let (filled, failed) = match read.fill(target, at) {
                (filled, None) if filled == target.len() => continue,
                (filled, None) => (filled, Failed::Shrunk),
                (filled, Some(error)) => (filled, Failed::Unread(error)),
            };
            piece.place.end = piece.place.start.max(from + filled);
            piece.is_last = true;
            piece.failure = Some(Failure {
                path: read.path,
                failed,
            });
        }
        batch
    }
}

impl Read {
    /// Fills `target` with the file's bytes from `at` on, and says how far it came.
    fn fill(&self, target: &mut [u8], at: u64) -> (usize, Option<io::Error>) {
        let mut filled = 0;
        while filled < target.len() {
            let rest = &mut target[filled..];
            match self.file.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (filled, Some(error)),
            }
        }
        (filled, None)
    }
}
