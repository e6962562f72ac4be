use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::filter::Filter;
use super::*;

type Name = [u8; NAME_BYTES];

fn name(number: u64) -> Name {
    let digest = blake3::hash(&number.to_le_bytes());
    *digest.as_bytes().first_chunk().unwrap()
}

/// An index that spills every page, and all names from 0 up to `count` in it.
fn spilled(count: u64, budget_bytes: usize) -> (tempfile::TempDir, NameIndex) {
    let folder = tempfile::tempdir().unwrap();
    let mut index = NameIndex::new(budget_bytes, folder.path());
    for number in 0..count {
        assert_eq!(
            index.find_or_insert(&name(number)).unwrap(),
            Numbered::New(number)
        );
    }
    (folder, index)
}

/// What a backup brings: new names, and runs of those that came.
#[derive(Clone, Debug)]
enum Step {
    New {
        count: u16,
        alike: bool,
    },
    Again {
        from: prop::sample::Index,
        count: u16,
        stride: u8,
    },
    Unknown {
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let again = (any::<prop::sample::Index>(), 1..700u16, 1..4u8);
    prop_oneof![
        3 => (1..900u16, prop::bool::weighted(0.2)).prop_map(|(count, alike)| Step::New { count, alike }),
        3 => again.prop_map(|(from, count, stride)| Step::Again { from, count, stride }),
        1 => any::<u64>().prop_map(|seed| Step::Unknown { seed }),
    ]
}

/// Names of which five in a row share their prefix: only full names tell them apart.
fn alike(number: u64) -> Name {
    let mut alike = name(number);
    alike[..8].copy_from_slice(&name(number / 5)[..8]);
    alike
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn an_index_answers_as_a_map_does_and_keeps_to_its_budget(
        steps in prop::collection::vec(step(), 1..24),
        budget_bytes in prop_oneof![Just(0usize), 0..100_000usize, 100_000..1_000_000usize],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut index = NameIndex::new(budget_bytes, folder.path());
        let mut model = HashMap::new();
        let mut order: Vec<Name> = Vec::new();
        for step in steps {
            match step {
                Step::New { count, alike: same } => for _ in 0..count {
                    let number = order.len() as u64;
                    let name = if same { alike(number) } else { name(number) };
                    prop_assert_eq!(index.find(&name).unwrap(), None);
                    prop_assert_eq!(index.find_or_insert(&name).unwrap(), Numbered::New(number));
                    prop_assert!(index.memory_bytes() <= budget_bytes + BEYOND_BUDGET_BYTES);
                    model.insert(name, number);
                    order.push(name);
                },
                Step::Again { from, count, stride } if !order.is_empty() => {
                    let run = order[from.index(order.len())..].iter();
                    for name in run.step_by(stride.into()).take(count.into()) {
                        prop_assert_eq!(index.find(name).unwrap(), Some(model[name]));
                        let known = Numbered::Known(model[name]);
                        prop_assert_eq!(index.find_or_insert(name).unwrap(), known);
                    }
                }
                Step::Again { .. } => {}
                Step::Unknown { seed } => {
                    let near = order.last().map(|name| { let mut near = *name; near[19] ^= 1; near });
                    for name in [near, Some(name(!seed))].into_iter().flatten() {
                        prop_assert_eq!(index.find(&name).unwrap(), model.get(&name).copied());
                    }
                }
            }
        }
        for name in order.iter().rev() {
            prop_assert_eq!(index.find(name).unwrap(), Some(model[name]));
        }
        prop_assert_eq!(index.len(), model.len() as u64);
    }

    #[test]
    fn a_filter_holds_what_was_put_in(prefixes in prop::collection::vec(any::<u64>(), 1..300), bytes in 0..400usize) {
        let mut filter = Filter::new(bytes);
        prefixes.iter().for_each(|prefix| filter.insert(*prefix));
        prop_assert!(prefixes.iter().all(|prefix| filter.may_hold(*prefix)));
        prop_assert!(filter.memory_bytes() <= bytes.max(32));
    }
}

#[test]
fn runs_are_merged_so_that_few_are_searched() {
    let (_folder, index) = spilled(204 * 300, 0);
    let tiers: Vec<_> = index.runs.iter().map(|run| run.tier).collect();
    // 299 pages were spilled: 4 * 64 + 2 * 16 + 2 * 4 + 3 of them in tiers.
    assert_eq!(tiers, [4, 2, 2, 1, 1, 0, 0, 0]);
    assert_eq!(index.runs.iter().map(Run::entries).sum::<u64>(), 204 * 299);
}

#[test]
fn names_that_share_a_prefix_over_many_pages_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = NameIndex::new(4096, folder.path());
    for number in 0..3000 {
        let mut name = alike(number);
        name[..8].fill(5);
        assert_eq!(index.find_or_insert(&name).unwrap(), Numbered::New(number));
    }
    for number in (0..3000).rev().step_by(97) {
        let mut name = alike(number);
        name[..8].fill(5);
        assert_eq!(index.find(&name).unwrap(), Some(number));
        name[19] ^= 1;
        assert_eq!(index.find(&name).unwrap(), None);
    }
}

