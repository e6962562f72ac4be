//! What holds for all methods alike.

use super::*;
use proptest::{collection::vec, prelude::*, sample::select};
use std::collections::HashSet;

/// The same bytes for the same seed.
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

/// Lines of one form, in which anchors are rare.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let noise = random(seed, length / 16);
    let lines = noise
        .iter()
        .map(|byte| format!("verse {byte:03}, refrain\n"));
    let mut text = lines.collect::<String>().into_bytes();
    text.truncate(length);
    text
}

fn content(lengths: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let one = move |make: fn(u64, usize) -> Vec<u8>| {
        (any::<u64>(), lengths.clone()).prop_map(move |(seed, length)| make(seed, length))
    };
    // A run of ones is all anchors of PACK's, one of zeros none.
    let run = |seed, length| vec![(seed % 2) as u8; length];
    prop_oneof![one(random), one(text), one(run)]
}

fn chunking() -> impl Strategy<Value = Chunking> {
    let method = select(&ChunkingMethod::ALL[..]);
    let average = select(&[1 << 10, 2 << 10, 4 << 10][..]);
    let bounds = prop_oneof![
        Just(None),
        (64_u32..=1 << 10, 4_u32 << 10..20 << 10).prop_map(Some),
    ];
    (method, average, bounds).prop_map(|(method, average, bounds)| {
        let chunking = Chunking::new(method, average).expect("valid");
        match bounds {
            Some((min, max)) => chunking.with_bounds(min, max).expect("around the average"),
            None => chunking,
        }
    })
}

