//! Packs chunks into frames.
//!
//! New chunks go into a frame together until it is full. One that is similar to a chunk of an earlier
//! frame goes elsewhere, with others that are similar to chunks of that frame: what becomes a frame
//! of its own, with the earlier one as its base. So what a release changed in many places is
//! compressed against what it was, and beside what it became later.
//!
//! Chunks that an earlier archive has share no frame with new ones: who has that archive fetches frames
//! of new chunks alone.

use std::{collections::HashMap, mem};

use super::similarity::{FeatureFinder, Features, SimilarityIndex};

/// Plain bytes that wait for their frames to be full.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// What is to be a frame.
#[derive(Debug, Default)]
pub(super) struct Pack {
    pub(super) plain: Vec<u8>,
    /// The chunks in it, and where each begins.
    pub(super) chunks: Vec<(u64, u32)>,
    /// The frame that is its base.
    pub(super) base: Option<u64>,
    /// By what others may find it.
    features: Vec<Features>,
}

impl Pack {
    fn add(&mut self, number: u64, chunk: &[u8]) {
        self.chunks.push((number, self.plain.len() as u32));
        self.plain.extend_from_slice(chunk);
    }
}

pub(super) struct Packer {
    /// A frame is full from so many bytes on; 0 if each chunk is one.
    frame_bytes: usize,
    /// Finds similar chunks, if that is wanted.
    similarity: Option<(FeatureFinder, SimilarityIndex)>,
    /// Of new chunks, and of those that an earlier archive has.
    open: [Pack; 2],
    /// By their bases, and whether an earlier archive has what is in them.
    waiting: HashMap<(u64, bool), Pack>,
    waiting_bytes: usize,
}

impl Packer {
    pub(super) fn new(frame_bytes: usize, has_bases: bool) -> Self {
        Self {
            frame_bytes,
            similarity: has_bases.then(|| (FeatureFinder::new(), SimilarityIndex::default())),
            open: Default::default(),
            waiting: HashMap::new(),
            waiting_bytes: 0,
        }
    }

    /// Takes a chunk that is new in this archive, and perhaps in an earlier one; what is full with it is
    /// to be a frame at once.
    pub(super) fn push(&mut self, number: u64, chunk: &[u8], is_earlier: bool) -> Option<Pack> {
        let mut features = None;
        if let Some((finder, index)) = &self.similarity {
            features = finder.features(chunk);
            if let Some(features) = &features {
                let shares_one = |other: &Features| other.iter().any(|one| features.contains(one));
                let open = &self.open[usize::from(is_earlier)];
                let is_beside = open.features.iter().any(shares_one);
                if let (false, Some(base)) = (is_beside, index.find(features)) {
                    return self.push_beside((base, is_earlier), number, chunk);
                }
            }
        }
        let open = &mut self.open[usize::from(is_earlier)];
        open.add(number, chunk);
        open.features.extend(features);
        (open.plain.len() >= self.frame_bytes).then(|| mem::take(open))
    }

    fn push_beside(&mut self, place: (u64, bool), number: u64, chunk: &[u8]) -> Option<Pack> {
        let pack = self.waiting.entry(place).or_default();
        pack.base = Some(place.0);
        pack.add(number, chunk);
        self.waiting_bytes += chunk.len();
        let full = match pack.plain.len() >= self.frame_bytes {
            true => place,
            false if self.waiting_bytes > WAITING_BYTES_MAX => {
                let waiting = self.waiting.iter();
                let longest = waiting.max_by_key(|(place, pack)| (pack.plain.len(), **place));
                *longest.expect("one was just added to").0
            }
            false => return None,
        };
        let pack = self.waiting.remove(&full)?;
        self.waiting_bytes -= pack.plain.len();
        Some(pack)
    }

    /// A pack became frame `number`: later chunks may be similar to what is in it.
    pub(super) fn became(&mut self, pack: &Pack, number: u64) {
        if let Some((_, index)) = &mut self.similarity {
            for features in &pack.features {
                index.insert(features, number);
            }
        }
    }

    /// What is left, as it is to become frames, one at a time.
    pub(super) fn finish(&mut self) -> Option<Pack> {
        if let Some(open) = self.open.iter_mut().find(|pack| !pack.plain.is_empty()) {
            return Some(mem::take(open));
        }
        let place = *self.waiting.keys().min()?;
        self.waiting.remove(&place)
    }
}
