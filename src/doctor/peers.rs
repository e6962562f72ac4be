//! The peers of a near end's file: each is connected to, as `refrain check` does, and answers.

use std::{io, sync::Arc, time::Duration};

use anyhow::Context as _;
use refrain_gateway::{
    check::{CheckError, Reached, reach},
    config::{Config, Dial},
    gateway::ConnectError,
    options::Role,
    tls::TlsError,
};
use tokio::{runtime::Builder, task::JoinSet, time::timeout};

use super::{Finding, context::Context, milliseconds};
use crate::in_words;

/// How long a peer may take to open a connection, and all in all.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);
const WITHIN: Duration = Duration::from_secs(9);

/// Each peer that the file dials.
pub(super) fn peers(context: &Context) -> Vec<Finding> {
    let Some(config) = context.config() else {
        return match (
            &context.file,
            context
                .found()
                .iter()
                .any(|found| found.status.role == "near"),
        ) {
            (None, true) => vec![
                Finding::skipped("the path to the peers is not tested")
                    .advise("give --config FILE of the near end"),
            ],
            _ => Vec::new(),
        };
    };
    if config.role == Role::Far {
        return Vec::new();
    }
    let mut config = config.clone();
    config.timeouts.connect = config.timeouts.connect.min(CONNECT_WITHIN);
    look(config).unwrap_or_else(|error| vec![Finding::skipped(in_words(&error))])
}

fn look(config: Config) -> anyhow::Result<Vec<Finding>> {
    let config = Arc::new(config);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        let mut looks = JoinSet::new();
        for (nth, dial) in config.dials.iter().cloned().enumerate() {
            let config = Arc::clone(&config);
            looks.spawn(async move {
                let reached = timeout(WITHIN, reach(&config, &dial)).await;
                (nth, finding(&config, &dial, reached.ok()))
            });
        }
        let mut findings = Vec::new();
        while let Some(found) = looks.join_next().await {
            findings.push(found.context("a check of a peer failed")?);
        }
        findings.sort_by_key(|(nth, _)| *nth);
        Ok(findings.into_iter().map(|(_, finding)| finding).collect())
    });
    // A name server that hangs holds up its thread.
    runtime.shutdown_background();
    found
}

fn finding(config: &Config, dial: &Dial, reached: Option<Result<Reached, CheckError>>) -> Finding {
    let (label, address) = (config.peers.label(&dial.key), dial.address.to_string());
    let named = match label == address {
        true => address.clone(),
        false => format!("{label} at {address}"),
    };
    match reached {
        Some(Ok(reached)) => Finding::ok(format!(
            "{named}: both keys are accepted, round trip {}, large packets pass, wire version {}",
            milliseconds(reached.round_trip_ms),
            reached.wire_version
        )),
        Some(Err(error)) => {
            let advice = advice(&error);
            let error = in_words(&error.into());
            // With an advice of its own, it would have two.
            let inner = error
                .strip_suffix(')')
                .and_then(|error| error.rsplit_once(" ("));
            let error = inner.map_or(&error[..], |(error, _)| error);
            let text = match error.contains(&address) {
                true => error.to_owned(),
                false => format!("{named}: {error}"),
            };
            Finding::problem(text, advice)
        }
        None => Finding::problem(
            format!(
                "{named}: accepted the connection, but did not end the check within {WITHIN:?}"
            ),
            "look for loss in the path, and at the load of the far end",
        ),
    }
}

/// What to do.
fn advice(error: &CheckError) -> &'static str {
    match error {
        CheckError::Connect(ConnectError::Name { .. } | ConnectError::NoAddress(_)) => {
            "correct the name in `peer`, or the DNS of this machine"
        }
        CheckError::Connect(ConnectError::Tcp { error, .. })
            if error.kind() == io::ErrorKind::ConnectionRefused =>
        {
            "start the far end, and compare `peer` with its `listen` and the firewalls between"
        }
        CheckError::Connect(ConnectError::Tcp { .. }) => {
            "correct the address in `peer`, or the routes to it"
        }
        CheckError::Connect(ConnectError::TimedOut { .. }) => {
            "correct the address in `peer`, see whether its name is resolved, or have the firewalls between let TCP to its \
             port pass"
        }
        CheckError::Connect(ConnectError::Proxy { .. }) => {
            "see that the proxy runs and is the one in `via_proxy`, that it allows CONNECT to the address and port in `peer`, \
             and that the far end runs"
        }
        CheckError::Connect(ConnectError::Tls(error) | ConnectError::Tunnel(error))
        | CheckError::Tls(error) => of_tls(error),
        CheckError::Refused(_) => "read the log of the far end",
        CheckError::LargePackets(_) => {
            "lower the MTU of this machine's interface, or have firewalls let ICMP \"fragmentation needed\" pass"
        }
        CheckError::Hello(_) | CheckError::Frame(_) => "update the older of the two ends",
        _ => "see whether the far end hangs, and read its log",
    }
}

fn of_tls(error: &TlsError) -> &'static str {
    match error {
        TlsError::WrongKey { .. } => {
            "run `refrain keygen --show FILE` at the far end: if it prints this key, correct `peer_key` here, and otherwise the \
             address in `peer`"
        }
        TlsError::OwnKey { .. } => "give each end its own key",
        TlsError::KeyRefused { .. } => {
            "add this key to `peer_key` at the far end, and send it SIGHUP"
        }
        TlsError::NotTls { .. } => "correct the address or the port in `peer`",
        TlsError::Incompatible { .. } => {
            "correct the port in `peer`, or have the device that opens TLS let this connection pass"
        }
        TlsError::Damaged { .. } => "test the memory and the network cards in the path",
        TlsError::TimedOut { .. } => {
            "see whether the far end hangs, or another program has its port"
        }
        _ => "read the log of the far end; look for a device in the path that cuts connections",
    }
}