/// Feeds `bytes` in pieces of these lengths, which repeat.
fn feed(chunker: &mut Chunker, mut bytes: &[u8], pieces: &[usize], ends: &mut Vec<u64>) {
    for &piece in pieces.iter().cycle() {
        let (piece, rest) = bytes.split_at(piece.min(bytes.len()));
        chunker.feed(piece, ends);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
}

/// The ends of the chunks of a stream whose members are followed by boundaries.
fn cut(chunker: &mut Chunker, members: &[Vec<u8>], pieces: &[usize]) -> Vec<u64> {
    let mut ends = Vec::new();
    for member in members {
        feed(chunker, member, pieces, &mut ends);
        chunker.boundary(&mut ends);
    }
    chunker.finish(&mut ends);
    ends
}

/// The ends of the chunks of a stream without boundaries, in one piece.
fn cut_whole(chunking: Chunking, stream: &[u8]) -> Vec<u64> {
    let (mut chunker, mut ends) = (Chunker::new(chunking), Vec::new());
    chunker.feed(stream, &mut ends);
    chunker.finish(&mut ends);
    ends
}

/// Where boundaries cut.
fn cutting_boundaries(members: &[Vec<u8>], chunking: Chunking) -> Vec<u64> {
    let least = u64::from(chunking.min_bytes()) / 16;
    let (mut boundaries, mut last, mut end) = (Vec::new(), 0, 0);
    for member in members {
        end += member.len() as u64;
        if end - last >= least {
            boundaries.push(end);
            last = end;
        }
    }
    boundaries
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![
        1_usize..4,
        40_usize..60,
        0_usize..3000,
        60_000_usize..70_000
    ];
    vec(length, 1..6).prop_filter("progress", |pieces| pieces.iter().any(|&piece| piece > 0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn chunks_tile_the_stream_within_bounds_however_it_is_split(
        members in vec(content(0..9000), 0..6),
        pieces in pieces(),
        chunking in chunking(),
    ) {
        let mut chunker = Chunker::new(chunking);
        let ends = cut(&mut chunker, &members, &pieces);
        // The second time, it must have forgotten the first.
        prop_assert_eq!(&cut(&mut chunker, &members, &[usize::MAX]), &ends);

        let bytes: u64 = members.iter().map(|member| member.len() as u64).sum();
        prop_assert_eq!(ends.last().copied().unwrap_or(0), bytes);
        let boundaries = cutting_boundaries(&members, chunking);
        prop_assert!(boundaries.iter().all(|boundary| ends.binary_search(boundary).is_ok()));
        let mut start = 0;
        for end in ends {
            prop_assert!(start < end && end - start <= chunking.max_bytes().into());
            let may_be_short = end == bytes || boundaries.binary_search(&end).is_ok();
            prop_assert!(may_be_short || end - start >= chunking.min_bytes().into());
            start = end;
        }
    }

    #[test]
    fn a_members_chunks_do_not_depend_on_what_stands_before_its_boundary(
        before in content(1024..9000),
        member in content(0..20_000),
        pieces in pieces(),
        chunking in chunking(),
    ) {
        let alone = cut_whole(chunking, &member);
        let mut chunker = Chunker::new(chunking);
        let mut ends = Vec::new();
        feed(&mut chunker, &before, &pieces, &mut ends);
        chunker.boundary(&mut ends);
        let start = before.len() as u64;
        prop_assert_eq!(ends.pop(), Some(start));
        ends.clear();
        feed(&mut chunker, &member, &pieces, &mut ends);
        chunker.finish(&mut ends);
        prop_assert!(ends.iter().map(|end| end - start).eq(alone));
    }

    #[test]
    fn ends_are_known_48_bytes_behind_the_longest_chunk(
        stream in content(0..60_000),
        pieces in pieces(),
        chunking in chunking(),
    ) {
        let (mut chunker, mut ends) = (Chunker::new(chunking), Vec::new());
        let mut fed = 0;
        for piece in stream.chunks(pieces[0].max(1)) {
            chunker.feed(piece, &mut ends);
            fed += piece.len() as u64;
            let unknown = fed - ends.last().copied().unwrap_or(0);
            prop_assert!(unknown < u64::from(chunking.max_bytes()) + 48);
        }
    }
}

#[test]
fn a_boundary_too_near_the_last_changes_nothing() {
    for method in ChunkingMethod::ALL {
        let chunking = Chunking::new(method, 4096).expect("valid");
        let stream = random(3, 60_000);
        let (first, rest) = stream.split_at(63);
        let mut chunker = Chunker::new(chunking);
        let mut ends = Vec::new();
        chunker.boundary(&mut ends);
        chunker.feed(first, &mut ends);
        chunker.boundary(&mut ends);
        chunker.feed(&rest[..1], &mut ends);
        assert!(ends.is_empty(), "{method}");
        let mut one_more = chunker.clone();
        one_more.boundary(&mut ends);
        assert_eq!(ends, [64], "{method}");
        one_more.boundary(&mut ends);
        assert_eq!(ends, [64], "{method}");

        ends.clear();
        chunker.feed(&rest[1..], &mut ends);
        chunker.finish(&mut ends);
        assert_eq!(ends, cut_whole(chunking, &stream), "{method}");
    }
}

/// The contents of the chunks of `stream`.
fn chunks(chunking: Chunking, stream: &[u8]) -> Vec<&[u8]> {
    let mut start = 0;
    let ends = cut_whole(chunking, stream).into_iter();
    ends.map(|end| {
        let chunk = &stream[start as usize..end as usize];
        start = end;
        chunk
    })
    .collect()
}

#[test]
fn an_insertion_changes_only_chunks_nearby() {
    for method in [ChunkingMethod::Modp, ChunkingMethod::Pack] {
        for average in [1 << 10, 32 << 10, 128 << 10] {
            let chunking = Chunking::new(method, average).expect("valid");
            for make in [random, text] {
                let stream = make(5, 200 * average as usize);
                let known: HashSet<&[u8]> = chunks(chunking, &stream).into_iter().collect();
                for at in [0, stream.len() / 3, stream.len() / 2 + 1] {
                    let edited = [&stream[..at], b"new", &stream[at..]].concat();
                    let edited = chunks(chunking, &edited);
                    let new = edited.iter().filter(|&&chunk| !known.contains(chunk));
                    let new = new.count();
                    assert!((1..=4).contains(&new), "{method}, {average}: {new} new");
                }
            }
        }
    }
}

#[test]
fn zeros_are_cut_into_equal_chunks_of_the_longest_length() {
    for method in ChunkingMethod::ALL {
        for average in [1 << 10, 32 << 10, 1 << 20] {
            let chunking = Chunking::new(method, average).expect("valid");
            let longest = chunking.max_bytes() as usize;
            let zeros = vec![0; 10 * longest];
            assert!(
                chunks(chunking, &zeros)
                    .iter()
                    .all(|chunk| chunk.len() == longest)
            );
            // Nor does it matter where they begin.
            let image = [random(7, 70_001), zeros, random(8, 70_001)].concat();
            let of_zeros = chunks(chunking, &image).into_iter();
            let of_zeros = of_zeros.filter(|chunk| chunk.iter().all(|&byte| byte == 0));
            let of_zeros: Vec<usize> = of_zeros.map(<[u8]>::len).collect();
            assert!(of_zeros.len() >= 8 && of_zeros.iter().all(|&bytes| bytes == longest));
        }
    }
}

#[test]
fn chunks_of_random_data_are_a_fifth_to_a_third_longer_than_asked_for() {
    for method in [ChunkingMethod::Modp, ChunkingMethod::Pack] {
        for average in [1 << 10, 8 << 10, 64 << 10] {
            let chunking = Chunking::new(method, average).expect("valid");
            let count = cut_whole(chunking, &random(9, 32 << 20)).len();
            let ratio = f64::from(32 << 20) / count as f64 / f64::from(average);
            assert!(
                (1.15..1.35).contains(&ratio),
                "{method}, {average}: {ratio}"
            );
        }
    }
}

#[test]
fn fixed_chunks_are_as_long_as_the_average() {
    let chunking = Chunking::new(ChunkingMethod::Fixed, 1024).expect("valid");
    assert_eq!(cut_whole(chunking, &[7; 2500]), [1024, 2048, 2500]);
    assert_eq!(cut_whole(chunking, &[7; 2048]), [1024, 2048]);
    assert!(cut_whole(chunking, &[]).is_empty());
}
