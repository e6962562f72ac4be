//! What is loaded into the index, gathered first and put in shard by shard.
//!
//! One look-up after the other goes all over the memory of a large index, and most of its time is
//! spent waiting for that. A shard of a million chunks fits into a core's cache; and shards share
//! nothing, so two threads put them in.

use std::thread;

use super::{ChunkAt, Index, RecipeAt, SHARDS, Shard, shard_of};
use crate::key::IndexKey;

/// What is gathered before it is put in: 6 to 12 MB.
const FULL: usize = 1 << 19;

/// Fewer are not worth a thread.
const THREAD_PUTS_MIN: usize = 1 << 14;

/// Something to put into the index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Put {
    /// A chunk lies here.
    Chunk(ChunkAt),
    /// What has this opening begins here.
    Opening(RecipeAt),
    /// A chunk, if it is known, was seen here.
    Place(RecipeAt),
}

/// The same with its key, as short as entries have it.
#[derive(Clone, Copy)]
struct Waiting {
    key: IndexKey,
    what: What,
    at: [u8; 6],
}

#[derive(Clone, Copy)]
enum What {
    Chunk,
    Opening,
    Place,
}

/// What is to be put into an index. Nothing is found before [`Index::put`].
pub(crate) struct Batch {
    /// By shard, each in the order in which it is to be put in.
    shards: Vec<Vec<Waiting>>,
    len: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            shards: vec![Vec::new(); SHARDS as usize],
            len: 0,
        }
    }

    pub(crate) fn push(&mut self, key: IndexKey, put: Put) {
        let (what, at) = match put {
            Put::Chunk(at) => (What::Chunk, at.to_bytes()),
            Put::Opening(at) => (What::Opening, at.to_bytes()),
            Put::Place(at) => (What::Place, at.to_bytes()),
        };
        self.shards[shard_of(key)].push(Waiting { key, what, at });
        self.len += 1;
    }

    /// Whether it is time to put it in: it would only take more memory.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= FULL
    }
}

impl Index {
    /// Puts in all that a batch holds, and leaves it empty. A chunk that lies somewhere already
    /// lies elsewhere from now on if it `moves` from the first to the second. Gives the number of
    /// chunks that are new.
    pub(crate) fn put(
        &mut self,
        batch: &mut Batch,
        moves: impl Fn(ChunkAt, ChunkAt) -> bool + Sync,
    ) -> u64 {
        let all = |shards: &mut [Shard], waiting: &mut [Vec<Waiting>]| {
            let of_shards = shards.iter_mut().zip(waiting);
            of_shards
                .map(|(shard, waiting)| shard.put(waiting, &moves))
                .sum::<u64>()
        };
        let len = std::mem::take(&mut batch.len);
        let half = match len >= THREAD_PUTS_MIN {
            true => SHARDS as usize / 2,
            false => 0,
        };
        let (some, others) = self.shards.split_at_mut(half);
        let (puts_of_some, puts_of_others) = batch.shards.split_at_mut(half);
        if half == 0 {
            return all(others, puts_of_others);
        }
        thread::scope(|scope| {
            let beside = scope.spawn(|| all(some, puts_of_some));
            let chunks = all(others, puts_of_others);
            chunks + beside.join().expect("it does not panic")
        })
    }
}

impl Shard {
    fn put(
        &mut self,
        waiting: &mut Vec<Waiting>,
        moves: &impl Fn(ChunkAt, ChunkAt) -> bool,
    ) -> u64 {
        let mut chunks = 0;
        for Waiting { key, what, at } in waiting.drain(..) {
            match what {
                What::Chunk => {
                    let entry = self.find_or_insert(key);
                    let (from, to) = (entry.at(), ChunkAt::of_bytes(at));
                    chunks += u64::from(from.is_none());
                    if from.is_none_or(|from| moves(from, to)) {
                        entry.set_at(to);
                    }
                }
                What::Opening => self.find_or_insert(key).push_place(RecipeAt::of_bytes(at)),
                What::Place => {
                    if let Some(entry) = self.find_mut(key) {
                        entry.push_place(RecipeAt::of_bytes(at));
                    }
                }
            }
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Entry, tests::key};
    use proptest::{collection::vec, prelude::*};

    fn put() -> impl Strategy<Value = Put> {
        let place = (0_u32..9, 0_u16..9, 0_u8..9).prop_map(|(segment, piece, entry)| RecipeAt {
            segment,
            piece,
            entry,
        });
        prop_oneof![
            (0_u32..9, 0_u32..9)
                .prop_map(|(segment, record)| Put::Chunk(ChunkAt { segment, record })),
            place.clone().prop_map(Put::Opening),
            place.prop_map(Put::Place),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_batch_is_as_one_after_the_other(
            puts in vec((0_u64..40, put()), 0..300),
            repeated in prop_oneof![Just(1_usize), Just(THREAD_PUTS_MIN / 100)],
        ) {
            let mut batch = Batch::new();
            let (mut together, mut alone) = (Index::new(), Index::new());
            let mut chunks = 0;
            let moves = |from: ChunkAt, to: ChunkAt| from.segment != 3 || to.segment == 3;
            for (number, put) in puts.iter().copied().cycle().take(puts.len() * repeated) {
                batch.push(key(number), put);
                match put {
                    Put::Chunk(at) => {
                        let entry = alone.find_or_insert(key(number));
                        chunks += u64::from(entry.at().is_none());
                        if entry.at().is_none_or(|from| moves(from, at)) {
                            entry.set_at(at);
                        }
                    }
                    Put::Opening(at) => alone.find_or_insert(key(number)).push_place(at),
                    Put::Place(at) => {
                        if alone.find(key(number)).is_some() {
                            alone.find_or_insert(key(number)).push_place(at);
                        }
                    }
                }
            }
            prop_assert_eq!(together.put(&mut batch, moves), chunks);
            prop_assert_eq!(together.put(&mut batch, moves), 0, "it is empty");
            prop_assert_eq!(together.len(), alone.len());
            for number in 0..40 {
                let said = |entry: Option<&Entry>| {
                    entry.map(|entry| (entry.at(), entry.places().collect::<Vec<_>>()))
                };
                prop_assert_eq!(said(together.find(key(number))), said(alone.find(key(number))));
            }
        }
    }
}
