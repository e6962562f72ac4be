//! What is read at once, and what the stages find out about it on its way through them.
//!
//! A batch is made once and comes around again: its buffers keep their room, and as many batches as
//! there are bound all memory between the stages. Bytes stay where they were read to. In front of
//! them is room for the unfinished chunk of the batch before, so that every chunk lies in one piece.

use std::{
    ops::{DerefMut, Range},
    sync::atomic::AtomicBool,
};

use crossbeam_channel::Sender;
use refrain_codec::chunk::hash::ChunkDigest;

use crate::{hash_match::SHARDS, input::Item, outcome::Failure};

/// Bytes of one file in a batch.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Which of all that was found.
    pub(crate) file: u64,
    /// What was found, if it begins here. Folders and links have no bytes, and no end.
    pub(crate) item: Option<Box<Item>>,
    /// Where its bytes are in the batch's; of one that failed, those that could be read.
    pub(crate) place: Range<usize>,
    /// Where they are in the file.
    pub(crate) offset: u64,
    /// Bytes of the file in front of them, which windows begin in.
    pub(crate) bytes_before: usize,
    /// Whether the file ends here.
    pub(crate) is_last: bool,
    /// Why the file ends here early, or never began, or is not to be trusted.
    pub(crate) failure: Option<Failure>,
    /// Where its anchors end among the batch's.
    pub(crate) anchors_end: usize,
    /// Where the chunks that end in it end among the batch's.
    pub(crate) chunks_end: usize,
}

impl Piece {
    /// Of a file, in front of which nothing was read.
    pub(crate) fn new(file: u64, place: Range<usize>) -> Self {
        Self {
            file,
            place,
            ..Self::default()
        }
    }
}

/// Where bytes are read to, on the heap or where a GPU can read them by itself.
pub(crate) type Bytes = Box<dyn DerefMut<Target = [u8]> + Send + Sync>;

/// What is read at once.
pub(crate) struct Batch {
    /// Its place in the order of all.
    pub(crate) number: u64,
    /// From `front` on, what was read.
    pub(crate) bytes: Bytes,
    pub(crate) pieces: Vec<Piece>,
    /// Of all pieces, in the offsets of their files.
    pub(crate) anchors: Vec<u64>,
    /// Where chunks are in `bytes`.
    pub(crate) chunks: Vec<Range<usize>>,
    /// Of each chunk.
    pub(crate) digests: Vec<ChunkDigest>,
    /// The chunks' indices by shard; within one, in order.
    pub(crate) by_shard: Vec<u32>,
    /// Where each shard's end in there.
    pub(crate) shard_ends: [usize; SHARDS],
    /// Whether a chunk was there before. Each is written by the thread alone that has its shard.
    pub(crate) repeats: Vec<AtomicBool>,
}

impl Batch {
    /// One that reads to `bytes`.
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self {
            number: 0,
            bytes,
            pieces: Vec::new(),
            anchors: Vec::new(),
            chunks: Vec::new(),
            digests: Vec::new(),
            by_shard: Vec::new(),
            shard_ends: [0; SHARDS],
            repeats: Vec::new(),
        }
    }

    /// Forgets all but its room.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.anchors.clear();
        self.chunks.clear();
        self.digests.clear();
        self.by_shard.clear();
        self.repeats.clear();
    }
}

/// Passes a batch to the next stage. It is dropped if that stage is gone: then a thread has panicked,
/// and everything is coming to its end.
pub(crate) fn pass<T>(to: &Sender<T>, batch: T) {
    let _ = to.send(batch);
}
