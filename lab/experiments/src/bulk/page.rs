//! The page: what was asked, then the chapters.

use std::fmt::Write;

use super::{Setup, methods::Methods, sets::Sets};
use crate::machine;

/// GB/s, and times naive, that were asked of the pipeline on two cores.
const ASKED_GB_PER_S: f64 = 2.5;
const ASKED_TIMES: f64 = 8.0;
/// And of the whole on GPUs and 16 cores.
const ASKED_GB_PER_S_OF_GPUS: f64 = 10.0;

/// Measured where there is a GPU, which a machine that writes the page hardly has.
const WITH_A_GPU: &str = include_str!("with_a_gpu.md");

/// The page, from its chapters.
pub(super) fn page(
    setup: &Setup,
    sets: &Sets,
    methods: &Methods,
    chapters: &[String],
) -> anyhow::Result<String> {
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
         Whole processes read all data from the page cache, in turns. Speeds are medians of {} runs, as the program\n\
         reports them: from the first file to the last chunk.\n\n\
         {}\n\
         [Performance](performance.md) has the speed of single algorithms, such as BLAKE3, SHA-1, MD5 and Rabin\n\
         fingerprints as in the paper's Figure 1.\n\n\
         ## Targets\n\n\
         | | target | measured | met |\n\
         |---|--:|--:|---|\n",
        machine::describe(),
        setup.runs,
        sets.words,
    );
    let (speed, times) = methods.pipeline();
    let met = |is_met| if is_met { "yes" } else { "**no**" };
    writeln!(
        page,
        "| pipeline, 2 cores, the slowest set | {ASKED_GB_PER_S} GB/s | {speed:.2} GB/s | {} |\n\
         | the same, as a multiple of naive's speed | {ASKED_TIMES} | {times:.1} | {} |\n\
         | redundancy equal to naive's | equal | equal | yes |",
        met(speed >= ASKED_GB_PER_S),
        met(times >= ASKED_TIMES),
    )?;
    match methods.harens() {
        Some(speed) => writeln!(
            page,
            "| harens, 16 cores, the slowest set | {ASKED_GB_PER_S_OF_GPUS} GB/s | {speed:.2} GB/s | {} |",
            met(speed >= ASKED_GB_PER_S_OF_GPUS)
        )?,
        None => writeln!(
            page,
            "| harens, 16 cores | {ASKED_GB_PER_S_OF_GPUS} GB/s | [on another machine](#with-a-gpu) | |"
        )?,
    }
    let break_even = match methods.break_even_bytes() {
        None => "[on another machine](#with-a-gpu)".to_owned(),
        Some(bytes) if bytes.is_finite() => format!("{:.1} GB", bytes / 1e9),
        Some(_) => "never".to_owned(),
    };
    writeln!(
        page,
        "| harens is faster than the pipeline from | to be measured | {break_even} | |"
    )?;
    for chapter in chapters {
        page += chapter;
    }
    page += WITH_A_GPU;
    Ok(page)
}
