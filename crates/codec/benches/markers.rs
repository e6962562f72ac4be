//! How fast each marker algorithm scans 64 KiB blocks, on random and on text-like data.
//!
//! The blocks are read from 16 MiB, more than most second-level caches hold.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use refrain_codec::marker::{
    FindMarkers, MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes,
};

const DATA_BYTES: usize = 16 << 20;
const BLOCK_BYTES: usize = 64 << 10;

fn random() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words
        .take(DATA_BYTES / 8)
        .flat_map(u64::to_le_bytes)
        .collect()
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
    picked.take(DATA_BYTES).collect()
}

fn markers(criterion: &mut Criterion) {
    let random = random();
    let text = text(&random);
    let mut group = criterion.benchmark_group("markers");
    group
        .throughput(Throughput::Bytes(DATA_BYTES as u64))
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    for algorithm in MarkerAlgorithm::ALL {
        for period in [32, 64, 256] {
            let finder = MarkerFinder::new(
                algorithm,
                SamplingPeriod::new(period).expect("a valid period"),
                WindowBytes::DEFAULT,
                SampleByteTable::default(),
            );
            let mut found = Vec::new();
            for (name, data) in [("random", &random), ("text", &text)] {
                let id = BenchmarkId::new(format!("{algorithm}/{name}"), period);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        for block in data.chunks(BLOCK_BYTES) {
                            finder.find(block, &mut found);
                            black_box(&found);
                        }
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, markers);
criterion_main!(benches);
