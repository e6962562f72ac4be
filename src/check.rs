//! `refrain check`: does this pair work, and how fast is the way between.

use std::io::{self, Write};

use refrain_gateway::{
    check::{self, CheckReport},
    options::{CheckOptions, Role},
};

use crate::log::LogForm;

#[derive(clap::Args)]
pub struct CheckArguments {
    #[command(flatten)]
    options: CheckOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogForm,
}

pub fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let config = arguments.options.resolve()?;
    let _log = arguments.log.begin(config.log);
    crate::warn_of_unread_variables(Role::Check);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime
        .block_on(check::check(&config))
        .map_err(anyhow::Error::msg)?;
    let mut out = io::stdout().lock();
    match arguments.json {
        true => writeln!(out, "{}", serde_json::to_string(&report)?)?,
        false => print(&report, &mut out)?,
    }
    Ok(())
}

fn print(report: &CheckReport, out: &mut impl Write) -> io::Result<()> {
    let median = report.round_trips_ms[report.round_trips_ms.len() / 2];
    writeln!(
        out,
        "{} works: both keys are right, both speak wire version {}",
        report.peer, report.wire_version
    )?;
    writeln!(out, "handshake    {:10.2} ms", report.handshake_ms)?;
    writeln!(out, "hello        {:10.2} ms", report.hello_ms)?;
    writeln!(
        out,
        "round trip   {median:10.2} ms, {:.2} to {:.2}",
        report.round_trips_ms[0],
        report.round_trips_ms[report.round_trips_ms.len() - 1]
    )?;
    writeln!(
        out,
        "throughput   {:10.2} Mbit/s from there to here",
        report.receive_mbit_per_s
    )?;
    writeln!(
        out,
        "             {:10.2} Mbit/s from here to there",
        report.send_mbit_per_s
    )
}
