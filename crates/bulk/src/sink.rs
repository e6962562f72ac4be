//! Where what is read and cut may go, beside being counted.

use std::ops::{ControlFlow, Range};

use refrain_codec::chunk::hash::ChunkDigest;

use crate::{Failed, Item};

/// Takes what is read and cut: all in the order of the input, on the thread that called
/// [`find_redundancy`](crate::find_redundancy). Where it says not to go on, the search ends as well.
pub trait Sink {
    /// Something was found. If it is a file or a stream, what follows is its content, and its end;
    /// one that cannot be opened is not told.
    fn begin(&mut self, item: Item) -> ControlFlow<()>;

    /// The next chunks of the file.
    fn chunks(&mut self, chunks: &Chunks<'_>) -> ControlFlow<()>;

    /// The file ends; `failed` says why it is not all of it, or may never have been as it was read.
    fn end(&mut self, failed: Option<&Failed>) -> ControlFlow<()>;
}

/// Chunks that follow each other in a file, one at least.
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where they are in `bytes`, one behind the other.
    pub(crate) ranges: &'a [Range<usize>],
    pub(crate) digests: &'a [ChunkDigest],
}

impl<'a> Chunks<'a> {
    /// The bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self.ranges {
            [] => &[],
            [first, ..] => &self.bytes[first.start..self.ranges[self.ranges.len() - 1].end],
        }
    }

    /// Each with its digest.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a ChunkDigest, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        let ranges = self.ranges.iter();
        (self.digests.iter()).zip(ranges.map(move |range| &bytes[range.clone()]))
    }
}
