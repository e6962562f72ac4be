//! Matching chunks by their hashes: the *Hash-Match* of HARENS (section III.C).
//!
//! Chunk hashes enter, in the order of the chunks; whether the chunk was there before leaves. The
//! cache is [`SHARDS`] shards, by the hash, each with a table and a least-recently-used order of
//! its own. A thread that matches owns whole shards: no locks, and no result depends on how many
//! threads there are.
//!
//! - Deviation: the paper has as many shards as matchers, so that what is evicted depends on their
//!   number. Here 64 shards have a 64th of the cache each, whoever owns them.
//! - Deviation: SHA-1 there, here what the caller has hashed with; see
//!   [`ChunkHasher`](refrain_codec::chunk::hash::ChunkHasher).

use refrain_codec::chunk::{hash::ChunkDigest, recent::RecentChunks};

/// Shards of the cache.
pub const SHARDS: usize = 64;

/// The shard that has a chunk.
pub(crate) fn shard_of(digest: &ChunkDigest) -> usize {
    usize::from(digest.0[0]) % SHARDS
}

/// Sorts chunks by shard, in order within each: their indices, and where each shard's end.
pub(crate) fn sort_by_shard(
    digests: &[ChunkDigest],
    by_shard: &mut Vec<u32>,
    ends: &mut [usize; SHARDS],
) {
    let mut counts = [0; SHARDS];
    for digest in digests {
        counts[shard_of(digest)] += 1;
    }
    let mut end = 0;
    for (place, count) in ends.iter_mut().zip(counts) {
        *place = end;
        end += count;
    }
    by_shard.clear();
    by_shard.resize(digests.len(), 0);
    for (index, digest) in (0..).zip(digests) {
        let place = &mut ends[shard_of(digest)];
        by_shard[*place] = index;
        *place += 1;
    }
}

/// The chunks of a shard, each with the bytes that it counts for.
#[derive(Debug)]
pub(crate) struct Shard {
    chunks: RecentChunks<u32>,
    /// bytes <= bytes_max
    bytes: u64,
    bytes_max: u64,
    /// What a chunk counts for at least, so that short ones are not without number.
    bytes_min: u32,
    /// Chunks that found no room.
    too_long: u64,
}

impl Shard {
    /// Empty, with room for `bytes_max` of chunks, none of which counts for less than `bytes_min`.
    fn new(bytes_max: u64, bytes_min: u32) -> Self {
        let countable = u64::from(bytes_min) * u64::from(u32::MAX);
        let bytes_max = bytes_max.min(countable);
        // No more fit, since each counts for some bytes: that bounds its memory, too.
        let len_max = bytes_max / u64::from(bytes_min.max(1));
        Self {
            chunks: RecentChunks::new(len_max as usize),
            bytes: 0,
            bytes_max,
            bytes_min,
            too_long: 0,
        }
    }

    /// Chunks that it does not know any more, as often as it forgot them.
    pub(crate) fn forgotten(&self) -> u64 {
        self.chunks.forgotten() + self.too_long
    }

    /// Whether the chunk is there; from now on it is, as the latest.
    pub(crate) fn is_repeat(&mut self, digest: &ChunkDigest, bytes: u32) -> bool {
        let hash = &digest.hash();
        if self.chunks.find(hash).is_some() {
            return true;
        }
        let counted = bytes.max(self.bytes_min);
        let Some(room) = self.bytes_max.checked_sub(counted.into()) else {
            self.too_long += 1;
            return false;
        };
        while self.bytes > room {
            let oldest = self.chunks.forget_oldest();
            self.bytes -= u64::from(oldest.expect("bytes are of chunks"));
        }
        self.bytes += u64::from(counted);
        self.chunks.insert(hash, counted);
        false
    }
}

/// The whole cache, for one thread.
#[derive(Debug)]
pub(crate) struct Shards(Vec<Shard>);

impl Shards {
    /// Empty, for `cache_bytes` of chunks, none of which counts for less than `bytes_min`.
    pub(crate) fn new(cache_bytes: u64, bytes_min: u32) -> Self {
        let shard = || Shard::new(cache_bytes / SHARDS as u64, bytes_min);
        Self(std::iter::repeat_with(shard).take(SHARDS).collect())
    }

    /// Whether the chunk is there; from now on it is, as the latest of its shard.
    pub(crate) fn is_repeat(&mut self, digest: &ChunkDigest, bytes: u32) -> bool {
        self.0[shard_of(digest)].is_repeat(digest, bytes)
    }

    /// Chunks that they do not know any more, as often as they forgot them.
    pub(crate) fn forgotten(&self) -> u64 {
        self.0.iter().map(Shard::forgotten).sum()
    }

    /// Those of each of `owners`, in their order.
    pub(crate) fn dealt(self, owners: usize) -> Vec<Vec<(usize, Shard)>> {
        let mut dealt: Vec<Vec<(usize, Shard)>> = (0..owners).map(|_| Vec::new()).collect();
        for (number, shard) in self.0.into_iter().enumerate() {
            dealt[number % owners].push((number, shard));
        }
        dealt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    proptest! {
        #[test]
        fn chunks_are_sorted_by_shard_and_stay_in_order(firsts in vec(any::<u8>(), 0..300)) {
            let digests: Vec<ChunkDigest> =
                firsts.iter().map(|&first| ChunkDigest([first; 32])).collect();
            let (mut by_shard, mut ends) = (vec![7; 3], [9; SHARDS]);
            sort_by_shard(&digests, &mut by_shard, &mut ends);
            let mut start = 0;
            for (shard, end) in ends.into_iter().enumerate() {
                let mine = (0..).zip(&digests).filter(|(_, digest)| shard_of(digest) == shard);
                prop_assert!(mine.map(|(index, _)| index).eq(by_shard[start..end].iter().copied()));
                start = end;
            }
            prop_assert_eq!(start, digests.len());
        }
    }

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
                let most = bytes_max as usize / 10 * RecentChunks::<u32>::BYTES_PER_CHUNK;
                prop_assert!(shard.chunks.memory_bytes() <= most.max(16 * 44));
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
