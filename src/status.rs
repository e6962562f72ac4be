//! `refrain status`: what a running gateway does.

use std::{io::Write, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use refrain_gateway::status::{Direction, Peer, Status};

use crate::table::{Table, bytes, percent};

#[derive(clap::Args)]
pub struct StatusArguments {
    /// The gateway's admin listener
    #[arg(long, env = "REFRAIN_ADMIN", value_name = "IP:PORT")]
    admin: SocketAddr,
    /// A file that holds the admin token
    #[arg(long, env = "REFRAIN_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &StatusArguments) -> anyhow::Result<()> {
    let text = fetch(arguments)?;
    if arguments.json {
        println!("{text}");
        return Ok(());
    }
    let status: Status = serde_json::from_str(&text).context("the answer is no status")?;
    print(&status, &mut std::io::stdout().lock())?;
    Ok(())
}

fn fetch(arguments: &StatusArguments) -> anyhow::Result<String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(5)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.get(format!("http://{}/status", arguments.admin));
    if let Some(path) = &arguments.admin_token_file {
        let token = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        request = request.header("Authorization", format!("Bearer {}", token.trim()));
    }
    let mut response = request.call().with_context(|| {
        format!(
            "no gateway answers at {}: is it running, with --admin?",
            arguments.admin
        )
    })?;
    match response.status().as_u16() {
        200 => Ok(response.body_mut().read_to_string()?),
        401 => bail!("the gateway wants its admin token: give --admin-token-file"),
        other => bail!(
            "{} answered with HTTP status {other}: is it a refrain gateway?",
            arguments.admin
        ),
    }
}

fn print(status: &Status, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "refrain {} {}, up {:.0} s; memory {} of {} reserved, {} in use",
        status.role,
        status.version,
        status.uptime_s,
        bytes(status.memory.reserved_bytes),
        bytes(status.memory.bound_bytes),
        bytes(status.memory.allocated_bytes),
    )?;
    let mut peers = Table::new(&[
        "peer",
        "lanes",
        "rtt",
        "direction",
        "app",
        "link",
        "saved",
        "matching",
        "zstd",
        "cache",
        "bypassed",
        "holes",
        "effort",
    ]);
    for peer in &status.peers {
        add_peer(&mut peers, peer);
    }
    writeln!(out)?;
    peers.print(out)?;
    for peer in &status.peers {
        if let Some(effort) = &peer.effort {
            writeln!(
                out,
                "effort: p = {}, zstd {} ({})",
                effort.period_bytes, effort.zstd_level, effort.reason
            )?;
        }
        if let Some(error) = &peer.last_error {
            writeln!(out, "{}: {error}", name(peer))?;
        }
    }
    if status.flows.is_empty() {
        return writeln!(out, "\nno open flows");
    }
    let mut flows = Table::new(&[
        "flow",
        "target",
        "opened",
        "age",
        "class",
        "direction",
        "app",
        "link",
        "saved",
    ]);
    for flow in &status.flows {
        for (direction, counts) in [("sent", &flow.sent), ("received", &flow.received)] {
            flows.row([
                flow.id.to_string(),
                flow.target.clone(),
                flow.opened.clone(),
                format!("{:.0} s", flow.age_s),
                flow.class.clone(),
                direction.to_owned(),
                bytes(counts.app_bytes),
                bytes(counts.link_bytes),
                saved(counts),
            ]);
        }
    }
    writeln!(out)?;
    flows.print(out)
}

fn add_peer(table: &mut Table, peer: &Peer) {
    for (direction, counts) in [("sent", &peer.sent), ("received", &peer.received)] {
        let is_sent = direction == "sent";
        table.row([
            name(peer),
            if peer.up {
                peer.lanes.to_string()
            } else {
                "down".to_owned()
            },
            peer.round_trip_ms
                .map_or("-".to_owned(), |time| format!("{time:.1} ms")),
            direction.to_owned(),
            bytes(counts.app_bytes),
            bytes(counts.link_bytes),
            saved(counts),
            percent(counts.matching_saved_bytes as f64, counts.app_bytes as f64),
            percent(counts.zstd_saved_bytes as f64, counts.app_bytes as f64),
            percent(counts.cache_filled_bytes as f64, counts.cache_bytes as f64),
            counts.bypassed_blocks.to_string(),
            if is_sent {
                peer.holes.to_string()
            } else {
                "-".to_owned()
            },
            match &peer.effort {
                Some(effort) if is_sent => {
                    format!("p{} z{}", effort.period_bytes, effort.zstd_level)
                }
                _ => "-".to_owned(),
            },
        ]);
    }
}

fn name(peer: &Peer) -> String {
    peer.name.clone().unwrap_or_else(|| peer.key.clone())
}

fn saved(counts: &Direction) -> String {
    percent(
        counts.app_bytes as f64 - counts.link_bytes as f64,
        counts.app_bytes as f64,
    )
}
