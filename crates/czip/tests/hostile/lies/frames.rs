//! Lies about frames: where they are, what is in them and what they are compressed against.

use super::{CHUNKS, assert_refused, lying, lying_content};
use crate::{
    draft::{CATALOG, CONTENT, Draft, SHARED, StreamDraft},
    reading::{content, everything, open, read},
};

#[test]
fn chunks_that_are_not_in_their_frame_are_refused() {
    let places = |places: [[u64; 3]; 3]| lying_content(|content| content.places = places.to_vec());
    let honest = [[0, 0, 0], [0, 2, 0], [0, 2, 0]];
    assert!(everything(&places(honest)).is_ok());
    for (run, of, value) in [
        (0, 0, 1),
        (0, 0, u64::MAX),
        (2, 0, u64::MAX - 1),
        (0, 1, 1),
        (2, 1, 4),
        (2, 1, u64::MAX),
        (2, 1, u64::MAX - 1),
        (0, 2, 1),
        (0, 2, 1 << 20),
        (0, 2, u64::MAX),
    ] {
        let mut lie = honest;
        lie[run][of] = value;
        assert_refused(&format!("{value} in column {of}"), &places(lie));
    }
    for length in [0, 10, 1 << 20, u64::MAX] {
        let archive = lying_content(|content| content.lengths[0] = length);
        assert_refused(&format!("a chunk of {length} bytes"), &archive);
    }
    assert_refused("no runs", &lying_content(|content| content.places.clear()));
}

#[test]
fn frames_that_are_not_there_are_refused() {
    for at in [0, 1 << 20, u64::MAX / 2, u64::MAX / 2 + 1] {
        let archive = lying_content(|content| content.frames_at = Some(at));
        assert_refused(&format!("the first at {at}"), &archive);
    }
    for (gap, stored_bytes) in [
        (1, None),
        (u64::MAX, None),
        (0, Some(0)),
        (0, Some(1 << 30)),
        (0, Some(u64::MAX)),
    ] {
        let archive = lying_content(|content| {
            content.frames[1].gap = gap;
            content.frames[1].stored_bytes = stored_bytes;
        });
        assert_refused("one between others", &archive);
    }
    for frame in [0, 2] {
        let archive = lying_content(|content| {
            content.frames.swap_remove(frame);
        });
        assert_refused("too few", &archive);
    }
}

#[test]
fn two_streams_may_have_the_same_frame() {
    let mut draft = Draft::honest(&CHUNKS);
    let first = 256;
    let stored = draft.streams[CONTENT].frames[0].clone();
    // The catalog's chunk is the content's: what is read is what is there, wherever it lies.
    let mut catalog = StreamDraft::default();
    catalog.push_stored(CHUNKS[0], stored.stored);
    catalog.frames_at = Some(first);
    draft.streams[CATALOG] = catalog;
    let archive = open(draft.build()).unwrap();
    assert_eq!(content(&archive, 0).unwrap(), CHUNKS.concat());
    assert!(archive.entries().is_err());
}

#[test]
fn bases_that_cannot_be_are_refused() {
    let base = b"what a chunk is compressed against";
    let new = zstd::bulk::Compressor::with_dictionary(3, base)
        .unwrap()
        .compress(base)
        .unwrap();
    let with_bases = |backs: [u64; 3], method: u8| {
        lying(|draft| {
            let content = &mut draft.streams[CONTENT];
            *content = StreamDraft::default();
            content.push(base);
            for back in [backs[1], backs[2]] {
                content.push_stored(base, [&[method], &new[..]].concat());
                content.frames.last_mut().unwrap().back = back;
            }
            content.frames[0].back = backs[0];
            let plain = base.repeat(3);
            draft.plain_bytes = plain.len() as u64;
            draft.digest = *blake3::hash(&plain).as_bytes();
            draft.catalog(&[(0, b"", draft.plain_bytes, b"")]);
        })
    };
    let honest = with_bases([0, 1, 2], 1);
    assert_eq!(read(honest).unwrap().content, base.repeat(3));
    assert_refused("before the first", &with_bases([1, 1, 2], 1));
    assert_refused("far before the first", &with_bases([0, 1, u64::MAX], 1));
    assert_refused("a base with a base", &with_bases([0, 1, 1], 1));
    for method in [0, 2, 3] {
        assert_refused("a method without bases", &with_bases([0, 1, 2], method));
    }
}

#[test]
fn frames_of_other_methods_or_with_more_behind_them_are_refused() {
    use std::io::Read;
    let plain = CHUNKS[0];
    let (mut gzip, mut bzip2) = (vec![2], vec![3]);
    flate2::bufread::GzEncoder::new(plain, flate2::Compression::default())
        .read_to_end(&mut gzip)
        .unwrap();
    bzip2::bufread::BzEncoder::new(plain, bzip2::Compression::default())
        .read_to_end(&mut bzip2)
        .unwrap();
    let zstd = [vec![1], zstd::bulk::compress(plain, 3).unwrap()].concat();
    for stored in [gzip, bzip2, zstd] {
        let with = |stored: Vec<u8>| lying_content(|content| content.frames[0].stored = stored);
        assert!(everything(&with(stored.clone())).is_ok(), "{stored:?}");
        let twice = [&stored[..], &stored[1..]].concat();
        for wrong in [
            twice,
            [&stored[..], &[0]].concat(),
            stored[..stored.len() - 1].to_vec(),
        ] {
            assert_refused("too much or too little", &with(wrong));
        }
        for method in (4..=255).chain(0..4).filter(|&method| method != stored[0]) {
            let mut other = stored.clone();
            other[0] = method;
            assert_refused("another method", &with(other));
        }
        assert_refused("only a method", &with(stored[..1].to_vec()));
    }
}

#[test]
fn a_frame_of_profile_shared_is_as_long_as_its_chunk() {
    let with = |more: &[u8]| {
        lying(|draft| {
            draft.flags = SHARED;
            draft.streams[CONTENT].frames[1]
                .stored
                .extend_from_slice(more);
        })
    };
    assert!(everything(&with(b"")).is_ok());
    assert_refused("a frame with more than its chunk", &with(b"x"));
}
