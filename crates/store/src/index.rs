//! The index in memory: where a chunk lies, and where in recipes it was seen last.
//!
//! Keys enter, entries of 24 bytes leave. Entries lie in pages that never move; tables of slot
//! numbers, 5 bytes each and at least 7/16 full, find them. The tables are many and grow one by
//! one, so that growing never doubles the whole. In all at most 24 + 11.5 bytes an entry.

use hashbrown::{HashTable, hash_table::Entry as TableEntry};

use crate::key::{IndexKey, KEY_BYTES};

/// Segments have numbers below this, and so do records within a segment.
pub(crate) const NUMBER_END: u32 = (1 << 24) - 1;

const SHARDS: u64 = 64;
const PAGE_ENTRIES: usize = 1024;
const NOTHING: [u8; 6] = [0xff; 6];

/// Where a chunk lies: both numbers are below [`NUMBER_END`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkAt {
    pub segment: u32,
    pub record: u32,
}

/// A position in a recipe: before the entry `entry` of a piece, or behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecipeAt {
    pub segment: u32,
    pub piece: u16,
    pub entry: u8,
}

/// What the index knows by a key: of a chunk or of an opening, which lies nowhere.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    key: [u8; KEY_BYTES],
    /// [`NOTHING`], or a [`ChunkAt`]; of a free entry the next free slot.
    at: [u8; 6],
    /// The latest first; [`NOTHING`] where there is none.
    places: [[u8; 6]; 2],
}

impl Entry {
    const FREE: Self = Self {
        key: [0; KEY_BYTES],
        at: NOTHING,
        places: [NOTHING; 2],
    };

    pub(crate) fn at(&self) -> Option<ChunkAt> {
        let [a, b, c, d, e, f] = self.at;
        (self.at != NOTHING).then(|| ChunkAt {
            segment: u32::from_le_bytes([a, b, c, 0]),
            record: u32::from_le_bytes([d, e, f, 0]),
        })
    }

    pub(crate) fn set_at(&mut self, at: ChunkAt) {
        debug_assert!(at.segment < NUMBER_END && at.record < NUMBER_END);
        let [a, b, c, _] = at.segment.to_le_bytes();
        let [d, e, f, _] = at.record.to_le_bytes();
        self.at = [a, b, c, d, e, f];
    }

    /// The places, the latest first.
    pub(crate) fn places(&self) -> impl Iterator<Item = RecipeAt> {
        let places = self.places.into_iter().filter(|place| *place != NOTHING);
        places.map(|[a, b, c, d, e, entry]| RecipeAt {
            segment: u32::from_le_bytes([a, b, c, 0]),
            piece: u16::from_le_bytes([d, e]),
            entry,
        })
    }

    /// Adds the latest place, and lets go of the last but one.
    pub(crate) fn push_place(&mut self, place: RecipeAt) {
        let [a, b, c, _] = place.segment.to_le_bytes();
        let [d, e] = place.piece.to_le_bytes();
        self.places = [[a, b, c, d, e, place.entry], self.places[0]];
    }
}

/// Finds entries by key.
pub(crate) struct Index {
    shards: Vec<HashTable<u32>>,
    pages: Vec<Box<[Entry]>>,
    /// The first of the free slots, which are linked.
    free: Option<u32>,
    len: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            pages: Vec::new(),
            free: None,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes room in the tables for so many entries in all, so that they need not grow on the way.
    pub(crate) fn reserve(&mut self, entries: usize) {
        let pages = &self.pages;
        for shard in &mut self.shards {
            let more = (entries / SHARDS as usize).saturating_sub(shard.len());
            shard.reserve(more, |&slot| {
                hash(IndexKey(pages[page(slot)][line(slot)].key))
            });
        }
    }

