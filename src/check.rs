//! `refrain check`: does this pair work, and how fast is the way between.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use refrain_gateway::{
    arguments::CheckOptions,
    check::{self, CheckReport, Reached},
    options::Role,
    status::Peer,
    target::Target,
    units::three_digits,
};

use crate::{
    bounded,
    local::{self, Found, Place},
    log::LogForm,
};

/// Between two looks at a gateway whose link is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    options: CheckOptions,
    /// Wait up to TIME for the far end if it is not running yet
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true,
          value_parser = bounded::time_from(Duration::ZERO))]
    wait: Duration,
    /// Print one JSON object per peer, with `error` if the check fails
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogForm,
}

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let options = &arguments.options;
    if !options.names_a_pair() {
        let (admin, token) = (options.admin()?, options.admin_token_file()?);
        let token = token.as_deref().map(local::read_token).transpose()?;
        let near_end = || near_end(admin.as_ref(), token.as_deref());
        return ask_near_end(near_end, arguments.wait, arguments.json);
    }
    let config = options.resolve()?;
    let _log = arguments.log.begin(config.log);
    crate::warn_of_unread_variables(Role::Check);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut result = Ok(());
    for dial in &config.dials {
        let report = runtime.block_on(check::check_within(&config, dial, arguments.wait));
        let mut out = io::stdout().lock();
        match report {
            Ok(report) if arguments.json => writeln!(out, "{}", serde_json::to_string(&report)?)?,
            Ok(report) => print(&report, &mut out)?,
            Err(error) => {
                drop(out);
                let peer = Some(&dial.address);
                result = result.and(Err(failed(error.into(), peer, arguments.json)));
            }
        }
    }
    result
}

/// Reports the links of the near end that runs here; an error if one is down.
fn ask_near_end(
    near_end: impl Fn() -> anyhow::Result<Found>,
    wait: Duration,
    json: bool,
) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let is_late = began.elapsed() >= wait;
        match near_end() {
            Ok(found) => {
                let peers = &found.status.peers;
                if is_late || peers.iter().all(|peer| peer.up) {
                    let mut reports = peers.iter();
                    return reports.try_for_each(|peer| report(&found.place, peer, json));
                }
            }
            Err(error) if is_late => return Err(failed(error, None, json)),
            Err(_) => {}
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

fn near_end(admin: Option<&Place>, token: Option<&str>) -> anyhow::Result<Found> {
    let found = match admin {
        Some(place) => local::ask(place, token)?,
        None => {
            let mut found = local::find("--peer, --key and --peer-key")?;
            if found.iter().any(|found| found.status.role == "near") {
                // A far end next to it waits for others.
                found.retain(|found| found.status.role == "near");
            }
            local::only(found)?
        }
    };
    if found.status.role != "near" {
        bail!(
            "the gateway at {} is a far end, and `refrain check` tests from a near end: run it there (`refrain status` \
             shows the near ends that are connected here)",
            found.place
        );
    }
    Ok(found)
}

fn report(place: &Place, peer: &Peer, json: bool) -> anyhow::Result<()> {
    if json {
        writeln!(io::stdout(), "{}", serde_json::to_string(peer)?)?;
    }
    let name = match &peer.address {
        Some(address) if *address != peer.label() => {
            format!("{} at {address}", peer.label())
        }
        _ => peer.label(),
    };
    if !peer.up {
        let reason = peer
            .last_error
            .as_deref()
            .unwrap_or("the reason is unknown");
        bail!("the link to {name} is down: {reason}");
    }
    if json {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    writeln!(out, "the link to {name} is up (near end at {place})")?;
    writeln!(out, "lanes        {:10}", peer.lanes)?;
    match peer.round_trip_ms {
        Some(round_trip) => writeln!(out, "round trip   {round_trip:10.2} ms, smoothed")?,
        None => writeln!(out, "round trip   not measured yet")?,
    }
    writeln!(
        out,
        "to measure throughput, give --peer, --key and --peer-key"
    )?;
    Ok(())
}

/// Prints the error as JSON too, if JSON is asked for; the caller reports it on standard error.
fn failed(error: anyhow::Error, peer: Option<&Target>, json: bool) -> anyhow::Error {
    if json {
        let mut report = serde_json::json!({ "error": crate::in_words(&error) });
        if let Some(peer) = peer {
            report["peer"] = peer.to_string().into();
        }
        // There is an error to report already.
        let _ = writeln!(io::stdout(), "{report}");
    }
    error
}

fn print(report: &CheckReport, out: &mut impl Write) -> io::Result<()> {
    let Reached {
        peer,
        handshake_ms,
        hello_ms,
        round_trip_ms,
        round_trips_ms: round_trips,
        wire_version,
    } = &report.reached;
    writeln!(
        out,
        "the connection to {peer} works: both keys are correct, both ends use wire version {wire_version}"
    )?;
    writeln!(out, "handshake    {handshake_ms:10.2} ms, TCP and TLS")?;
    writeln!(out, "first answer {hello_ms:10.2} ms after the handshake")?;
    writeln!(
        out,
        "round trip   {round_trip_ms:10.2} ms, smoothed over {} pings of {:.2} to {:.2} ms",
        round_trips.len(),
        round_trips[0],
        round_trips[round_trips.len() - 1]
    )?;
    writeln!(
        out,
        "throughput   {} from the peer to this end",
        rate(report.receive_mbit_per_s)
    )?;
    writeln!(
        out,
        "             {} from this end to the peer",
        rate(report.send_mbit_per_s)
    )
}

/// A rate with three digits.
fn rate(mbit_per_s: f64) -> String {
    let (rate, unit) = match mbit_per_s < 999.5 {
        true => (mbit_per_s, "Mbit/s"),
        false => (mbit_per_s / 1000.0, "Gbit/s"),
    };
    format!("{:>10} {unit}", three_digits(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (mbit_per_s, text) in [
            (0.5, "0.50 Mbit/s"),
            (94.321, "94.3 Mbit/s"),
            (999.7, "1.00 Gbit/s"),
            (13_164.18, "13.2 Gbit/s"),
            (250_000.0, "250 Gbit/s"),
        ] {
            assert_eq!(rate(mbit_per_s).trim_start(), text);
        }
    }
}
