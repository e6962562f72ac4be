//! Which chunks of an archive are here: a bit for each.

use crate::format::{Stream, root::Root};

pub(super) struct Presence {
    streams: [Vec<u64>; 5],
    /// How many chunks are not here.
    pub(super) missing: u64,
}

impl Presence {
    /// None is.
    pub(super) fn new(root: &Root) -> Self {
        let chunks = |stream: Stream| root.stream(stream).chunks.items();
        Self {
            streams: Stream::ALL.map(|stream| vec![0; chunks(stream).div_ceil(64) as usize]),
            missing: Stream::ALL.into_iter().map(chunks).sum(),
        }
    }

    pub(super) fn has(&self, stream: Stream, chunk: u64) -> bool {
        self.streams[stream.index()][(chunk / 64) as usize] >> (chunk % 64) & 1 == 1
    }

    /// A chunk is here now.
    pub(super) fn add(&mut self, stream: Stream, chunk: u64) {
        if !self.has(stream, chunk) {
            self.streams[stream.index()][(chunk / 64) as usize] |= 1 << (chunk % 64);
            self.missing -= 1;
        }
    }
}