    /// Bytes that it has allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        tables
            + self.shards.capacity() * size_of::<HashTable<u32>>()
            + self.pages.len() * PAGE_ENTRIES * size_of::<Entry>()
            + self.pages.capacity() * size_of::<Box<[Entry]>>()
    }

    pub(crate) fn find(&self, key: IndexKey) -> Option<&Entry> {
        let slot = self.slot(key)?;
        Some(&self.pages[page(slot)][line(slot)])
    }

    pub(crate) fn find_mut(&mut self, key: IndexKey) -> Option<&mut Entry> {
        let slot = self.slot(key)?;
        Some(&mut self.pages[page(slot)][line(slot)])
    }

    /// The entry of a key, a new one if there is none.
    pub(crate) fn find_or_insert(&mut self, key: IndexKey) -> &mut Entry {
        let Self {
            shards,
            pages,
            free,
            len,
        } = self;
        let found = shards[shard(key)].entry(
            hash(key),
            |&slot| pages[page(slot)][line(slot)].key == key.0,
            |&slot| hash(IndexKey(pages[page(slot)][line(slot)].key)),
        );
        let slot = match found {
            TableEntry::Occupied(found) => *found.get(),
            TableEntry::Vacant(vacant) => {
                let slot = take_free(pages, free);
                pages[page(slot)][line(slot)].key = key.0;
                vacant.insert(slot);
                *len += 1;
                slot
            }
        };
        &mut pages[page(slot)][line(slot)]
    }

    pub(crate) fn remove(&mut self, key: IndexKey) {
        let pages = &self.pages;
        let is_it = |&slot: &u32| pages[page(slot)][line(slot)].key == key.0;
        if let Ok(found) = self.shards[shard(key)].find_entry(hash(key), is_it) {
            let (slot, _) = found.remove();
            self.release(slot);
            self.len -= 1;
        }
    }

    /// Removes the entries that are not to be kept: a walk through all of them.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&Entry) -> bool) {
        let mut released = Vec::new();
        let pages = &self.pages;
        for shard in &mut self.shards {
            shard.retain(|&mut slot| {
                let is_kept = is_kept(&pages[page(slot)][line(slot)]);
                if !is_kept {
                    released.push(slot);
                }
                is_kept
            });
        }
        for slot in released {
            self.release(slot);
            self.len -= 1;
        }
    }

    fn slot(&self, key: IndexKey) -> Option<u32> {
        let is_it = |&slot: &u32| self.pages[page(slot)][line(slot)].key == key.0;
        self.shards[shard(key)].find(hash(key), is_it).copied()
    }

    fn release(&mut self, slot: u32) {
        link_free(&mut self.pages, &mut self.free, slot);
    }
}

/// Takes a slot that is free, of a new page if there is none.
fn take_free(pages: &mut Vec<Box<[Entry]>>, free: &mut Option<u32>) -> u32 {
    if free.is_none() {
        let first = pages.len() * PAGE_ENTRIES;
        pages.push(vec![Entry::FREE; PAGE_ENTRIES].into());
        for slot in (first..first + PAGE_ENTRIES).rev() {
            let slot = u32::try_from(slot).expect("fewer entries than 100 GB of memory hold");
            link_free(pages, free, slot);
        }
    }
    let slot = free.expect("a page was added");
    let entry = &mut pages[page(slot)][line(slot)];
    let [a, b, c, d, ..] = entry.at;
    let next = u32::from_le_bytes([a, b, c, d]);
    *free = (next != u32::MAX).then_some(next);
    *entry = Entry::FREE;
    slot
}

fn link_free(pages: &mut [Box<[Entry]>], free: &mut Option<u32>, slot: u32) {
    let entry = &mut pages[page(slot)][line(slot)];
    *entry = Entry::FREE;
    entry.at[..4].copy_from_slice(&free.unwrap_or(u32::MAX).to_le_bytes());
    *free = Some(slot);
}

fn page(slot: u32) -> usize {
    slot as usize / PAGE_ENTRIES
}

fn line(slot: u32) -> usize {
    slot as usize % PAGE_ENTRIES
}

fn shard(key: IndexKey) -> usize {
    (key.number() % SHARDS) as usize
}

/// Spreads the 48 bits: a table takes the lowest and the highest of 64.
fn hash(key: IndexKey) -> u64 {
    (key.number() / SHARDS).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::collections::HashMap;

    fn key(number: u64) -> IndexKey {
        IndexKey(
            blake3::hash(&number.to_le_bytes()).as_bytes()[..6]
                .try_into()
                .expect("six"),
        )
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

    #[test]
    fn slots_are_used_again() {
        let mut index = Index::new();
        for round in 0..10 {
            for number in 0..1000 {
                index.find_or_insert(key(round * 1000 + number));
            }
            for number in 0..1000 {
                index.remove(key(round * 1000 + number));
            }
        }
        assert_eq!((index.len(), index.pages.len()), (0, 1));
    }
}
