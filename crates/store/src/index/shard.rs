//! A part of the index: its entries one after the other, and a table of their places, 5 bytes each
//! and at least 7/16 full, which finds them.

use hashbrown::{HashTable, hash_table::Entry as Place};

use super::{Entry, SHARDS};
use crate::key::IndexKey;

/// Entries are given room for a part more, not twice as many: there is that much unused at most.
const GROWTH: usize = 8;

#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    entries: Vec<Entry>,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn reserve(&mut self, entries: usize) {
        let more = entries.saturating_sub(self.len());
        let Self { table, entries } = self;
        table.reserve(more, |&at| hash(entries[at as usize].key));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.allocation_size() + self.entries.capacity() * size_of::<Entry>()
    }

    pub(super) fn find(&self, key: IndexKey) -> Option<&Entry> {
        let at = self.place(key)?;
        Some(&self.entries[at])
    }

    pub(super) fn find_mut(&mut self, key: IndexKey) -> Option<&mut Entry> {
        let at = self.place(key)?;
        Some(&mut self.entries[at])
    }

    pub(super) fn find_or_insert(&mut self, key: IndexKey) -> &mut Entry {
        let Self { table, entries } = self;
        let place = table.entry(
            hash(key),
            |&at| entries[at as usize].key == key,
            |&at| hash(entries[at as usize].key),
        );
        let at = match place {
            Place::Occupied(place) => *place.get(),
            Place::Vacant(place) => {
                let len = entries.len();
                let at = u32::try_from(len).expect("fewer entries than 100 GB of memory hold");
                if len == entries.capacity() {
                    entries.reserve_exact(len / GROWTH + GROWTH);
                }
                entries.push(Entry::of(key));
                place.insert(at);
                at
            }
        };
        &mut entries[at as usize]
    }

    /// The last entry takes the place of the one that goes.
    pub(super) fn remove(&mut self, key: IndexKey) {
        let Self { table, entries } = self;
        let is_it = |&at: &u32| entries[at as usize].key == key;
        let Ok(place) = table.find_entry(hash(key), is_it) else {
            return;
        };
        let (at, _) = place.remove();
        entries.swap_remove(at as usize);
        if let Some(moved) = entries.get(at as usize) {
            let last = entries.len() as u32;
            let place = table.find_mut(hash(moved.key), |&at| at == last);
            *place.expect("it was found there") = at;
        }
    }

    pub(super) fn retain(&mut self, is_kept: &mut impl FnMut(&Entry) -> bool) {
        let leaving = self.entries.iter().filter(|entry| !is_kept(entry));
        let leaving: Vec<IndexKey> = leaving.map(|entry| entry.key).collect();
        leaving.into_iter().for_each(|key| self.remove(key));
    }

    fn place(&self, key: IndexKey) -> Option<usize> {
        let is_it = |&at: &u32| self.entries[at as usize].key == key;
        let at = self.table.find(hash(key), is_it)?;
        Some(*at as usize)
    }
}

/// Spreads the bits that did not choose the shard: a table takes the lowest and the highest of 64.
fn hash(key: IndexKey) -> u64 {
    (key.number() / SHARDS).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::tests::key;

    #[test]
    fn places_are_used_again() {
        let mut shard = Shard::default();
        for round in 0..10 {
            for number in 0..100 {
                shard.find_or_insert(key(round * 100 + number));
            }
            for number in 0..100 {
                shard.remove(key(round * 100 + number));
            }
        }
        assert_eq!((shard.len(), shard.table.len()), (0, 0));
        assert!(shard.entries.capacity() < 128);
    }
}
