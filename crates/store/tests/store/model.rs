//! The store on disk against the one in memory: the same operations, the same answers, however
//! often it is opened again.

use proptest::prelude::*;
use refrain_store::{
    ChunkSource, ChunkStore, MemoryStore, OpeningKey, RecipeId, folder::MemoryFolder,
};

use crate::common::{chunk, digest, open, read_all, realm};

#[derive(Clone, Debug)]
enum Operation {
    Begin {
        realm: u8,
        key: Option<u64>,
    },
    /// Chunks of consecutive numbers.
    Append {
        flow: usize,
        first: u32,
        count: u32,
    },
    End {
        flow: usize,
    },
    Sync,
    Reopen,
    Compare {
        realm: u8,
        number: u32,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..3_u8, prop::option::of(0..3_u64))
            .prop_map(|(realm, key)| Operation::Begin { realm, key }),
        8 => (0..4_usize, 0..60_u32, 1..40_u32)
            .prop_map(|(flow, first, count)| Operation::Append { flow, first, count }),
        2 => (0..4_usize).prop_map(|flow| Operation::End { flow }),
        1 => Just(Operation::Sync),
        1 => Just(Operation::Reopen),
        4 => (0..3_u8, 0..100_u32).prop_map(|(realm, number)| Operation::Compare { realm, number }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn disk_and_memory_answer_alike(operations in prop::collection::vec(operation(), 1..60)) {
        let folder = MemoryFolder::new();
        let mut disk = open(&folder, 100);
        let mut memory = MemoryStore::new(100 << 20);
        let mut flows: Vec<(RecipeId, RecipeId)> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Begin { realm: number, key } if flows.len() < 4 => {
                    let key = key.map(OpeningKey);
                    flows.push((disk.begin(realm(number), key), memory.begin(realm(number), key)));
                }
                Operation::Append { flow, first, count } if flow < flows.len() => {
                    let (on_disk, in_memory) = flows[flow];
                    for number in first..first + count {
                        let bytes = chunk(number);
                        let digest = digest(&bytes);
                        let appended = disk.append(on_disk, &digest, &bytes).expect("disk");
                        let expected = memory.append(in_memory, &digest, &bytes).expect("memory");
                        prop_assert_eq!(appended, expected);
                    }
                }
                Operation::End { flow } if flow < flows.len() => {
                    let (on_disk, in_memory) = flows.swap_remove(flow);
                    disk.end(on_disk).expect("disk");
                    memory.end(in_memory).expect("memory");
                }
                Operation::Sync => disk.sync().expect("synced"),
                Operation::Reopen => {
                    for (_, in_memory) in flows.drain(..) {
                        memory.end(in_memory).expect("memory");
                    }
                    disk.close().expect("closed");
                    disk = open(&folder, 100);
                }
                Operation::Compare { realm: r, number } => {
                    let (r, digest) = (realm(r), digest(&chunk(number)));
                    prop_assert_eq!(disk.contains(r, &digest), memory.contains(r, &digest));
                    let places = disk.places_after(r, &digest);
                    let expected = memory.places_after(r, &digest);
                    prop_assert_eq!(places.len(), expected.len());
                    // Which of two flows at the same time was the later is not kept on disk.
                    let sorted = |mut chains: Vec<Vec<Vec<u8>>>| { chains.sort(); chains };
                    let read = places.iter().map(|&place| read_all(&mut disk, place)).collect();
                    let wanted = expected.iter().map(|&place| read_all(&mut memory, place));
                    prop_assert_eq!(sorted(read), sorted(wanted.collect()));
                }
                _ => {}
            }
        }
    }
}
