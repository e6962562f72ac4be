//! What holds for all algorithms alike.

use super::*;
use crate::reference;
use alloc::string::ToString;
use proptest::{collection::vec, prelude::*, sample::select};

const PERIODS: [usize; 5] = [32, 64, 128, 256, 512];
const WINDOWS: [usize; 5] = [12, 31, 32, 33, 64];

fn period(bytes: usize) -> SamplingPeriod {
    SamplingPeriod::new(bytes).expect("valid")
}

fn window(bytes: usize) -> WindowBytes {
    WindowBytes::new(bytes).expect("valid")
}

fn finder(algorithm: MarkerAlgorithm, p: usize, w: usize) -> MarkerFinder {
    MarkerFinder::new(algorithm, period(p), window(w), SampleByteTable::default())
}

fn find(finder: &MarkerFinder, block: &[u8]) -> Vec<u32> {
    let mut markers = alloc::vec![7; 3];
    finder.find(block, &mut markers);
    markers
}

/// The same bytes for the same seed, an odd number.
fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}

fn text(seed: u64, length: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the ", "of ", "refrain", "\n", "<div>", "a ", "return ", "0x00ff, ", "verse ", "; ",
        "comes ", "back ", "    ", "Lorem ", "holds ", "QUX",
    ];
    let mut text: Vec<u8> = Vec::new();
    for byte in random(seed, length) {
        text.extend_from_slice(WORDS[usize::from(byte % 16)].as_bytes());
    }
    text.truncate(length);
    text
}

/// Random, text-like, runs, periodic, and a mixture of them.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let bytes = (any::<u64>(), 0_usize..1500).prop_map(|(seed, length)| random(seed, length));
    let words = (any::<u64>(), 0_usize..1500).prop_map(|(seed, length)| text(seed, length));
    let run = (select(&[0, 0, 32, 255, 7][..]), 0_usize..1500)
        .prop_map(|(byte, length)| alloc::vec![byte; length]);
    let periodic = (vec(any::<u8>(), 1..80), 0_usize..1500)
        .prop_map(|(motif, length)| motif.into_iter().cycle().take(length).collect::<Vec<u8>>());
    let few_values = vec(select(&[0_u8, 1, 254, 255][..]), 0..1500);
    let piece = prop_oneof![bytes, words, run, periodic, few_values];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_equal_their_references(block in block()) {
        let table = SampleByteTable::default();
        for algorithm in MarkerAlgorithm::ALL {
            for (p, w) in PERIODS.into_iter().flat_map(|p| WINDOWS.map(|w| (p, w))) {
                let expected = reference::markers::find(algorithm, &block, period(p), window(w), &table);
                for backend in Backend::available() {
                    let found = find(&finder(algorithm, p, w).with_backend(backend), &block);
                    prop_assert_eq!(&found, &expected, "{} at p = {}, w = {}, {:?}", algorithm, p, w, backend);
                }
            }
        }
    }

    #[test]
    fn any_table_equals_its_reference(
        values in vec(any::<u8>(), 1..256),
        block in block(),
        p in select(&PERIODS[..]),
    ) {
        let table = SampleByteTable::from_bytes(&values).expect("not empty");
        let expected = reference::markers::samplebyte(&block, period(p), window(32), &table);
        let finder = MarkerFinder::new(MarkerAlgorithm::SampleByte, period(p), window(32), table);
        for backend in Backend::available() {
            let found = find(&finder.clone().with_backend(backend), &block);
            prop_assert_eq!(&found, &expected, "{:?}", backend);
        }
    }

    #[test]
    fn markers_increase_and_a_window_follows_each(block in block()) {
        for algorithm in MarkerAlgorithm::ALL {
            for (p, w) in PERIODS.into_iter().flat_map(|p| WINDOWS.map(|w| (p, w))) {
                let markers = find(&finder(algorithm, p, w), &block);
                prop_assert!(markers.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(markers.iter().all(|&marker| marker as usize + w <= block.len()));
            }
        }
    }
}

