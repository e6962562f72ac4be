//! `refrain-relay`: the relay as a program. It prints its address, relays until it is
//! interrupted or terminated, and prints what has crossed.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use refrain_relay::units::parse_duration;
use refrain_relay::{Counts, LinkConfig, Rate, Relay, RelayConfig};
use serde::Serialize;
use tokio::net::lookup_host;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

/// A TCP relay that behaves like a slow or long link.
///
/// It prints its address, relays until SIGINT or SIGTERM, then prints its counts.
/// Exit codes: 0 success, 1 the relay could not run, 2 invalid arguments.
#[derive(Parser)]
#[command(name = "refrain-relay", version)]
struct Arguments {
    /// Listen for clients on this address; port 0 takes any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// Connect to this address for each client
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// Limit the payload rate per direction, over all connections, such as 100Mbit [default: unlimited]
    #[arg(long)]
    rate: Option<Rate>,
    /// Delay each direction by this time; a connect waits one round trip more
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    delay: Duration,
    /// Also print the counts at this interval, such as 1s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match relay(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refrain-relay: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn relay(arguments: &Arguments) -> io::Result<()> {
    let Arguments { listen, to, .. } = arguments;
    let relay = Relay::start(RelayConfig {
        listen: resolve(listen).await?,
        target: resolve(to).await?,
        link: LinkConfig {
            rate: arguments.rate,
            delay: arguments.delay,
        },
    })
    .map_err(|error| in_context(error, &format!("cannot relay from {listen}")))?;
    if arguments.json {
        print_json(&serde_json::json!({ "address": relay.address() }))?;
    } else {
        print(format_args!("relaying from {} to {to}", relay.address()))?;
    }

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut report = arguments
        .every
        .filter(|every| !every.is_zero())
        .map(interval);
    if let Some(report) = &mut report {
        report.set_missed_tick_behavior(MissedTickBehavior::Skip);
        report.tick().await;
    }
    loop {
        let next_report = async {
            match &mut report {
                Some(report) => report.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = next_report => print_counts(&relay.counts(), arguments.json)?,
        }
    }
    print_counts(&relay.counts(), arguments.json)
}

fn print_counts(counts: &Counts, json: bool) -> io::Result<()> {
    if json {
        print_json(counts)
    } else {
        print(counts)
    }
}

fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(serde_json::to_string(value)?)
}

/// As `println!`, but a reader that went away is an error and no panic.
fn print(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

async fn resolve(address: &str) -> io::Result<SocketAddr> {
    let mut found = lookup_host(address).await.map_err(|error| {
        in_context(
            error,
            &format!("\"{address}\" is not an address with a port"),
        )
    })?;
    found
        .next()
        .ok_or_else(|| io::Error::other(format!("\"{address}\" has no address")))
}

fn in_context(error: io::Error, context: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{context}: {error}"))
}
