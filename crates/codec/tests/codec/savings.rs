//! What the encoder saves, against Max-Match by the book, which forgets nothing.

use refrain_codec::{
    EncoderConfig,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder},
    matching::{Everything, MatchingAlgorithm},
    reference::max_match,
};

use crate::{
    content::{Random, edited, text},
    data,
    ends::{Sender, config, markers},
};

const BLOCK_BYTES: [usize; 4] = [1460, 4 << 10, 16 << 10, 64 << 10];

/// Shares of `data` that regions cover, in percent: the encoder's and the reference's.
fn covered(data: &[u8], block_bytes: usize, markers: &MarkerFinder) -> [f64; 2] {
    let mut sender = Sender::new(EncoderConfig {
        geometry: CacheGeometry::new(64 << 20).expect("a valid size"),
        ..config(MatchingAlgorithm::MaxMatch, markers.clone())
    });
    let mut reference = max_match::MaxMatch::new(markers.clone());
    let mut covered = [0; 2];
    for block in data.chunks(block_bytes) {
        covered[0] += sender.send(0, block, &Everything).encoded.region_bytes;
        covered[1] += max_match::saved_bytes(&reference.encode(block));
    }
    covered.map(|bytes| 100.0 * bytes as f64 / data.len() as f64)
}

fn assert_as_good_as_the_reference(name: &str, data: &[u8]) {
    let markers = markers(MarkerAlgorithm::SampleByte, 32, 32);
    for block_bytes in BLOCK_BYTES {
        let [ours, reference] = covered(data, block_bytes, &markers);
        println!("{name}, blocks of {block_bytes}: {ours:.2} %, by the book {reference:.2} %");
        assert!(
            ours >= reference - 0.1,
            "{name}, blocks of {block_bytes}: {ours:.2} %, by the book {reference:.2} %"
        );
    }
}

#[test]
fn edited_text_is_found_as_well_as_by_the_book() {
    let mut random = Random::new(1);
    // Words alone would repeat by themselves; names and numbers are what is new in a text.
    let mut version = Vec::new();
    while version.len() < 300_000 {
        version.extend(text(&mut random, 40));
        version.extend(format!("{:x} ", random.next()).bytes());
    }
    for distance in [50, 200, 2000] {
        let mut versions = version.clone();
        for _ in 0..3 {
            version = edited(&mut random, &version, distance);
            versions.extend_from_slice(&version);
        }
        assert_as_good_as_the_reference(&format!("an edit in {distance}"), &versions);
    }
}

#[test]
fn real_files_are_found_as_well_as_by_the_book() {
    for name in ["xml", "samba", "dickens"] {
        let Some(data) = data::silesia(name, 2 << 20) else {
            return;
        };
        assert_as_good_as_the_reference(name, &data);
    }
}

#[test]
fn releases_are_found_as_well_as_by_the_book() {
    let releases = data::linux_releases(2 << 20);
    assert_as_good_as_the_reference("two Linux releases", &releases.concat());
}
