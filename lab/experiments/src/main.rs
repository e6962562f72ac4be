//! Experiments whose tables stand in `docs/`.
//!
//! Most run real gateways on this machine, between them a relay where a slower link is
//! wanted. Each prints a page of Markdown, or writes it to a file. Its targets, and whether they are met, go to
//! standard error.

mod analyze;
mod bulk;
mod chapters;
mod corpus;
mod czip;
mod default_marker;
mod ecosystems;
mod failing_open;
mod interception;
mod latency;
mod links;
mod lossy;
mod machine;
mod markers;
mod median;
mod over_link;
mod pair;
mod peers;
mod predictions;
mod processes;
mod savings;
mod seeded;
mod sender_cpu;
mod services;
mod slow_link;
mod targets;
mod writes;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Run experiments, most of them with real gateways, and print the results as Markdown
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Measure the savings of a pair, compared with zstd, on several corpora
    Savings {
        /// Read test data from this directory
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Write the page to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Measure how many markers each algorithm selects, and how much that saves
    Markers {
        /// Read test data from this directory
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Write the tables into this page instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Measure link bytes and the sender's CPU time by marker algorithm and sampling period
    DefaultMarker {
        /// Read test data from this directory
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Measure this program over sockets
        #[arg(long, default_value = "target/release/refrain")]
        refrain: PathBuf,
        /// Measure each way this many times
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Write the page to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Measure the savings and the speed of predictions by round trip, in virtual time
    Predictions {
        /// Read test data from this directory
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Print all figures as JSON instead of the page
        #[arg(long)]
        json: bool,
        /// Write to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Measure lost segments and slow start over the lab's link, as root
    Lossy(lossy::Arguments),
    /// Measure latency over the lab's link, as root: HTTP transactions, Silesia, first bytes, round trips
    Latency(latency::Arguments),
    /// Measure the sender's CPU time for predictions
    SenderCpu {
        /// Measure this program
        #[arg(long, default_value = "target/release/refrain")]
        refrain: PathBuf,
        /// Measure each way this many times
        #[arg(long, default_value_t = 20)]
        pairs: usize,
        /// Print all figures as JSON instead of the page
        #[arg(long)]
        json: bool,
        /// Write to this file instead of standard output
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Copy an origin's responses into TLS, for `sender-cpu` to measure
    #[command(name = sender_cpu::BARE_TLS, hide = true)]
    BareTls {
        listen: SocketAddr,
        origin: SocketAddr,
        key: PathBuf,
        peer_key: String,
    },
    /// Compare CZIP archives with other tools: size, transfer, speed, memory
    Czip(czip::Arguments),
    /// Measure the search for redundancy in bulk data: the figures of HARENS
    Bulk(bulk::Arguments),
    /// Compare the pair with other programs, and with caches before and after it
    Peers(peers::Arguments),
    /// Measure slow and high-latency links, as root: transfers, effort, fairness and keystrokes over the lab's link
    Links(links::Arguments),
    /// Replay captures through a pair, as root, and compare
    Analyze(analyze::Arguments),
    /// Run a program as the only child of a process, for `czip` to measure
    #[command(name = czip::MEASURED, hide = true)]
    Measured {
        report: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Measure package managers, images, git, databases, files, backups and pages through a pair, as root
    Ecosystems(ecosystems::Arguments),
    /// Measure the cost of interception for connections that cannot gain, and of `refrain run`, as root
    Interception(interception::Arguments),
    /// Measure what connections see when a gateway, the link or the firewall's rules fail, as root
    FailingOpen(failing_open::Arguments),
    /// Measure the cost of services: the time of small requests, and the memory of idle streams
    Services(services::Arguments),
    /// Measure speed and savings by the size of an application's writes
    Writes {
        /// Measure this program
        #[arg(long, default_value = "target/release/refrain")]
        refrain: PathBuf,
        /// Read test data from this directory
        #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
        data: PathBuf,
        /// Measure everything this many times
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
        Experiment::Analyze(arguments) => (analyze::run(&arguments), arguments.write),
        Experiment::Links(arguments) => (links::run(&arguments), arguments.write),
        Experiment::Ecosystems(arguments) => (ecosystems::run(&arguments), arguments.write),
        Experiment::Interception(arguments) => (interception::run(&arguments), arguments.write),
        Experiment::FailingOpen(arguments) => (failing_open::run(&arguments), arguments.write),
        Experiment::Services(arguments) => (services::run(&arguments), arguments.write),
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
