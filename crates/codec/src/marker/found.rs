//! Anchors that were found elsewhere: by other threads, or on another processor.
//!
//! Who cuts a stream has to go through it from its beginning to its end; finding anchors can be
//! done at many places at once. They come here before the bytes that they are in.

use alloc::{collections::VecDeque, vec::Vec};

use super::FindAnchors;

/// Gives the anchors of a stream that it was told.
///
/// ```
/// use refrain_codec::{
///     chunk::stream::StreamChunks,
///     marker::{AnchorFinder, FindAnchors, FoundAnchors},
/// };
///
/// let song = (0..60_000).map(|number| format!("verse {number}\n"));
/// let song = song.collect::<String>().into_bytes();
/// let mut anchors = Vec::new();
/// AnchorFinder::default().feed(&song, &mut anchors);
///
/// let mut found = FoundAnchors::default();
/// let mut passed_on = Vec::new();
/// found.tell(anchors.iter().copied());
/// found.feed(&song, &mut passed_on);
/// assert_eq!(passed_on, anchors);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FoundAnchors {
    /// Increasing; none of a window that ended in what was fed.
    told: VecDeque<u64>,
    fed_bytes: u64,
}

impl FoundAnchors {
    /// The next anchors of the stream, in increasing order: all whose windows end in what is fed
    /// until they are told again.
    pub fn tell(&mut self, anchors: impl IntoIterator<Item = u64>) {
        self.told.extend(anchors);
    }
}

impl FindAnchors for FoundAnchors {
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>) {
        self.fed_bytes += piece.len() as u64;
        let tested = self.tested_bytes();
        let count = self.told.partition_point(|&anchor| anchor < tested);
        anchors.extend(self.told.drain(..count));
    }

    fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    fn reset(&mut self) {
        self.told.clear();
        self.fed_bytes = 0;
    }
}
