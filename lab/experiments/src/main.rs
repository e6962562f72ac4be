//! Experiments whose tables stand in `docs/`.
//!
//! Each runs real gateways on this machine, between them a relay where a slower link is
//! wanted, and prints Markdown. `--write FILE` puts the tables between the marks in FILE.

mod corpus;
mod machine;
mod pair;
mod savings;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Experiments on real gateways; each prints Markdown.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// What a pair saves, against zstd on its own, on several corpora
    Savings {
        /// The folder of test data
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Write the table to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().experiment {
        Experiment::Savings { data, write } => savings::run(&data).and_then(|page| match write {
            Some(path) => Ok(std::fs::write(path, page)?),
            None => {
                print!("{page}");
                Ok(())
            }
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refrain-experiments: {error:#}");
            ExitCode::FAILURE
        }
    }
}
