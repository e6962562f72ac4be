//! The first stage: what is to be read where is planned in order, by one thread, and read by
//! several.
//!
//! A batch takes what fits of one file after another. Where it begins within a file, the 47 bytes
//! before are read once more: windows begin in them.
//!
//! A file that lies in one batch is opened when it is read. Others stay open until their last batch was
//! read, two for each batch at most: small files may be many more than a process may open.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use refrain_codec::marker::pack::WINDOW_BYTES;

use crate::{
    batch::{Batch, Piece},
    input::{Content, Found, Item, Written, fill, read_full},
    outcome::{Failed, Failure},
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
    path: Arc<Path>,
    /// None if this is all of the file.
    file: Option<Arc<File>>,
    written: Written,
}

/// Plans one batch after another.
pub(crate) struct Planner<I> {
    found: I,
    /// Where bytes are read to.
    front: usize,
    /// What is left of the file that was found last.
    rest: Option<Rest>,
    /// All that was planned to its end.
    done: u64,
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
        error.map(|error| Failure::of(path.clone(), error))
    }
}

/// What was found, none of which was read.
fn whole(found: Found) -> (Option<Box<Item>>, Rest) {
    let Found { item, content } = found;
    let rest = Rest {
        path: item.path.clone(),
        content,
        file: None,
        offset: 0,
    };
    (Some(Box::new(item)), rest)
}

/// A file that was not read to its end.
struct Rest {
    path: Arc<Path>,
    content: Content,
    /// If it is in several batches.
    file: Option<Arc<File>>,
    offset: u64,
}

impl<I: Iterator<Item = Result<Found, Failure>>> Planner<I> {
    /// Plans to read what is `found` into batches with so much room in front.
    pub(crate) fn new(found: I, front: usize) -> Self {
        Self {
            found,
            front,
            rest: None,
            done: 0,
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
                Some(rest) => Ok((None, rest)),
                None => match self.found.next() {
                    Some(found) => found.map(whole),
                    None => break,
                },
            };
            let mut piece = Piece::new(self.done, start..start);
            match next {
                Ok((item, rest)) => {
                    piece.item = item;
                    reads.push(self.part(rest, &mut piece, &mut batch));
                }
                Err(failure) => {
                    piece.failure = Some(failure);
                    reads.push(None);
                }
            }
            self.done += u64::from(self.rest.is_none());
            start = piece.place.end;
            batch.pieces.push(piece);
        }
        (!batch.pieces.is_empty()).then_some(Plan { batch, reads })
    }

    /// The next part of a file: what is to be read of it, unless it was just read.
    fn part(&mut self, mut rest: Rest, piece: &mut Piece, batch: &mut Batch) -> Option<Read> {
        piece.offset = rest.offset;
        piece.bytes_before = rest.offset.min(BEFORE as u64) as usize;
        let read = match &mut rest.content {
            Content::Nothing => return None,
            Content::File(written) => {
                let room = (batch.bytes.len() - piece.place.start) as u64;
                let count = room.min(written.bytes - rest.offset);
                if count < written.bytes && rest.file.is_none() {
                    match File::open(&rest.path) {
                        Ok(file) => rest.file = Some(Arc::new(file)),
                        Err(error) => {
                            piece.not_opened(&rest.path, error);
                            return None;
                        }
                    }
                }
                piece.place.end += count as usize;
                piece.is_last = rest.offset + count == written.bytes;
                Some(Read {
                    path: rest.path.clone(),
                    file: rest.file.clone(),
                    written: *written,
                })
            }
            Content::Stream(stream) => {
                piece.failure = self.before.read_on(stream, piece, batch, &rest.path);
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
            if let Some(read) = read {
                read.read(piece, bytes);
            }
        }
        batch
    }
}

impl Read {
    /// Reads the piece into the bytes of its batch.
    fn read(self, piece: &mut Piece, bytes: &mut [u8]) {
        let Self {
            path,
            file,
            written,
        } = self;
        let file = match file.map_or_else(|| File::open(&path).map(Arc::new), Ok) {
            Ok(file) => file,
            Err(error) => return piece.not_opened(&path, error),
        };
        let from = piece.place.start - piece.bytes_before;
        let at = piece.offset - piece.bytes_before as u64;
        let target = &mut bytes[from..piece.place.end];
        let (filled, error) = fill(target, |rest, read| file.read_at(rest, at + read as u64));
        let failed = match error {
            Some(error) => Failed::Unread(error),
            None if filled < target.len() => Failed::Shrunk,
            None if written.has_changed(&file) => {
                piece.failure = Some(Failure::of(path, Failed::Changed));
                return;
            }
            None => return,
        };
        piece.place.end = piece.place.start.max(from + filled);
        piece.is_last = true;
        piece.failure = Some(Failure::of(path, failed));
    }
}

impl Piece {
    /// It could be looked at, but not be opened.
    fn not_opened(&mut self, path: &Arc<Path>, error: io::Error) {
        self.item = None;
        self.place.end = self.place.start;
        self.is_last = false;
        self.failure = Some(Failure::of(path.clone(), error));
    }
}
