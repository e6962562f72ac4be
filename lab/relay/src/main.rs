//! `refrain-relay`: the relay as a program. It prints its address, relays until it is
//! interrupted or terminated, and prints what has crossed.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use refrain_relay::check::check;
use refrain_relay::units::{parse_duration, parse_size};
use refrain_relay::{Counts, CutAfter, LinkConfig, Rate, Relay, RelayConfig};
use serde::Serialize;
use tokio::net::lookup_host;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

/// A TCP relay that behaves like a slow, long or lossy link.
///
/// It prints its address, relays until SIGINT or SIGTERM, then prints its counts.
/// Exit codes: 0 success, 1 the check failed or the relay could not run, 2 invalid arguments.
#[derive(Parser)]
#[command(name = "refrain-relay", version)]
struct Arguments {
    /// Listen for clients on this address; port 0 takes any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// Connect to this address for each client
    #[arg(long, value_name = "ADDR", required_unless_present = "check")]
    to: Option<String>,
    /// Limit the payload rate per direction, over all connections, such as 100Mbit [default: unlimited]
    #[arg(long)]
    rate: Option<Rate>,
    /// Delay each direction by this time; a connect waits one round trip more
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    delay: Duration,
    /// Queue at most this many bytes in front of the link, such as 256KiB [default: 20 ms of the
    /// rate, at least 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    queue: Option<usize>,
    /// Let a connection have at most this many bytes in flight [default: twice the rate times the
    /// delay, at least 256KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    window: Option<usize>,
    /// Stall a connection's direction before a segment with this probability, as if it were lost
    #[arg(long, value_name = "0..1", default_value_t = 0.0)]
    stall_probability: f64,
    /// Stall for this time
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_duration)]
    stall: Duration,
    /// Use segments of this size as the unit of turns and stalls
    #[arg(long, value_name = "SIZE", default_value = "1460", value_parser = parse_bytes)]
    segment: usize,
    /// Select the segments that stall: the same seed stalls the same segments
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Reset every connection once, after this many bytes in total or this time after the first
    /// connection, such as 10MiB or 5s
    #[arg(long, value_name = "SIZE|TIME")]
    cut_after: Option<CutAfter>,
    /// Set SO_RCVBUF and SO_SNDBUF of the relay's sockets [default: 64KiB with a rate, otherwise
    /// the kernel's]
    #[arg(long, value_name = "SIZE", value_parser = parse_socket_buffer)]
    socket_buffer: Option<u32>,
    /// Also print the counts at this interval, such as 1s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Measure the given settings with real transfers on loopback instead of relaying; fail if one
    /// is off by more than 10 %
    #[arg(long, conflicts_with_all = ["to", "cut_after", "every"])]
    check: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = if arguments.check {
        check_settings(&arguments).await
    } else {
        relay(&arguments).await
    };
    result.unwrap_or_else(|error| {
        eprintln!("refrain-relay: {error}");
        ExitCode::FAILURE
    })
}

async fn check_settings(arguments: &Arguments) -> io::Result<ExitCode> {
    let report = check(&arguments.link()).await?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(if report.passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn relay(arguments: &Arguments) -> io::Result<ExitCode> {
    let target = arguments.to.as_deref().unwrap_or_default();
    let relay = Relay::start(RelayConfig {
        listen: resolve(&arguments.listen).await?,
        link: arguments.link(),
        socket_buffer_bytes: arguments.socket_buffer,
        cut_after: arguments.cut_after,
        ..RelayConfig::to(resolve(target).await?)
    })
    .map_err(|error| in_context(error, &format!("cannot relay from {}", arguments.listen)))?;
    if arguments.json {
        print_json(&serde_json::json!({ "address": relay.address() }))?;
    } else {
        print(format_args!(
            "relaying from {} to {target}",
            relay.address()
        ))?;
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
    print_counts(&relay.counts(), arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn link(&self) -> LinkConfig {
        LinkConfig {
            rate: self.rate,
            delay: self.delay,
            queue_bytes: self.queue,
            window_bytes: self.window,
            segment_bytes: self.segment,
            stall_probability: self.stall_probability,
            stall: self.stall,
            seed: self.seed,
        }
    }
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

fn parse_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("\"{text}\" is too large for this machine"))
}

fn parse_socket_buffer(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("\"{text}\" is too large (must be less than 4 GiB)"))
}
