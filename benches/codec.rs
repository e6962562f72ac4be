//! The contests of `refrain bench`, one after another, with criterion's statistics and history.
//!
//! `cargo bench -- 'SAMPLEBYTE p = 64, text, hot'` measures some. Ratios are better taken from
//! `refrain bench`, in which all of a row take turns.

use std::{env, path::PathBuf, time::Duration};

use contests::{Contest, Inputs};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use refrain_codec::simd::Backend;

// Its tests, and rows that are no kernel's, belong to the program.
#[allow(dead_code, unused_imports)]
#[path = "../src/bench/contests/mod.rs"]
mod contests;

fn contests(criterion: &mut Criterion) {
    let folder = env::var_os("REFRAIN_DATA").map_or_else(|| "../shared/data".into(), PathBuf::from);
    let inputs = Inputs::read(&folder).unwrap_or_else(|_| {
        let demo = &include_bytes!("../demo/corpus/objects.tar.zst")[..];
        Inputs::of_demo(zstd::decode_all(demo).expect("intact content"))
    });
    println!("{}", inputs.note);
    let mut backends: Vec<Backend> = Backend::available().collect();
    backends.reverse();
    for contest in contests::all(&inputs, &backends) {
        measure(criterion, contest);
    }
}

fn measure(criterion: &mut Criterion, contest: Contest<'_>) {
    let mut group = criterion.benchmark_group(contest.name.to_string());
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    for mut contestant in contest.contestants {
        group.throughput(Throughput::Bytes(contestant.turn_bytes as u64));
        group.bench_function(contestant.name, |bencher| {
            bencher.iter_custom(|turns| (0..turns).map(|_| (contestant.turn)()).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, contests);
criterion_main!(benches);
