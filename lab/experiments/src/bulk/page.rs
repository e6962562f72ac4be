//! The page, and its targets.

use super::{Setup, methods::Methods, sets::Sets};
use crate::{
    machine,
    median::medians_of,
    targets::{Target, at_least},
};

/// GB/s, and times naive, of the pipeline on two cores.
const GB_PER_S: f64 = 2.5;
const TIMES: f64 = 8.0;
/// And of the whole on GPUs and 16 cores.
const GB_PER_S_OF_GPUS: f64 = 10.0;

/// Measured where there is a GPU, which a machine that writes the page hardly has.
const WITH_A_GPU: &str = include_str!("with_a_gpu.md");

/// The page, from its chapters.
pub(super) fn page(setup: &Setup, sets: &Sets, methods: &Methods, chapters: &[String]) -> String {
    let (simd, gpus) = methods.hardware();
    let gpus = match &gpus[..] {
        [] => "no GPU".to_owned(),
        gpus => gpus.join(", "),
    };
    let mut page = format!(
        "# Finding redundancy in bulk\n\n\
         Written by `cargo run --release -p refrain-experiments -- bulk --write docs/results-bulk.md`. Files or\n\
         directories after this command replace the data below.\n\
         {}, {simd}; {gpus}. GB = 10^9 bytes.\n\n\
         Whole processes read all data from the page cache, in turns. Speeds are {}, as the program\n\
         reports them: from the first file to the last chunk. No network takes part.\n\n\
         {}\n\
         [Performance](performance.md) has the speed of single algorithms, such as BLAKE3, SHA-1 and MD5. Rabin\n\
         fingerprints are there too, as in the paper's Figure 1.\n",
        machine::describe(),
        medians_of(setup.runs),
        sets.words,
    );
    for chapter in chapters {
        page += chapter;
    }
    page += WITH_A_GPU;
    page
}

/// The bounds that the figures are checked against. That all methods find the same is checked while they are measured.
pub(super) fn targets(methods: &Methods) -> Vec<Target> {
    let gb_per_s = |speed: f64, bound| at_least(speed, bound, format!("{speed:.2} GB/s"));
    let (speed, times) = methods.pipeline();
    vec![
        Target {
            what: "pipeline, 2 cores, the slowest set",
            asked: "2.5 GB/s",
            measured: Some(gb_per_s(speed, GB_PER_S)),
        },
        Target {
            what: "the same, as a multiple of naive's speed",
            asked: "8",
            measured: Some(at_least(times, TIMES, format!("{times:.1}"))),
        },
        Target {
            what: "harens, 16 cores, the slowest set",
            asked: "10 GB/s",
            measured: methods
                .harens()
                .map(|speed| gb_per_s(speed, GB_PER_S_OF_GPUS)),
        },
    ]
}
