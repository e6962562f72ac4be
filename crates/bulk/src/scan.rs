//! The second stage: finds the anchors of a batch. Batches stand alone, so that many are scanned at
//! once.

use refrain_codec::{
    chunk::chunking::{Chunking, ChunkingMethod},
    marker::{AnchorDistance, AnchorFinder, FindAnchors, ModpAnchorFinder},
    simd::Backend,
};

use crate::batch::Batch;

/// How far apart the anchors are that chunks are cut at.
pub(crate) fn anchor_distance(chunking: Chunking) -> AnchorDistance {
    AnchorDistance::new(chunking.average_bytes() as usize)
        .expect("averages are among the distances")
}

/// Finds anchors on the processor.
pub(crate) struct Scanner {
    /// Without one, no anchors are needed.
    finder: Option<Box<dyn FindAnchors + Send>>,
}

impl Scanner {
    /// Finds what `chunking` cuts at, on the kernels of `backend`.
    pub(crate) fn new(chunking: Chunking, backend: Backend) -> Self {
        let distance = anchor_distance(chunking);
        Self {
            finder: match chunking.method() {
                ChunkingMethod::Fixed => None,
                ChunkingMethod::Modp => Some(Box::new(
                    ModpAnchorFinder::new(distance).with_backend(backend),
                )),
                ChunkingMethod::Pack => Some(Box::new(
                    AnchorFinder::sparse(distance).with_backend(backend),
                )),
            },
        }
    }

    /// Finds the anchors whose windows end in the batch's pieces.
    pub(crate) fn scan(&mut self, batch: &mut Batch) {
        let Some(finder) = &mut self.finder else {
            return;
        };
        for piece in &mut batch.pieces {
            let found_before = batch.anchors.len();
            let start = piece.place.start - piece.bytes_before;
            finder.reset();
            finder.feed(&batch.bytes[start..piece.place.end], &mut batch.anchors);
            let offset = piece.offset - piece.bytes_before as u64;
            for anchor in &mut batch.anchors[found_before..] {
                *anchor += offset;
            }
            piece.anchors_end = batch.anchors.len();
        }
    }
}