/// How many of the later block's markers in its last half are those of the earlier one,
/// `inserted` bytes on.
fn share_that_moved(algorithm: MarkerAlgorithm, p: usize, block: &[u8], inserted: usize) -> f64 {
    let finder = finder(algorithm, p, 32);
    let longer = [random(99, inserted), block.to_vec()].concat();
    let before = find(&finder, block);
    let after = find(&finder, &longer);
    let in_last_half: Vec<u32> = after
        .into_iter()
        .filter(|&marker| marker as usize > longer.len() / 2)
        .collect();
    let moved = in_last_half
        .iter()
        .filter(|&&marker| before.binary_search(&(marker - inserted as u32)).is_ok());
    moved.count() as f64 / in_last_half.len() as f64
}

#[test]
fn content_defined_markers_move_with_their_content() {
    use MarkerAlgorithm::{Fixed, Maxp, MaxpBytes, Modp, SampleByte};
    for (block, is_text) in [(random(3, 1 << 17), false), (text(5, 1 << 17), true)] {
        for p in PERIODS {
            for inserted in [1, 17, 31, 100, 1000] {
                for algorithm in [SampleByte, Modp, Maxp, MaxpBytes] {
                    let share = share_that_moved(algorithm, p, &block, inserted);
                    // On text the two walks move alike and may take megabytes to meet.
                    let is_slow_to_meet = algorithm == SampleByte && p == 512 && is_text;
                    if !is_slow_to_meet {
                        assert_eq!(
                            share, 1.0,
                            "{algorithm} at p = {p}, {inserted} bytes inserted"
                        );
                    }
                }
                let share = share_that_moved(Fixed, p, &block, inserted);
                assert_eq!(share, 0.0, "fixed at p = {p}, {inserted} bytes inserted");
            }
        }
    }
}

#[test]
fn random_data_has_the_markers_that_are_promised() {
    let block = random(11, 1 << 18);
    for algorithm in MarkerAlgorithm::ALL {
        for p in PERIODS {
            let spacing = match algorithm {
                MarkerAlgorithm::SampleByte => p / 2 + 256 / 8,
                MarkerAlgorithm::Maxp | MarkerAlgorithm::MaxpBytes => p + 1,
                _ => p,
            };
            let expected = block.len() / spacing;
            let found = find(&finder(algorithm, p, 32), &block).len();
            let range = expected * 3 / 4..expected * 4 / 3;
            assert!(
                range.contains(&found),
                "{algorithm} at p = {p}: {found}, not {expected}"
            );
        }
    }
}

#[test]
fn runs_are_neither_flooded_nor_fatal() {
    for value in 0..=255 {
        let run = alloc::vec![value; 4096];
        for p in PERIODS {
            let count = |algorithm: MarkerAlgorithm| find(&finder(algorithm, p, 32), &run).len();
            let most = 4096 / (p / 2) + 1;
            assert!(
                MarkerAlgorithm::ALL
                    .iter()
                    .all(|&algorithm| count(algorithm) <= most)
            );
            assert!(count(MarkerAlgorithm::Maxp) >= 4096 / p, "a run has maxima");
            assert!(count(MarkerAlgorithm::Modp) <= 1);
        }
    }
    let zeros = alloc::vec![0; 4096];
    assert_eq!(find(&finder(MarkerAlgorithm::Modp, 32, 32), &zeros), []);
}

#[test]
fn a_block_shorter_than_a_window_has_no_marker() {
    for algorithm in MarkerAlgorithm::ALL {
        for w in WINDOWS {
            let finder = finder(algorithm, 32, w);
            assert!((0..w).all(|length| find(&finder, &alloc::vec![0; length]).is_empty()));
        }
    }
}

#[test]
fn the_period_changes_between_blocks() {
    let block = random(13, 1 << 14);
    for algorithm in MarkerAlgorithm::ALL {
        let mut changing = finder(algorithm, 32, 32);
        for p in PERIODS.into_iter().rev() {
            changing.set_period(period(p));
            assert_eq!(
                find(&changing, &block),
                find(&finder(algorithm, p, 32), &block)
            );
        }
    }
}

#[test]
fn names_are_read_back() {
    for algorithm in MarkerAlgorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
    }
    assert!("pack".parse::<MarkerAlgorithm>().is_err());
}
