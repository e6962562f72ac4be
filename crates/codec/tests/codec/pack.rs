//! PACK anchors against those that the authors' own implementation found.

use refrain_codec::marker::{AnchorFinder, PackMask};
use refrain_codec::simd::Backend;

use crate::data;

#[test]
fn anchors_are_those_of_the_authors_implementation() {
    let Some(vectors) = data::vectors("pack-anchors.jsonl") else {
        return;
    };
    for line in vectors.lines() {
        let (name, bits, expected) = fields(line).expect("a vector");
        let Some(input) = input(name) else {
            continue;
        };
        let mask = PackMask::with_bits(bits).expect("6 to 15");
        for backend in Backend::available() {
            let mut anchors = Vec::new();
            let mut finder = AnchorFinder::new(mask).with_backend(backend);
            for piece in input.chunks(10_007) {
                finder.feed(piece, &mut anchors);
            }
            // It never tests the last window.
            anchors.pop_if(|last| *last + 48 == input.len() as u64);
            assert!(anchors == expected, "{name}, {bits} bits, {backend:?}");
        }
    }
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
fn input(name: &str) -> Option<Vec<u8>> {
    let number = |text: &str| text.parse().expect("a number");
    Some(match name.split('-').collect::<Vec<_>>()[..] {
        ["xorshift64", seed, length] => {
            let seed = seed.strip_prefix("seed").expect("a seed");
            xorshift(number(seed), number(length) as usize)
        }
        ["short", length] => xorshift(7, number(length) as usize),
        ["zeros", length] => vec![0; number(length) as usize],
        ["counter", length] => (0..number(length)).map(|i| i as u8).collect(),
        // As Debian ships it.
        ["gpl", "3"] => {
            let path = data::if_here("/usr/share/common-licenses/GPL-3".into(), name)?;
            std::fs::read(path).expect("a text")
        }
        _ => panic!("an unknown input: {name}"),
    })
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
