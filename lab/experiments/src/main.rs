//! Experiments whose tables stand in `docs/`.
//!
//! Most run real gateways on this machine, between them a relay where a slower link is
//! wanted. Each prints a page of Markdown, or writes it to a file.

mod bulk;
mod chapters;
mod corpus;
mod czip;
mod default_marker;
mod ecosystems;
mod latency;
mod links;
mod lossy;
mod machine;
mod markers;
mod over_link;
mod pair;
mod peers;
mod predictions;
mod processes;
mod savings;
mod seeded;
mod sender_cpu;
mod slow_link;
mod targets;
mod writes;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Experiments, most of them on real gateways; each prints Markdown.
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
        /// Write the page to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// What each marker algorithm selects, and what that saves
    Markers {
        /// The folder of test data
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Put the table into this page instead of on standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Link bytes and the sender's CPU time by marker algorithm and sampling period
    DefaultMarker {
        /// The folder of test data
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// The program to measure over sockets
        #[arg(long, default_value = "target/release/refrain")]
        refrain: PathBuf,
        /// How often each way takes its turn
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Write the page to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// What predictions replace, and how fast, by the round trip, in virtual time
    Predictions {
        /// The folder of test data
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// All figures as JSON instead of the page
        #[arg(long)]
        json: bool,
        /// Write to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Lost segments and slow start over the lab's link, as root
    Lossy(lossy::Arguments),
    /// Latency over the lab's link, as root: HTTP transactions, Silesia, first bytes, round trips
    Latency(latency::Arguments),
    /// What predictions cost the sender in CPU time
    SenderCpu {
        /// The program to measure
        #[arg(long, default_value = "target/release/refrain")]
        refrain: PathBuf,
        /// How often each way takes its turn
        #[arg(long, default_value_t = 20)]
        pairs: usize,
        /// All figures as JSON instead of the page
        #[arg(long)]
        json: bool,
        /// Write to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// A sender that copies an origin's answers into TLS, for `sender-cpu` to measure
    #[command(name = sender_cpu::BARE_TLS, hide = true)]
    BareTls {
        listen: SocketAddr,
        origin: SocketAddr,
        key: PathBuf,
        peer_key: String,
    },
    /// CZIP archives beside their peers: size, transfer, speed, memory
    Czip(czip::Arguments),
    /// Finding redundancy in bulk: the figures of HARENS
    Bulk(bulk::Arguments),
    /// The pair beside other programs, and with caches before and after it
    Peers(peers::Arguments),
    /// Thin and long links: transfers, effort, fairness and keystrokes over the lab's link, as root
    Links(links::Arguments),
    /// A program as the only child of a process, for `czip` to measure
    #[command(name = czip::MEASURED, hide = true)]
    Measured {
        report: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Package managers, images, git, databases, files, backups and pages through a pair
    Ecosystems(ecosystems::Arguments),
    /// Speed and savings by the size of an application's writes
    Writes {
        /// The program to measure
        #[arg(long, default_value = "target/release/refrain")]
        refrain: PathBuf,
        /// The folder of test data
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// How often each thing is measured
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Write the page to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    if let Err(error) = refrain_link::remove_on_signals() {
        eprintln!("refrain-experiments: {error:#}");
        return ExitCode::FAILURE;
    }
    let (page, write) = match Arguments::parse().experiment {
        Experiment::Savings { data, write } => (savings::run(&data), write),
        Experiment::Markers { data, write } => (markers::run(&data, write.as_deref()), write),
        Experiment::DefaultMarker {
            data,
            refrain,
            runs,
            write,
        } => (default_marker::run(&data, &refrain, runs), write),
        Experiment::Predictions { data, json, write } => (predictions::run(&data, json), write),
        Experiment::Lossy(arguments) => (lossy::run(&arguments), arguments.write),
        Experiment::Latency(arguments) => (latency::run(&arguments), arguments.write),
        Experiment::SenderCpu {
            refrain,
            pairs,
            json,
            write,
        } => (sender_cpu::run(&refrain, pairs, json), write),
        Experiment::BareTls {
            listen,
            origin,
            key,
            peer_key,
        } => (
            sender_cpu::serve_bare_tls(listen, origin, &key, &peer_key),
            None,
        ),
        Experiment::Czip(arguments) => (czip::run(&arguments), arguments.write),
        Experiment::Links(arguments) => (links::run(&arguments), arguments.write),
        Experiment::Ecosystems(arguments) => (ecosystems::run(&arguments), arguments.write),
        Experiment::Bulk(arguments) => (bulk::run(&arguments), arguments.write),
        Experiment::Peers(arguments) => (peers::run(&arguments), arguments.write),
        Experiment::Measured { report, command } => (
            czip::run_measured(&report, &command).map(|()| String::new()),
            None,
        ),
        Experiment::Writes {
            refrain,
            data,
            runs,
            write,
        } => (writes::run(&refrain, &data, runs), write),
    };
    let result = page.and_then(|page| match write {
        Some(path) => Ok(std::fs::write(path, page)?),
        None => {
            print!("{page}");
            Ok(())
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refrain-experiments: {error:#}");
            ExitCode::FAILURE
        }
    }
}
