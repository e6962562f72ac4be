//! The frames of a stream, as the table will have them.

use std::{collections::VecDeque, io};

use super::parts::PartSpool;
use crate::{
    crypt::{FrameKey, SEAL_BYTES},
    format::part::{CHUNKS_MAX, FRAMES_MAX, StoredFrame, encode_frames},
};

/// Frames that may still be bases: of those before, it is forgotten where they are.
const BASES_MAX: usize = 1 << 16;

pub(super) struct FrameTable {
    parts: PartSpool,
    /// Parts of keys, if the archive is encrypted.
    key_parts: PartSpool,
    /// Keys of the part to come.
    keys: Vec<FrameKey>,
    /// Those of the part to come; offsets count from the first frame of the archive.
    frames: Vec<StoredFrame>,
    /// Number of the first of them.
    first: u64,
    /// Where the last part began, and the stored bytes in it.
    before: (u64, u64),
    has_bases: bool,
    /// The latest frames, the last of which has the highest number.
    recent: VecDeque<(StoredFrame, Option<FrameKey>)>,
}

impl FrameTable {
    pub(super) fn new(parts: PartSpool, key_parts: PartSpool, has_bases: bool) -> Self {
        Self {
            parts,
            key_parts,
            keys: Vec::with_capacity(FRAMES_MAX),
            frames: Vec::new(),
            first: 0,
            before: (0, 0),
            has_bases,
            recent: VecDeque::new(),
        }
    }

    /// Frames so far.
    pub(super) fn len(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// Adds the next frame; a part ends with it if it is full or `ends_part`.
    pub(super) fn push(
        &mut self,
        frame: StoredFrame,
        key: Option<FrameKey>,
        ends_part: bool,
    ) -> io::Result<()> {
        self.frames.push(frame);
        self.keys.extend(key.clone());
        if self.recent.len() == BASES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((frame, key));
        // Without bases, frames are chunks.
        let max = if self.has_bases {
            FRAMES_MAX
        } else {
            CHUNKS_MAX
        };
        match ends_part || self.frames.len() == max {
            true => self.end_part(),
            false => Ok(()),
        }
    }

    /// A frame, if it is among the latest, and its key if it has one.
    pub(super) fn recent(&self, number: u64) -> Option<&(StoredFrame, Option<FrameKey>)> {
        let back = self.len().checked_sub(number + 1)?;
        let place = self.recent.len().checked_sub(back as usize + 1)?;
        self.recent.get(place)
    }

    fn end_part(&mut self) -> io::Result<()> {
        let Some(first) = self.frames.first() else {
            return Ok(());
        };
        let stored = self
            .frames
            .iter()
            .map(|frame| u64::from(frame.stored_bytes));
        let (start, stored_bytes) = (first.offset, stored.sum::<u64>());
        let (start_before, stored_before) = self.before;
        let gap = start.wrapping_sub(start_before + stored_before);
        self.parts.push(
            self.frames.len(),
            encode_frames(&self.frames, self.first, self.has_bases),
            [gap, stored_bytes, 0, 0, 0],
        )?;
        if !self.keys.is_empty() {
            // With room for the seal, which must not move them.
            let mut keys = Vec::with_capacity(self.keys.len() * 32 + SEAL_BYTES);
            for key in &self.keys {
                keys.extend_from_slice(&key.0);
            }
            self.key_parts.push(self.keys.len(), keys, [0; 5])?;
            self.keys.clear();
        }
        self.before = (start, stored_bytes);
        self.first += self.frames.len() as u64;
        self.frames.clear();
        Ok(())
    }

    /// All its parts, and those of keys. The first row's gap counts from the first frame of the
    /// archive.
    pub(super) fn finish(mut self) -> io::Result<[PartSpool; 2]> {
        self.end_part()?;
        Ok([self.parts, self.key_parts])
    }
}
