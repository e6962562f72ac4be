//! A shard of the cache: the chunks that it holds, by hash, the least recently seen of which goes
//! when there is no more room.
//!
//! ```text
//! table: hash ─▶ entry        entries: hash, bytes, the entry before and the one after in
//!                             the order in which chunks were last seen
//! ```

use hashbrown::HashTable;
use refrain_codec::chunk::hash::{ChunkDigest, ChunkHash};

/// What an entry is linked to at the ends of the order.
const NONE: u32 = u32::MAX;

/// A chunk that is in the shard.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: ChunkHash,
    bytes: u32,
    /// Seen next after this one.
    newer: u32,
    /// Seen last before this one.
    older: u32,
}

/// The chunks of a shard.
#[derive(Debug)]
pub(crate) struct Shard {
    /// bytes <= bytes_max
    bytes_max: u64,
    /// What a chunk counts for at least, so that short ones are not without number.
    bytes_min: u32,
    bytes: u64,
    table: HashTable<u32>,
    entries: Vec<Entry>,
    /// Entries that are in use no more.
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Chunks that had to go, or found no room.
    forgotten: u64,
}

impl Shard {
    /// Empty, with room for `bytes_max` of chunks, none of which counts for less than `bytes_min`.
    pub(crate) fn new(bytes_max: u64, bytes_min: u32) -> Self {
        let countable = u64::from(bytes_min) * u64::from(NONE);
        Self {
            bytes_max: bytes_max.min(countable),
            bytes_min,
            bytes: 0,
            table: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            forgotten: 0,
        }
    }

    /// Chunks that it does not know any more, as often as it forgot them.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether the chunk is there; from now on it is, as the latest.
    pub(crate) fn is_repeat(&mut self, digest: &ChunkDigest, bytes: u32) -> bool {
        let hash = &digest.hash();
        let entries = &self.entries;
        let is_it = |&entry: &u32| entries[entry as usize].hash == *hash;
        if let Some(&entry) = self.table.find(table_hash(hash), is_it) {
            if entry != self.newest {
                self.unlink(entry);
                self.link_newest(entry);
            }
            return true;
        }
        self.insert(hash, bytes);
        false
    }

    fn insert(&mut self, hash: &ChunkHash, bytes: u32) {
        let counted = u64::from(bytes.max(self.bytes_min));
        if counted > self.bytes_max {
            self.forgotten += 1;
            return;
        }
        while self.bytes + counted > self.bytes_max {
            self.evict();
        }
        self.bytes += counted;
        let entry = Entry {
            hash: *hash,
            bytes,
            newer: NONE,
            older: NONE,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        let hash_of = |&entry: &u32| table_hash(&entries[entry as usize].hash);
        self.table.insert_unique(table_hash(hash), number, hash_of);
        self.link_newest(number);
    }

    /// Drops the least recently seen chunk, of which there is one.
    fn evict(&mut self) {
        let number = self.oldest;
        let Entry { hash, bytes, .. } = self.entries[number as usize];
        let found = self
            .table
            .find_entry(table_hash(&hash), |&entry| entry == number);
        found.expect("what is linked is in the table").remove();
        self.bytes -= u64::from(bytes.max(self.bytes_min));
        self.unlink(number);
        self.free.push(number);
        self.forgotten += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Entry { newer, older, .. } = self.entries[number as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, number: u32) {
        let before = std::mem::replace(&mut self.newest, number);
        match before {
            NONE => self.oldest = number,
            before => self.entries[before as usize].newer = number,
        }
        let entry = &mut self.entries[number as usize];
        entry.newer = NONE;
        entry.older = before;
    }
}

/// Of the bytes that do not choose the shard.
fn table_hash(ChunkHash(hash): &ChunkHash) -> u64 {
    u64::from_le_bytes(*hash[1..].first_chunk().expect("19 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn digest(number: u8) -> ChunkDigest {
        ChunkDigest([number; 32])
    }

    /// What a shard is to do, by a list from the least recently seen on.
    struct Obvious {
        seen: Vec<(ChunkDigest, u64)>,
        bytes_max: u64,
        forgotten: u64,
    }

    impl Obvious {
        fn is_repeat(&mut self, digest: &ChunkDigest, counted: u64) -> bool {
            if let Some(place) = self.seen.iter().position(|(seen, _)| seen == digest) {
                let seen = self.seen.remove(place);
                self.seen.push(seen);
                return true;
            }
            if counted <= self.bytes_max {
                while self.seen.iter().map(|(_, bytes)| bytes).sum::<u64>() + counted
                    > self.bytes_max
                {
                    self.seen.remove(0);
                    self.forgotten += 1;
                }
                self.seen.push((*digest, counted));
            } else {
                self.forgotten += 1;
            }
            false
        }
    }

    proptest! {
        #[test]
        fn the_least_recently_seen_goes_first(
            chunks in vec(0_u8..40, 0..500),
            bytes_max in 0_u64..600,
        ) {
            let mut shard = Shard::new(bytes_max, 10);
            let mut obvious = Obvious { seen: Vec::new(), bytes_max, forgotten: 0 };
            for number in chunks {
                let bytes = u32::from(number) * 7 % 50;
                prop_assert_eq!(
                    shard.is_repeat(&digest(number), bytes),
                    obvious.is_repeat(&digest(number), bytes.max(10).into())
                );
                prop_assert!(shard.bytes <= bytes_max);
                prop_assert_eq!(shard.forgotten(), obvious.forgotten);
                prop_assert_eq!(shard.table.len(), obvious.seen.len());
                prop_assert!(shard.entries.len() as u64 * 10 <= bytes_max);
            }
        }
    }

    #[test]
    fn a_chunk_longer_than_the_shard_is_not_kept_and_evicts_nothing() {
        let mut shard = Shard::new(100, 1);
        assert!(!shard.is_repeat(&digest(1), 60));
        assert!(!shard.is_repeat(&digest(2), 101));
        assert!(!shard.is_repeat(&digest(2), 101));
        assert!(shard.is_repeat(&digest(1), 60));
    }
}
