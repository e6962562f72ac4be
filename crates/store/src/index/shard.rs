//! A part of the index. Entries lie in pages that never move; a table of slot numbers, 5 bytes each
//! and at least 7/16 full, finds them.

use hashbrown::{HashTable, hash_table::Entry as TableEntry};

use super::{Entry, SHARDS};
use crate::key::IndexKey;

/// Small, since each shard has one that is not full.
const PAGE_ENTRIES: usize = 128;

#[derive(Default)]
pub(super) struct Shard {
    table: HashTable<u32>,
    pages: Vec<Box<[Entry]>>,
    /// The first of the free slots, which are linked.
    free: Option<u32>,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn reserve(&mut self, entries: usize) {
        let pages = &self.pages;
        let more = entries.saturating_sub(self.table.len());
        self.table.reserve(more, |&slot| hash_at(pages, slot));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.allocation_size()
            + self.pages.len() * PAGE_ENTRIES * size_of::<Entry>()
            + self.pages.capacity() * size_of::<Box<[Entry]>>()
    }

    pub(super) fn find(&self, key: IndexKey) -> Option<&Entry> {
        let slot = self.slot(key)?;
        Some(&self.pages[page(slot)][line(slot)])
    }

    pub(super) fn find_mut(&mut self, key: IndexKey) -> Option<&mut Entry> {
        let slot = self.slot(key)?;
        Some(&mut self.pages[page(slot)][line(slot)])
    }

    pub(super) fn find_or_insert(&mut self, key: IndexKey) -> &mut Entry {
        let Self { table, pages, free } = self;
        let found = table.entry(
            hash(key),
            |&slot| pages[page(slot)][line(slot)].key == key.0,
            |&slot| hash_at(pages, slot),
        );
        let slot = match found {
            TableEntry::Occupied(found) => *found.get(),
            TableEntry::Vacant(vacant) => {
                let slot = take_free(pages, free);
                pages[page(slot)][line(slot)].key = key.0;
                vacant.insert(slot);
                slot
            }
        };
        &mut pages[page(slot)][line(slot)]
    }

    pub(super) fn remove(&mut self, key: IndexKey) {
        let pages = &self.pages;
        let is_it = |&slot: &u32| pages[page(slot)][line(slot)].key == key.0;
        if let Ok(found) = self.table.find_entry(hash(key), is_it) {
            let (slot, _) = found.remove();
            link_free(&mut self.pages, &mut self.free, slot);
        }
    }

    pub(super) fn retain(&mut self, is_kept: &mut impl FnMut(&Entry) -> bool) {
        let mut released = Vec::new();
        let pages = &self.pages;
        self.table.retain(|&mut slot| {
            let is_kept = is_kept(&pages[page(slot)][line(slot)]);
            if !is_kept {
                released.push(slot);
            }
            is_kept
        });
        for slot in released {
            link_free(&mut self.pages, &mut self.free, slot);
        }
    }

    fn slot(&self, key: IndexKey) -> Option<u32> {
        let is_it = |&slot: &u32| self.pages[page(slot)][line(slot)].key == key.0;
        self.table.find(hash(key), is_it).copied()
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

fn hash_at(pages: &[Box<[Entry]>], slot: u32) -> u64 {
    hash(IndexKey(pages[page(slot)][line(slot)].key))
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
    fn slots_are_used_again() {
        let mut shard = Shard::default();
        for round in 0..10 {
            for number in 0..100 {
                shard.find_or_insert(key(round * 100 + number));
            }
            for number in 0..100 {
                shard.remove(key(round * 100 + number));
            }
        }
        assert_eq!((shard.len(), shard.pages.len()), (0, 1));
    }
}
