//! `refrain-sim`: as many runs as wanted, or one that failed, step by step.

use std::{
    io::{IsTerminal, stderr},
    process::ExitCode,
};

use clap::Parser;
#[cfg(feature = "planted")]
use refrain_proto::planted::Bug;
use refrain_sim::{Kind, Kinds, Suite, run_many, run_seed};

/// Run both ends of a link under a virtual clock, with faults of all kinds between them
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Run this many seeds
    #[arg(long, default_value_t = 10_000, conflicts_with = "seed")]
    seeds: u64,
    /// Begin with this seed
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    from: u64,
    /// Run only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print each step of the run to stderr
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Plant this bug: refer-across-lanes, no-settlement, early-holes, credit-leak or early-release
    #[cfg(feature = "planted")]
    #[arg(long)]
    plant: Option<Bug>,
    /// Use this many threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    #[cfg(feature = "planted")]
    if let Some(bug) = options.plant {
        bug.plant();
    }
    let suite = match options.seed {
        Some(seed) => one_run(seed, options.trace),
        None => run_many(options.from, options.seeds, options.threads, &progress()),
    };
    let missing: Vec<&str> = suite.missing().into_iter().map(Kind::name).collect();
    if options.json {
        print_json(&suite, &missing);
    } else {
        print_table(&suite.kinds);
        println!("{} runs", suite.runs);
    }
    if let Some(failed) = &suite.failed {
        eprintln!("{failed}");
    } else if !missing.is_empty() {
        eprintln!("never occurred: {}", missing.join(", "));
    } else {
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn one_run(seed: u64, trace: bool) -> Suite {
    let mut suite = Suite {
        runs: 1,
        ..Suite::default()
    };
    match run_seed(seed, trace) {
        Ok(kinds) => suite.kinds = kinds,
        Err(failed) => suite.failed = Some(failed),
    }
    suite
}

fn progress() -> impl Fn(u64) + Sync {
    let shows = stderr().is_terminal();
    move |runs| {
        if shows && runs % 100 == 0 {
            eprint!("\r{runs} runs");
        }
    }
}

fn print_table(kinds: &Kinds) {
    for kind in Kind::ALL {
        println!("{:24} {:>12}", kind.name(), kinds.count(kind));
    }
}

fn print_json(suite: &Suite, missing: &[&str]) {
    let kinds: Vec<String> = Kind::ALL
        .iter()
        .map(|&kind| format!("\"{}\":{}", kind.name(), suite.kinds.count(kind)))
        .collect();
    let missing: Vec<String> = missing.iter().map(|name| format!("\"{name}\"")).collect();
    let failed = match &suite.failed {
        Some(failed) => failed.seed.to_string(),
        None => "null".to_owned(),
    };
    println!(
        "{{\"runs\":{},\"failed_seed\":{failed},\"missing\":[{}],\"kinds\":{{{}}}}}",
        suite.runs,
        missing.join(","),
        kinds.join(",")
    );
}
