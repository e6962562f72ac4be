//! How fast one core encodes and decodes blocks of which nothing, half or all is redundant.

use std::{hint::black_box, time::Duration};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use refrain_codec::{
    EncodedBlock,
    marker::{FindMarkers, MarkerAlgorithm},
    matching::{Everything, MatchingAlgorithm},
};
use workload::{
    BLOCK_BYTES, Walk, WarmDecoder, circles, encoded_again, finder, noise, warm_encoder,
};

#[path = "../src/bench/workload.rs"]
mod workload;

/// More than most second-level caches hold.
const MARKED_BYTES: usize = 16 << 20;

fn markers(criterion: &mut Criterion) {
    let random = noise(MARKED_BYTES);
    let text = text(&random);
    let mut group = group(criterion, "markers");
    for algorithm in MarkerAlgorithm::ALL {
        for period in [32, 64, 256] {
            let finder = finder(algorithm, period);
            let mut found = Vec::new();
            for (name, data) in [("random", &random), ("text", &text)] {
                let mut walk = Walk::new(data);
                group.bench_function(format!("{algorithm}/{name}/{period}"), |bencher| {
                    bencher.iter(|| {
                        let (_, block, _) = walk.step();
                        finder.find(block, &mut found);
                        black_box(&found);
                    });
                });
            }
        }
    }
    group.finish();
}

fn encode(criterion: &mut Criterion) {
    let mut group = group(criterion, "encode");
    for (share, circle) in circles() {
        for (matching, period) in [
            (MatchingAlgorithm::MaxMatch, 64),
            (MatchingAlgorithm::MaxMatch, 32),
            (MatchingAlgorithm::ChunkMatch, 64),
        ] {
            let mut encoder = warm_encoder(&circle, matching, period);
            let mut walk = Walk::new(&circle);
            let mut out = EncodedBlock::default();
            group.bench_function(format!("{matching}/p={period}/{share}"), |bencher| {
                bencher.iter(|| {
                    let (_, block, cursor) = walk.step();
                    encoder.encode(0, block, &Everything, cursor, &mut out);
                    black_box(&out);
                });
            });
        }
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let mut group = group(criterion, "decode");
    for (share, circle) in circles() {
        for period in [64, 32] {
            let encoded = encoded_again(&circle, MatchingAlgorithm::MaxMatch, period);
            let mut decoder = WarmDecoder::new(&circle);
            let mut walk = Walk::new(&circle);
            group.bench_function(format!("max/p={period}/{share}"), |bencher| {
                bencher.iter(|| {
                    let (index, _, cursor) = walk.step();
                    decoder.decode(&encoded[index], cursor);
                });
            });
        }
    }
    group.finish();
}

/// Words of the paper's introduction, in random order.
fn text(random: &[u8]) -> Vec<u8> {
    let words: Vec<&str> = "With the advent of globalization, networked services have a global \
        audience, both in the consumer and enterprise spaces. For example, a large corporation \
        today may have branch offices at dozens of cities around the globe."
        .split_inclusive(' ')
        .collect();
    let picked = random
        .iter()
        .flat_map(|byte| words[usize::from(*byte) % words.len()].bytes());
    picked.take(random.len()).collect()
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .throughput(Throughput::Bytes(BLOCK_BYTES as u64))
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    group
}

criterion_group!(benches, markers, encode, decode);
criterion_main!(benches);
