//! All methods find the same, whatever the input, the threads, the batches and the cache.

use std::{io::Cursor, num::NonZero, ops::ControlFlow};

use proptest::{collection::vec, prelude::*};
use refrain_bulk::{Bounds, BulkOptions, Input, Method, Redundancy, Threads, find_redundancy};
use refrain_codec::chunk::{
    chunking::{Chunking, ChunkingMethod},
    hash::ChunkHasher,
};

use super::{methods, noise};

/// Parts that come again, in this file or another, with runs and noise between them.
pub(crate) fn content() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        (0_u64..6, 0_usize..40_000).prop_map(|(seed, len)| noise(seed, len)),
        (any::<u8>(), 0_usize..20_000).prop_map(|(byte, len)| vec![byte; len]),
        (any::<u64>(), 0_usize..3000).prop_map(|(seed, len)| noise(seed, len)),
    ];
    vec(part, 0..6).prop_map(|parts| parts.concat())
}

pub(crate) fn options() -> impl Strategy<Value = BulkOptions> {
    let method = prop_oneof![
        Just(ChunkingMethod::Modp),
        Just(ChunkingMethod::Pack),
        Just(ChunkingMethod::Fixed)
    ];
    let threads = (1_usize..4, 1_usize..4, 1_usize..4, 1_usize..70);
    (
        method,
        10_u32..14,
        0_u64..2_000_000,
        1_usize..50_000,
        threads,
    )
        .prop_map(
            |(method, bits, cache_bytes, batch_bytes, (fetch, scan, hash, matching))| {
                let some = |count| NonZero::new(count).expect("1 at least");
                BulkOptions {
                    chunking: Chunking::new(method, 1 << bits).expect("valid"),
                    cache_bytes,
                    batch_bytes,
                    threads: Threads {
                        fetch: some(fetch),
                        scan: some(scan),
                        hash: some(hash),
                        matching: some(matching),
                    },
                    ..BulkOptions::default()
                }
            },
        )
}

fn find(inputs: Vec<Input>, options: BulkOptions) -> Redundancy {
    let outcome = find_redundancy(inputs, &options, None, &mut |_| ControlFlow::Continue(()));
    let outcome = outcome.expect("this machine can do that");
    assert!(!outcome.is_cut_short);
    outcome.redundancy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn all_methods_find_the_same(
        files in vec(content(), 0..5),
        are_streams in vec(any::<bool>(), 5),
        options in options(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let inputs = || {
            let numbered = files.iter().zip(&are_streams).enumerate();
            numbered
                .map(|(number, (content, is_stream))| {
                    let path = folder.path().join(number.to_string());
                    if *is_stream {
                        return Input::Stream(path, Box::new(Cursor::new(content.clone())));
                    }
                    std::fs::write(&path, content).unwrap();
                    Input::Path(path, Bounds::default())
                })
                .collect::<Vec<_>>()
        };
        let naive = find(inputs(), BulkOptions { method: Method::Naive, ..options });
        for method in methods() {
            let found = find(inputs(), BulkOptions { method, ..options });
            prop_assert_eq!(found, naive, "{}", method);
        }
        prop_assert_eq!(naive.bytes, files.iter().map(|file| file.len() as u64).sum::<u64>());
        prop_assert_eq!(naive.files, files.len() as u64);
        let longest = options.chunking.max_bytes().ilog2() as usize;
        prop_assert_eq!(naive.histogram.chunks[..=longest].iter().sum::<u64>(), naive.chunks);
        prop_assert_eq!(naive.histogram.repeats.iter().sum::<u64>(), naive.redundant_chunks);
    }
}

/// The share of redundant bytes is that of an obvious program: cut whole, remember all.
#[test]
fn what_repeats_is_found() {
    let song = noise(1, 3_000_000);
    let edited = [&song[..1_000_000], b"verse", &song[1_000_000..]].concat();
    for method in methods() {
        for hasher in [ChunkHasher::Blake3, ChunkHasher::Sha1] {
            let inputs = [&song, &edited].map(|content| {
                Input::Stream("song".into(), Box::new(Cursor::new(content.clone())))
            });
            let options = BulkOptions {
                method,
                hasher,
                ..BulkOptions::default()
            };
            let found = find(inputs.into(), options);
            assert_eq!(found.bytes, 6_000_005);
            // All of the second but the chunk with the verse, and one that it may have moved.
            let new = found.bytes - found.redundant_bytes - 3_000_000;
            assert!((5..20_000).contains(&new), "{method}, {hasher}: {new}");
        }
    }
}

/// Threads race for each batch: none may be lost.
#[test]
fn as_many_batches_come_out_as_went_in() {
    let song = noise(3, 2_000_000);
    for matchers in [1, 2, 5] {
        let options = BulkOptions {
            batch_bytes: 64,
            threads: Threads {
                matching: NonZero::new(matchers).expect("not 0"),
                ..Threads::default()
            },
            ..BulkOptions::default()
        };
        let input = Input::Stream("song".into(), Box::new(Cursor::new(song.clone())));
        let found = find(vec![input], options);
        assert_eq!(found.bytes, 2_000_000);
    }
}
