//! The store on disk against the one in memory: the same operations, the same answers, however
//! often it is opened again.

use proptest::prelude::*;
use refrain_store::{ChunkSource, ChunkStore, MemoryStore, OpeningKey, RecipeId};

use crate::{
    common::{chunk, chunks, digest, open, read_all, realm},
    memory_folder::MemoryFolder,
};

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

/// Whether a recipe ends with these chunks, behind one with this number.
fn follows(recipe: &[u32], number: u32, chain: &[Vec<u8>]) -> bool {
    let Some(behind) = recipe.len().checked_sub(chain.len() + 1) else {
        return false;
    };
    recipe[behind] == number && chunks(recipe[behind + 1..].iter().copied()) == chain
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn disk_and_memory_answer_alike(operations in prop::collection::vec(operation(), 1..60)) {
        let folder = MemoryFolder::new();
        let mut disk = open(&folder, 100);
        let mut memory = MemoryStore::new(100 << 20);
        let mut flows: Vec<(RecipeId, RecipeId, u8, usize)> = Vec::new();
        // By realm, the chunks of each flow, and whether two were there at the same time.
        let mut recipes: [Vec<Vec<u32>>; 3] = Default::default();
        let mut have_met = [false; 3];
        for operation in operations {
            match operation {
                Operation::Begin { realm: r, key } if flows.len() < 4 => {
                    have_met[usize::from(r)] |= flows.iter().any(|&(.., other, _)| other == r);
                    let (key, recipes) = (key.map(OpeningKey), &mut recipes[usize::from(r)]);
                    let (on_disk, in_memory) =
                        (disk.begin(realm(r), key), memory.begin(realm(r), key));
                    flows.push((on_disk, in_memory, r, recipes.len()));
                    recipes.push(Vec::new());
                }
                Operation::Append { flow, first, count } if flow < flows.len() => {
                    let (on_disk, in_memory, r, recipe) = flows[flow];
                    recipes[usize::from(r)][recipe].extend(first..first + count);
                    for number in first..first + count {
                        let bytes = chunk(number);
                        let digest = digest(&bytes);
                        let appended = disk.append(on_disk, &digest, &bytes).expect("disk");
                        let expected = memory.append(in_memory, &digest, &bytes).expect("memory");
                        prop_assert_eq!(appended, expected);
                    }
                }
                Operation::End { flow } if flow < flows.len() => {
                    let (on_disk, in_memory, ..) = flows.swap_remove(flow);
                    disk.end(on_disk).expect("disk");
                    memory.end(in_memory).expect("memory");
                }
                Operation::Sync => disk.sync().expect("synced"),
                Operation::Reopen => {
                    for (_, in_memory, ..) in flows.drain(..) {
                        memory.end(in_memory).expect("memory");
                    }
                    disk.close().expect("closed");
                    disk = open(&folder, 100);
                }
                Operation::Compare { realm: r, number } => {
                    let (recipes, have_met) =
                        (&recipes[usize::from(r)], have_met[usize::from(r)]);
                    let (r, digest) = (realm(r), digest(&chunk(number)));
                    prop_assert_eq!(disk.contains(r, &digest), memory.contains(r, &digest));
                    let places = disk.places_after(r, &digest);
                    let expected = memory.places_after(r, &digest);
                    prop_assert_eq!(places.len(), expected.len());
                    let read: Vec<_> =
                        places.iter().map(|&place| read_all(&mut disk, place)).collect();
                    if !have_met {
                        let wanted = expected.iter().map(|&place| read_all(&mut memory, place));
                        prop_assert!(read.iter().cloned().eq(wanted));
                        continue;
                    }
                    // Which of two flows at the same time was the later is not kept on disk.
                    for chain in read {
                        prop_assert!(recipes.iter().any(|recipe| follows(recipe, number, &chain)));
                    }
                }
                _ => {}
            }
        }
    }
}