#[test]
fn millions_of_names_keep_to_a_budget_of_64_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = NameIndex::new(64 << 20, folder.path());
    let mut most = 0;
    for number in 0..5_000_000 {
        assert_eq!(
            index.find_or_insert(&name(number)).unwrap(),
            Numbered::New(number)
        );
        most = most.max(index.memory_bytes());
    }
    assert!(most <= (64 << 20) + BEYOND_BUDGET_BYTES, "{most} bytes");
    assert!(index.runs.len() > 1, "some were spilled");
    assert!(index.runs.iter().all(|run| run.filter.is_some()));
    for number in (0..5_000_000).step_by(999) {
        for number in number..(number + 20).min(5_000_000) {
            assert_eq!(index.find(&name(number)).unwrap(), Some(number));
        }
    }
}

#[test]
fn the_longest_runs_give_up_their_filters_first() {
    // Half of the budget is 64 KiB, in which 52,000 names have ten bits each.
    let (_folder, index) = spilled(200_000, 128 << 10);
    let without = |run: &Run| run.filter.is_none();
    let longest = index.runs.iter().max_by_key(|run| run.entries()).unwrap();
    assert!(without(longest), "{longest:?}");
    assert!(!without(index.runs.last().unwrap()));
    let held: usize = index.runs.iter().map(Run::filter_bytes).sum();
    assert!(held <= 64 << 10);
}

#[test]
fn pages_of_runs_grow_before_fences_outgrow_their_part_of_the_budget() {
    assert_eq!(run_page_bytes(64 << 20, 20_000_000), PAGE_BYTES);
    for (names, budget_bytes) in [(1_000_000_000, 64 << 20), (100_000_000, 16 << 20)] {
        let page_bytes = run_page_bytes(budget_bytes, names);
        let fences = names as usize / run::entries_per_page(page_bytes) * run::FENCE_BYTES;
        assert!(fences <= budget_bytes / 24, "{fences} bytes");
    }
    let least = 1_000_000_000 / run::entries_per_page(run_page_bytes(0, 1_000_000_000));
    assert!(least * run::FENCE_BYTES * 2 < BEYOND_BUDGET_BYTES * 3 / 2);
}

/// Puts files without a byte in the place of all runs: whoever searches one fails.
fn without_runs(index: &mut NameIndex) {
    for run in &mut index.runs {
        run.file = tempfile::tempfile().unwrap();
    }
}

#[test]
fn most_new_names_are_answered_without_the_disk() {
    let (_folder, mut index) = spilled(60_000, 256 << 10);
    without_runs(&mut index);
    let read = (60_000..70_000).filter(|number| index.find(&name(*number)).is_err());
    let read = read.count();
    assert!(read <= 500, "{read} of 10000");
}

