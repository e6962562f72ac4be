//! The store on disk against lists of what came: the same answers, however often it is opened
//! again.

use proptest::prelude::*;
use refrain_store::{Appended, ChunkSource, OpeningKey, RecipeId};

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

/// What came behind a chunk each time, in the order of the recipes.
fn behind(recipes: &[Vec<u32>], number: u32) -> Vec<&[u32]> {
    let mut behind = Vec::new();
    for recipe in recipes {
        let here = (0..recipe.len()).filter(|&at| recipe[at] == number);
        behind.extend(here.map(|at| &recipe[at + 1..]));
    }
    behind
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_store_answers_as_lists_do(operations in prop::collection::vec(operation(), 1..60)) {
        let folder = MemoryFolder::new();
        let mut store = open(&folder, 100);
        let mut flows: Vec<(RecipeId, u8, usize)> = Vec::new();
        // By realm, the chunks of each flow, and whether two were there at the same time.
        let mut recipes: [Vec<Vec<u32>>; 3] = Default::default();
        let mut have_met = [false; 3];
        for operation in operations {
            match operation {
                Operation::Begin { realm: r, key } if flows.len() < 4 => {
                    have_met[usize::from(r)] |= flows.iter().any(|&(_, other, _)| other == r);
                    let (key, recipes) = (key.map(OpeningKey), &mut recipes[usize::from(r)]);
                    flows.push((store.begin(realm(r), key), r, recipes.len()));
                    recipes.push(Vec::new());
                }
                Operation::Append { flow, first, count } if flow < flows.len() => {
                    let (id, r, recipe) = flows[flow];
                    let recipes = &mut recipes[usize::from(r)];
                    for number in first..first + count {
                        let expected = match recipes.iter().flatten().any(|&it| it == number) {
                            true => Appended::Known,
                            false => Appended::Stored,
                        };
                        recipes[recipe].push(number);
                        let bytes = chunk(number);
                        let appended = store.append(id, &digest(&bytes), &bytes).expect("disk");
                        prop_assert_eq!(appended, expected);
                    }
                }
                Operation::End { flow } if flow < flows.len() => {
                    store.end(flows.swap_remove(flow).0).expect("disk");
                }
                Operation::Sync => store.sync().expect("synced"),
                Operation::Reopen => {
                    flows.clear();
                    store.close().expect("closed");
                    store = open(&folder, 100);
                }
                Operation::Compare { realm: r, number } => {
                    let behind = behind(&recipes[usize::from(r)], number);
                    let have_met = have_met[usize::from(r)];
                    let (r, digest) = (realm(r), digest(&chunk(number)));
                    prop_assert_eq!(store.contains(r, &digest), !behind.is_empty());
                    let places = store.places_after(r, &digest);
                    prop_assert_eq!(places.len(), behind.len().min(2));
                    let read = places.iter().map(|&place| read_all(&mut store, place));
                    let behind = behind.iter().rev().map(|rest| chunks(rest.iter().copied()));
                    if !have_met {
                        prop_assert!(read.eq(behind.take(2)));
                        continue;
                    }
                    // Which of two flows at the same time was the later is not kept on disk.
                    let behind: Vec<_> = behind.collect();
                    for chain in read {
                        prop_assert!(behind.contains(&chain));
                    }
                }
                _ => {}
            }
        }
    }
}
