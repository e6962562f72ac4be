//! Every backend finds what the paper's loop finds.

use super::*;
use crate::{marker::pack::streams, reference};
use proptest::prelude::*;

/// Tests `bytes`, which lie somewhere in a stream and behind anchors that are known already.
fn check(mask: PackMask, bytes: &[u8]) {
    const START: u64 = 1 << 40;
    let mut expected = alloc::vec![7];
    let found = reference::pack::anchors(bytes, mask);
    expected.extend(found.into_iter().map(|anchor| START + anchor));
    for backend in Backend::available() {
        let mut anchors = alloc::vec![7];
        find(backend, mask, bytes, START, &mut anchors);
        let length = bytes.len();
        assert!(anchors == expected, "{backend:?}, {mask:?}, {length} bytes");
    }
}

fn mask(count: u8) -> PackMask {
    PackMask::with_bits(count).expect("6 to 15")
}

proptest! {
    #[test]
    fn all_equal_the_reference(
        stream in streams::stream(),
        skipped in 0_usize..64,
        count in 6_u8..=15,
    ) {
        check(mask(count), &stream[skipped.min(stream.len())..]);
    }
}

#[test]
fn all_equal_the_reference_at_every_short_length() {
    let bytes = streams::random(7, 1700);
    // All of these are anchors, so that one at any place is missed.
    let run = [1; 1700];
    for length in 0..bytes.len() {
        check(mask(6), &bytes[..length]);
        check(mask(13), &run[..length]);
    }
}

#[test]
fn all_equal_the_reference_around_whole_groups() {
    let bytes = streams::random(3, 40_000);
    for groups in [8192, 16384, 32768] {
        for length in (groups - 80..groups + 650).step_by(5) {
            check(mask(8), &bytes[..length]);
        }
    }
}

#[test]
fn taps_repeat_the_last_where_a_mask_has_few_bits() {
    assert_eq!(taps(15)[..3], [0, 4, 6]);
    assert_eq!(taps(6)[4..], [34, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40]);
}