#[test]
fn a_hit_brings_its_neighbours_in_any_order() {
    let (_folder, mut index) = spilled(60_000, 256 << 10);
    assert_eq!(
        index.find(&name(204 * 7 + 100)).unwrap(),
        Some(204 * 7 + 100)
    );
    without_runs(&mut index);
    for number in (204 * 7..204 * 8).chain((204 * 7..204 * 8).rev()) {
        assert_eq!(index.find(&name(number)).unwrap(), Some(number));
    }
    assert!(matches!(
        index.find(&name(204 * 9)),
        Err(IndexError::Read { .. })
    ));
}

#[test]
fn the_folder_is_touched_by_nothing_that_fits_and_left_as_it_was_by_what_does_not() {
    let nowhere = Path::new("/nonexistent/folder");
    let mut index = NameIndex::new(1 << 20, nowhere);
    let failed = (0..100_000).find_map(|number| index.find_or_insert(&name(number)).err());
    assert!(index.is_empty() || index.failed);
    let Some(IndexError::Create { folder, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(folder, nowhere);
    // An answer now could be wrong.
    assert!(matches!(index.find(&name(0)), Err(IndexError::Failed)));
    assert!(matches!(
        index.find_or_insert(&name(0)),
        Err(IndexError::Failed)
    ));

    let mut index = NameIndex::new(1 << 20, nowhere);
    for number in 0..20_000 {
        assert_eq!(
            index.find_or_insert(&name(number)).unwrap(),
            Numbered::New(number)
        );
    }

    let (folder, index) = spilled(10_000, 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    drop(index);
}

fn damage(file: &File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn a_damaged_page_is_an_error_wherever_a_bit_turns() {
    let count = 204 * 16;
    for at in [0, 7, 8, 12, 1000, 4080, 4088, 4095] {
        let (_folder, mut index) = spilled(count, 4096);
        damage(index.names.as_ref().unwrap(), at);
        for number in 0..204 {
            let damaged = index.find(&name(number));
            assert!(
                matches!(damaged, Err(IndexError::Damaged { page: 0, .. })),
                "{damaged:?}"
            );
        }
        assert_eq!(index.find(&name(204)).unwrap(), Some(204));

        let (_folder, mut index) = spilled(count, 4096);
        index.runs.iter().for_each(|run| damage(&run.file, at));
        let errors = (0..count).filter(|number| match index.find(&name(*number)) {
            Ok(found) => {
                assert_eq!(found, Some(*number));
                false
            }
            Err(error) => matches!(error, IndexError::Damaged { page: 0, .. }),
        });
        assert!(errors.count() > 0);
        // A merge reads them too.
        let merged =
            (count..3 * count).find_map(|number| index.find_or_insert(&name(number)).err());
        assert!(
            matches!(merged, Some(IndexError::Damaged { .. })),
            "{merged:?}"
        );
    }
}

#[test]
fn a_page_in_the_place_of_another_is_an_error() {
    let (_folder, mut index) = spilled(204 * 10, 0);
    let file = index.names.as_ref().unwrap();
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, 0).unwrap();
    file.write_all_at(&page, PAGE_BYTES as u64).unwrap();
    assert!(matches!(
        index.find(&name(204)),
        Err(IndexError::Damaged { page: 1, .. })
    ));
}

const LIMITED: &str = "REFRAIN_TEST_INDEX_ON_A_FULL_DISK";

/// Files of the process that runs this again may have 512 KiB.
#[test]
fn a_full_disk_is_a_clear_error() {
    if std::env::var_os(LIMITED).is_some() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = NameIndex::new(0, folder.path());
        let failed = (0..100_000).find_map(|number| index.find_or_insert(&name(number)).err());
        let Some(error @ IndexError::Full { names, .. }) = &failed else {
            panic!("{failed:?}");
        };
        assert!(error.to_string().contains("has no room"));
        // 128 pages of names fit.
        assert_eq!(*names, 129 * 204);
        assert!(matches!(index.find(&name(0)), Err(IndexError::Failed)));
        return;
    }
    let program = std::env::current_exe().unwrap();
    let ran = Command::new("bash")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 512; exec \"$0\" --exact --nocapture \"$1\"",
        ])
        .arg(program)
        .arg("index::tests::a_full_disk_is_a_clear_error")
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
}
