//! A link as a program: makes it, checks it, and runs a command at its near end.
#![forbid(unsafe_code)]

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Parser;
use refrain_link::{End, Link, LinkConfig};
use refrain_relay::{Rate, units::parse_duration};

/// Connect two network namespaces by a link over which programs use real TCP
///
/// The far end is 10.99.0.2. `ip netns exec $REFRAIN_LINK_FAR COMMAND` runs another program there. Needs root.
#[derive(Debug, Parser)]
struct Options {
    /// Limit the rate in bits per second, headers included, such as 100Mbit [default: unlimited]
    #[arg(long)]
    rate: Option<Rate>,
    /// Delay each direction by this time
    #[arg(long, default_value = "0ms", value_parser = parse_duration)]
    delay: Duration,
    /// Let a packet wait at most this time for those before it
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    queue: Duration,
    /// Lose this percentage of the packets
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Deliver this percentage of the packets after later ones
    #[arg(long, default_value_t = 0.0)]
    reorder: f64,
    /// Select the lost and the late packets by this seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this command at the near end; without a command, only check the link
    #[arg(last = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    run(&Options::parse()).unwrap_or_else(|error| {
        eprintln!("refrain-link: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: &Options) -> anyhow::Result<ExitCode> {
    refrain_link::remove_on_signals()?;
    let link = Link::start(LinkConfig {
        rate: options.rate,
        delay: options.delay,
        queue: options.queue,
        loss: options.loss / 100.0,
        reorder: options.reorder / 100.0,
        seed: options.seed,
    })?;
    eprintln!("link: {}", link.check()?);
    let [program, arguments @ ..] = &options.command[..] else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = link.command(End::Near, program);
    command
        .args(arguments)
        .env("REFRAIN_LINK_FAR", link.name(End::Far));
    let status = command.status().with_context(|| program.clone())?;
    for (from, to) in [(End::Near, "up"), (End::Far, "down")] {
        let counts = link.counts(from);
        eprintln!(
            "link: {to} {} packets, {} bytes; {} lost, {} dropped by a full queue",
            counts.packets(),
            counts.bytes(),
            counts.lost(),
            counts.dropped()
        );
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
