//! `refrain check`: does this pair work, and how fast is the way between.

use refrain_gateway::{
    check,
    options::{CheckOptions, Role},
};

#[derive(clap::Args)]
pub struct CheckArguments {
    #[command(flatten)]
    options: CheckOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let config = arguments.options.resolve()?;
    let _log = crate::log_to_stderr(config.log);
    crate::warn_of_unread_variables(Role::Check);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime
        .block_on(check::check(&config))
        .map_err(anyhow::Error::msg)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    let median = report.round_trips_ms[report.round_trips_ms.len() / 2];
    println!(
        "{} works: both keys are right, both speak wire version {}",
        report.peer, report.wire_version
    );
    println!("handshake    {:9.1} ms", report.handshake_ms);
    println!("hello        {:9.1} ms", report.hello_ms);
    println!(
        "round trip   {median:9.1} ms, {:.1} to {:.1}",
        report.round_trips_ms[0],
        report.round_trips_ms[report.round_trips_ms.len() - 1]
    );
    println!(
        "throughput   {:10.2} Mbit/s from there to here",
        report.receive_mbit_per_s
    );
    println!(
        "             {:10.2} Mbit/s from here to there",
        report.send_mbit_per_s
    );
    Ok(())
}
