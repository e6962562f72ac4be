//! PACK anchors against those that the authors' own implementation found: each of its masks, on each
//! back end, however a stream is split.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
};

use proptest::{collection::vec, prelude::*, sample::select};
use refrain_codec::marker::{AnchorFinder, FindAnchors, PackMask};
use refrain_codec::simd::Backend;

use crate::data;

/// As the authors' implementation has them.
const MASKS: [(u8, u64); 10] = [
    (6, 0x0010_1048_2080),
    (7, 0x0810_1048_2080),
    (8, 0x8210_1048_2080),
    (9, 0x8211_1048_2080),
    (10, 0x8231_1048_2080),
    (11, 0x8A31_1048_2080),
    (12, 0x8A31_1048_3080),
    (13, 0x8A31_1058_3080),
    (14, 0x8A31_1058_3280),
    (15, 0x8A31_1458_3280),
];

/// Longer inputs would keep a debug build for long in the splits that are drawn.
const DRAWN_BYTES_MAX: usize = 70_000;

const WINDOW_BYTES: u64 = 48;

/// An input, and the anchors that the authors found in it by the number of mask bits.
struct Vector {
    name: String,
    input: Vec<u8>,
    anchors: BTreeMap<u8, Vec<u64>>,
}

impl Vector {
    /// What this implementation must find in pieces of these lengths, which repeat.
    fn check(&self, bits: u8, backend: Backend, cuts: &[usize]) {
        let mask = PackMask::with_bits(bits).expect("6 to 15");
        let mut finder = AnchorFinder::new(mask).with_backend(backend);
        let mut anchors = Vec::new();
        let mut rest = &self.input[..];
        for &cut in cuts.iter().cycle() {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            finder.feed(piece, &mut anchors);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        // The authors' never tests the last window.
        anchors.pop_if(|last| *last + WINDOW_BYTES == self.input.len() as u64);
        assert!(
            anchors == self.anchors[&bits],
            "{}, {bits} bits, {backend:?}, pieces of {cuts:?}",
            self.name
        );
    }
}

fn vectors() -> Vec<Vector> {
    let text = fs::read_to_string(data::testdata("pack-anchors.jsonl")).expect("a text");
    let mut anchors: HashMap<&str, BTreeMap<u8, Vec<u64>>> = HashMap::new();
    for line in text.lines() {
        let (name, bits, found) = fields(line).expect("a vector");
        let is_new = anchors.entry(name).or_default().insert(bits, found);
        assert!(is_new.is_none(), "{name} comes twice with {bits} bits");
    }
    let masks = MASKS.map(|(bits, _)| bits);
    let vectors = anchors.into_iter().map(|(name, anchors)| {
        assert!(anchors.keys().eq(&masks), "a mask of {name} is missing");
        Vector {
            name: name.to_owned(),
            input: input(name),
            anchors,
        }
    });
    let mut vectors: Vec<Vector> = vectors.collect();
    vectors.sort_by(|a, b| a.name.cmp(&b.name));
    vectors
}

#[test]
fn the_masks_are_the_authors() {
    for (bits, mask) in MASKS {
        let found = PackMask::with_bits(bits).expect("6 to 15");
        assert_eq!(found.bits(), mask, "{bits}");
        assert_eq!(found.bits().count_ones(), u32::from(bits));
    }
}

#[test]
fn anchors_are_those_of_the_authors_implementation() {
    let vectors = vectors();
    let anchors = vectors.iter().flat_map(|vector| vector.anchors.values());
    assert!(anchors.map(Vec::len).sum::<usize>() > 30_000, "too few");
    for vector in &vectors {
        for bits in MASKS.map(|(bits, _)| bits) {
            for backend in Backend::available() {
                for cuts in [&[10_007][..], &[usize::MAX]] {
                    vector.check(bits, backend, cuts);
                }
            }
        }
    }
}

/// With one piece up to each place of a short input, and one behind it.
#[test]
fn no_place_of_a_cut_matters() {
    for vector in vectors().iter().filter(|vector| vector.input.len() <= 49) {
        for cut in 1..=vector.input.len() {
            vector.check(6, Backend::best(), &[cut, usize::MAX]);
        }
    }
}

#[test]
fn no_way_to_split_matters() {
    let mut vectors = vectors();
    vectors.retain(|vector| vector.input.len() <= DRAWN_BYTES_MAX);
    let length = prop_oneof![0_usize..4, 40_usize..60, 375_usize..400, 0_usize..5000];
    let cuts = vec(length, 1..8).prop_filter("progress", |cuts| cuts.iter().any(|&cut| cut > 40));
    let bits = select(MASKS.map(|(bits, _)| bits).to_vec());
    proptest!(|(which in 0..vectors.len(), bits in bits, cuts in cuts)| {
        for backend in Backend::available() {
            vectors[which].check(bits, backend, &cuts);
        }
    });
}

/// The input's name, the mask's bits and the anchors.
fn fields(line: &str) -> Option<(&str, u8, Vec<u64>)> {
    let line = line.strip_prefix(r#"{"input":""#)?.strip_suffix("]}")?;
    let (name, line) = line.split_once(r#"","mask_bits":"#)?;
    let (bits, anchors) = line.split_once(r#","anchors":["#)?;
    let anchors = anchors
        .split_terminator(',')
        .map(|anchor| anchor.parse().ok());
    Some((name, bits.parse().ok()?, anchors.collect::<Option<_>>()?))
}

/// The bytes behind a vector's name.
fn input(name: &str) -> Vec<u8> {
    let number = |text: &str| text.parse().expect("a number");
    match name.split('-').collect::<Vec<_>>()[..] {
        ["xorshift64", seed, length] => {
            let seed = seed.strip_prefix("seed").expect("a seed");
            xorshift(number(seed), number(length) as usize)
        }
        ["short", length] => xorshift(7, number(length) as usize),
        ["zeros", length] => vec![0; number(length) as usize],
        ["counter", length] => (0..number(length)).map(|i| i as u8).collect(),
        ["gpl", "3"] => fs::read(data::testdata("gpl-3.txt")).expect("a text"),
        _ => panic!("an unknown input: {name}"),
    }
}

fn xorshift(seed: u64, length: usize) -> Vec<u8> {
    let mut x = seed;
    let step = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 56) as u8
    };
    (0..length).map(step).collect()
}
