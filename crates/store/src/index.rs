//! The index in memory: where a chunk lies, and where in recipes it was seen last.
//!
//! Keys enter, entries of 23 bytes leave. A key's lowest bits choose one of 64 shards, each a table
//! of its own ([`shard`]), so that growing never doubles the whole, and what is loaded can be put
//! in shard by shard ([`batch`]). In all at most 26 + 11.5 bytes an entry.

mod batch;
mod shard;

use crate::key::IndexKey;
pub(crate) use batch::{Batch, Put};
use shard::Shard;

/// Segments have numbers below this, and so do records within a segment.
pub(crate) const NUMBER_END: u32 = (1 << 24) - 1;

const SHARDS: u64 = 64;
const NOTHING: [u8; 6] = [0xff; 6];

/// Where a chunk lies: both numbers are below [`NUMBER_END`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkAt {
    pub(crate) segment: u32,
    pub(crate) record: u32,
}

/// A position in a recipe: before the entry `entry` of a piece, or behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecipeAt {
    pub(crate) segment: u32,
    pub(crate) piece: u16,
    pub(crate) entry: u8,
}

impl ChunkAt {
    pub(crate) fn to_bytes(self) -> [u8; 6] {
        debug_assert!(self.segment < NUMBER_END && self.record < NUMBER_END);
        let [a, b, c, _] = self.segment.to_le_bytes();
        let [d, e, f, _] = self.record.to_le_bytes();
        [a, b, c, d, e, f]
    }

    fn of_bytes([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self {
            segment: u32::from_le_bytes([a, b, c, 0]),
            record: u32::from_le_bytes([d, e, f, 0]),
        }
    }
}

impl RecipeAt {
    /// In the piece that has this number in its segment.
    pub(crate) fn of((segment, piece): (u32, u16), entry: u8) -> Self {
        Self {
            segment,
            piece,
            entry,
        }
    }

    /// The piece.
    pub(crate) fn id(self) -> (u32, u16) {
        (self.segment, self.piece)
    }

    pub(crate) fn to_bytes(self) -> [u8; 6] {
        let [a, b, c, _] = self.segment.to_le_bytes();
        let [d, e] = self.piece.to_le_bytes();
        [a, b, c, d, e, self.entry]
    }

    fn of_bytes([a, b, c, d, e, entry]: [u8; 6]) -> Self {
        Self {
            segment: u32::from_le_bytes([a, b, c, 0]),
            piece: u16::from_le_bytes([d, e]),
            entry,
        }
    }
}

/// What the index knows by a key: of a chunk or of an opening, which lies nowhere.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    key: IndexKey,
    /// [`NOTHING`], or a [`ChunkAt`].
    at: [u8; 6],
    /// The latest first; [`NOTHING`] where there is none.
    places: [[u8; 6]; 2],
}

impl Entry {
    fn of(key: IndexKey) -> Self {
        Self {
            key,
            at: NOTHING,
            places: [NOTHING; 2],
        }
    }

    pub(crate) fn at(&self) -> Option<ChunkAt> {
        (self.at != NOTHING).then(|| ChunkAt::of_bytes(self.at))
    }

    pub(crate) fn set_at(&mut self, at: ChunkAt) {
        self.at = at.to_bytes();
    }

    /// The places, the latest first.
    pub(crate) fn places(&self) -> impl Iterator<Item = RecipeAt> {
        let places = self.places.into_iter().filter(|place| *place != NOTHING);
        places.map(RecipeAt::of_bytes)
    }

    /// Adds the latest place, and lets go of the last but one.
    pub(crate) fn push_place(&mut self, place: RecipeAt) {
        self.places = [place.to_bytes(), self.places[0]];
    }
}

pub(crate) struct Index {
    shards: Vec<Shard>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    /// Makes room in the tables for so many entries in all, so that they need not grow on the way.
    pub(crate) fn reserve(&mut self, entries: usize) {
        for shard in &mut self.shards {
            shard.reserve(entries / SHARDS as usize);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(Shard::memory_bytes).sum();
        shards + self.shards.capacity() * size_of::<Shard>()
    }

    pub(crate) fn find(&self, key: IndexKey) -> Option<&Entry> {
        self.shards[shard_of(key)].find(key)
    }

    /// Where the chunk with this key lies, if there is one.
    pub(crate) fn at(&self, key: IndexKey) -> Option<ChunkAt> {
        self.find(key)?.at()
    }

    /// The entry of a key, a new one if there is none.
    pub(crate) fn find_or_insert(&mut self, key: IndexKey) -> &mut Entry {
        self.shards[shard_of(key)].find_or_insert(key)
    }

    pub(crate) fn remove(&mut self, key: IndexKey) {
        self.shards[shard_of(key)].remove(key);
    }

    /// Removes the entries that are not to be kept: a walk through all of them.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&Entry) -> bool) {
        for shard in &mut self.shards {
            shard.retain(&mut is_kept);
        }
    }
}

fn shard_of(key: IndexKey) -> usize {
    (key.number() % SHARDS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;
    use proptest::{collection::vec, prelude::*};
    use std::collections::HashMap;

    pub(super) fn key(number: u64) -> IndexKey {
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&blake3::hash(&number.to_le_bytes()).as_bytes()[..KEY_BYTES]);
        IndexKey(key)
    }

    proptest! {
        #[test]
        fn it_is_a_map(operations in vec((0_u64..50, 0_u32..NUMBER_END, 0_u8..4), 0..400)) {
            let mut index = Index::new();
            let mut model: HashMap<u64, u32> = HashMap::new();
            for (number, value, operation) in operations {
                let at = ChunkAt { segment: value, record: NUMBER_END - 1 - value };
                match operation {
                    0 => {
                        index.remove(key(number));
                        model.remove(&number);
                    }
                    1 if number == 0 => {
                        index.retain(|entry| entry.at().expect("set").segment % 2 == 0);
                        model.retain(|_, value| *value % 2 == 0);
                    }
                    _ => {
                        index.find_or_insert(key(number)).set_at(at);
                        model.insert(number, value);
                    }
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for number in 0..50 {
                let found = index.find(key(number)).map(|entry| entry.at().expect("set").segment);
                prop_assert_eq!(found, model.get(&number).copied());
            }
        }
    }

    #[test]
    fn an_entry_keeps_its_last_two_places() {
        let mut index = Index::new();
        let entry = index.find_or_insert(key(1));
        let place = |n: u32| RecipeAt {
            segment: n,
            piece: n as u16,
            entry: 128,
        };
        assert_eq!((entry.at(), entry.places().count()), (None, 0));
        for n in [7, 8, 9] {
            entry.push_place(place(n));
        }
        assert!(entry.places().eq([place(9), place(8)]));
    }
}
