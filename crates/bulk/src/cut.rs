//! The third stage: cuts files into chunks, at the anchors that were found. Batches come in order:
//! where a chunk may end depends on where it began.

use std::ops::Range;

use refrain_codec::{
    chunk::{
        chunking::{Chunking, ChunkingMethod},
        fixed::FixedChunks,
        stream::{LongChunkBounds, StreamChunks},
    },
    marker::{FindAnchors, FoundAnchors, pack::WINDOW_BYTES},
    simd::Backend,
};

use crate::batch::{Batch, Piece};

/// The bounds of its chunks.
fn bounds(chunking: Chunking) -> LongChunkBounds {
    LongChunkBounds::new(chunking.min_bytes() as usize, chunking.max_bytes() as usize)
        .expect("valid for shorter chunks")
}

/// Room in front of a batch for a chunk that is not complete.
pub(crate) fn front_bytes(chunking: Chunking) -> usize {
    // Reads that begin within a page copy slower.
    (chunking.max_bytes() as usize + WINDOW_BYTES).next_multiple_of(4096)
}

/// Where the chunks of a file end, by anchors that `F` finds.
pub(crate) enum Ends<F> {
    Fixed(FixedChunks),
    Anchors(Box<StreamChunks<F>>),
}

impl<F: FindAnchors> Ends<F> {
    /// At the start of a file, by `finder` unless chunks are fixed.
    pub(crate) fn new(chunking: Chunking, finder: F, backend: Backend) -> Self {
        match chunking.method() {
            ChunkingMethod::Fixed => Self::Fixed(FixedChunks::new(chunking.average_bytes().into())),
            ChunkingMethod::Modp | ChunkingMethod::Pack => Self::Anchors(Box::new(
                StreamChunks::by(finder, bounds(chunking), backend),
            )),
        }
    }

    /// Appends the chunks that are complete with the next bytes of the file.
    pub(crate) fn feed(&mut self, bytes: &[u8], found: &mut Vec<Range<u64>>) {
        match self {
            Self::Fixed(chunks) => chunks.feed(bytes, found),
            Self::Anchors(chunks) => chunks.feed(bytes, found),
        }
    }

    /// Appends what is left of the file. The next one begins.
    pub(crate) fn finish(&mut self, found: &mut Vec<Range<u64>>) {
        match self {
            Self::Fixed(chunks) => chunks.finish(found),
            Self::Anchors(chunks) => chunks.finish(found),
        }
    }
}

/// Cuts files into chunks.
pub(crate) struct Cutter {
    ends: Ends<FoundAnchors>,
    /// The bytes of the chunk that is not complete.
    unfinished: Vec<u8>,
    /// A file that ended before all was read of it that was planned.
    broken_off: Option<u64>,
    /// Of the latest piece, in the offsets of its file; empty between calls.
    found: Vec<Range<u64>>,
}

impl Cutter {
    /// At the start of the first file.
    pub(crate) fn new(chunking: Chunking, backend: Backend) -> Self {
        Self {
            ends: Ends::new(chunking, FoundAnchors::default(), backend),
            unfinished: Vec::new(),
            broken_off: None,
            found: Vec::new(),
        }
    }

    /// Finds the chunks that are complete with the next batch, and moves the bytes of the one before
    /// that is not in front of it.
    pub(crate) fn cut(&mut self, batch: &mut Batch) {
        let mut first_anchor = 0;
        let mut pieces = std::mem::take(&mut batch.pieces);
        for piece in &mut pieces {
            let anchors = first_anchor..piece.anchors_end;
            first_anchor = piece.anchors_end;
            // What came behind the place where a file broke off is none of its bytes any more.
            if self.broken_off != Some(piece.file) {
                self.cut_piece(piece, anchors, batch);
            } else {
                piece.place.end = piece.place.start;
                piece.failure = None;
                piece.is_last = false;
            }
            piece.chunks_end = batch.chunks.len();
        }
        batch.pieces = pieces;
    }

    fn cut_piece(&mut self, piece: &Piece, anchors: Range<usize>, batch: &mut Batch) {
        let start = piece.place.start - self.unfinished.len();
        batch.bytes[start..piece.place.start].copy_from_slice(&self.unfinished);
        let bytes = &batch.bytes[piece.place.clone()];
        if let Ends::Anchors(chunks) = &mut self.ends {
            chunks.tell(batch.anchors[anchors].iter().copied());
        }
        self.ends.feed(bytes, &mut self.found);
        if piece.is_last {
            self.ends.finish(&mut self.found);
        }
        // Chunks follow each other, from where the unfinished one begins.
        let mut end = start;
        batch.chunks.extend(self.found.drain(..).map(|chunk| {
            let begin = end;
            end += (chunk.end - chunk.start) as usize;
            begin..end
        }));
        self.unfinished.clear();
        self.unfinished
            .extend_from_slice(&batch.bytes[end..piece.place.end]);
        if piece.is_last && piece.failure.is_some() {
            self.broken_off = Some(piece.file);
        }
    }
}
