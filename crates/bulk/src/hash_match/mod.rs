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

mod shard;

use refrain_codec::chunk::hash::ChunkDigest;

pub(crate) use shard::Shard;

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
}
