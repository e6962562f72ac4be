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

/// Something to put into the index, as short as entries have it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Put {
    /// A chunk lies at this [`ChunkAt`].
    Chunk([u8; 6]),
    /// What has this opening begins at this [`RecipeAt`].
    Opening([u8; 6]),
    /// A chunk, if it is known, was seen at this [`RecipeAt`].
    Place([u8; 6]),
}

/// Something to put in, by its key.
type Waiting = (IndexKey, Put);

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
        self.shards[shard_of(key)].push((key, put));
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
        if std::mem::take(&mut batch.len) < THREAD_PUTS_MIN {
            return all(&mut self.shards, &mut batch.shards);
        }
        let half = SHARDS as usize / 2;
        let (some, others) = self.shards.split_at_mut(half);
        let (puts_of_some, puts_of_others) = batch.shards.split_at_mut(half);
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
        for (key, put) in waiting.drain(..) {
            match put {
                Put::Chunk(at) => {
                    let entry = self.find_or_insert(key);
                    let (from, to) = (entry.at(), ChunkAt::of_bytes(at));
                    chunks += u64::from(from.is_none());
                    if from.is_none_or(|from| moves(from, to)) {
                        entry.set_at(to);
                    }
                }
                Put::Opening(at) => self.find_or_insert(key).push_place(RecipeAt::of_bytes(at)),
                Put::Place(at) => {
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
        let place = (0_u32..9, 0_u16..9, 0_u8..9).prop_map(|(segment, piece, entry)| {
            let at = RecipeAt {
                segment,
                piece,
                entry,
            };
            at.to_bytes()
        });
        prop_oneof![
            (0_u32..9, 0_u32..9)
                .prop_map(|(segment, record)| Put::Chunk(ChunkAt { segment, record }.to_bytes())),
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
                           let at = ChunkAt::of_bytes(at);
                           let entry = alone.find_or_insert(key(number));
                           chunks += u64::from(entry.at().is_none());
                           if entry.at().is_none_or(|from| moves(from, at)) {
                               entry.set_at(at);
                           }
                       }
                       Put::Opening(at) => {
    let at = RecipeAt::of_bytes(at);
    alone.find_or_insert(key(number)).push_place(at); },
                       Put::Place(at) => {
    let at = RecipeAt::of_bytes(at);
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
