//! The gateways that run here: what they report, and their limits.

use std::fs;

use refrain_gateway::{machine::memory_bytes_of, status::Peer};

use super::{Finding, context::Context, milliseconds};
use crate::kernel_file::text_of;
use crate::{
    local::{AskError, Found},
    table::{age, bytes, count},
};

/// With fewer, a limit on open files is soon met: `docs/run.md` advises 65536.
const OPEN_FILES_MIN: u64 = 16_384;

/// What to do where a gateway runs, and has no local socket that this command finds.
pub(super) const ADVICE_WITHOUT_SOCKET: &str = "run it as the owner of the directory of local sockets, or remove that \
                                                directory (usually /run/refrain), and restart it";

/// Those that answer, and those that do not.
pub(super) fn running(context: &Context) -> Vec<Finding> {
    let looked = match context.gateways() {
        Ok(looked) => looked,
        Err(error) => {
            let advice = "run this as root or as the gateway's user";
            return vec![Finding::skipped(error).advise(advice)];
        }
    };
    let found = looked.found.iter().map(version);
    let silent = looked.silent.iter().map(silent);
    let without_socket = context.without_socket().map(|process| {
        let none = looked.none.as_ref();
        let none = none.map_or_else(String::new, |none| format!(": {none}"));
        let number = process.number;
        Finding::problem(
            format!(
                "process {number} (refrain) has a port of the file, but no local socket here{none}"
            ),
            ADVICE_WITHOUT_SOCKET,
        )
    });
    let mut findings: Vec<_> = found.chain(silent).chain(without_socket).collect();
    if let Some(none) = looked.none.as_ref().filter(|_| findings.is_empty()) {
        findings.push(match none.is_denied {
            true => Finding::skipped(none.to_string())
                .advise("run this as root or as the gateway's user"),
            false => Finding::problem(
                none.to_string(),
                "start one: `refrain near --config FILE`, or `systemctl start refrain-near` for the installed service",
            ),
        });
    }
    findings
}

fn version(found: &Found) -> Finding {
    let (status, own) = (&found.status, env!("CARGO_PKG_VERSION"));
    let process = found.place.process();
    let process = process.map_or_else(String::new, |number| format!("process {number}, "));
    let text = format!(
        "{} end, version {}, up {}, {process}at {}",
        status.role,
        status.version,
        age(status.uptime_s),
        found.place
    );
    match status.version == own {
        true => Finding::ok(text),
        false => Finding::note(format!("{text}; this program has version {own}"))
            .advise("restart the gateway to run the version that is installed"),
    }
}

fn silent(error: &AskError) -> Finding {
    let advice = match (error, error.place().process()) {
        (AskError::Silent { .. }, Some(process)) => {
            format!("continue it with `kill -CONT {process}`, or restart it")
        }
        _ => "restart the gateway".to_owned(),
    };
    Finding::problem(error.to_string(), advice)
}

/// The link of each peer.
pub(super) fn links(context: &Context) -> Vec<Finding> {
    let peers = context.found().iter().flat_map(|found| {
        let peers = found.status.peers.iter();
        let is_up = |key: &str| {
            let mut peers = found.status.peers.iter();
            peers.any(|peer| peer.up && peer.key == key)
        };
        // A peer that has started again has left a link.
        let current = peers.filter(move |peer| peer.up || !is_up(&peer.key));
        current.map(|peer| {
            let mut finding = link(peer, &found.status.role, context);
            if context.found().len() > 1 {
                finding.text = format!("{}: {}", called(found, context), finding.text);
            }
            finding
        })
    });
    peers.collect()
}

/// A gateway, told from the others of this machine.
fn called(found: &Found, context: &Context) -> String {
    let role = &found.status.role;
    let mut others = context.found().iter();
    let has_others = others.any(|other| other.status.role == *role && other.place != found.place);
    match found.place.process().filter(|_| has_others) {
        Some(process) => format!("{role} end (process {process})"),
        None => format!("{role} end"),
    }
}

fn link(peer: &Peer, role: &str, context: &Context) -> Finding {
    let last = peer.last_error.as_ref().map(|error| {
        let ago = peer
            .last_error_s
            .map_or_else(String::new, |age_s| format!(" ({} ago)", age(age_s)));
        format!("{error}{ago}")
    });
    let label = peer.label();
    if peer.up {
        let round_trip = peer
            .round_trip_ms
            .map(|ms| format!(", round trip {}", milliseconds(ms)));
        let mut text = format!(
            "{label}: up, {}{}, {}",
            count(peer.lanes as u64, "lane", "lanes"),
            round_trip.unwrap_or_default(),
            count(peer.flows_open as u64, "flow", "flows")
        );
        if let Some(reason) = peer
            .serves_reason
            .as_ref()
            .filter(|_| peer.serves == Some(false))
        {
            text += &format!("; gets no new flows: {reason}");
        }
        return match last {
            None => Finding::ok(text),
            Some(error) => Finding::note(format!("{text}; last error: {error}")),
        };
    }
    let down = peer.down_s.map(|down_s| format!(" for {}", age(down_s)));
    let down = down.unwrap_or_default();
    let reason = last.map_or_else(String::new, |last| format!(": {last}"));
    let text = format!("{label}: down{down}{reason}");
    match (role, &context.file) {
        // A site may be offline.
        ("far", _) => {
            Finding::note(text).advise("if it should be up, run `refrain doctor` at the near end")
        }
        (_, Some(_)) => Finding::problem(text, "see \"peers\""),
        (_, None) => Finding::problem(
            text,
            "start the far end there, and compare its --listen with the near end's --peer (with --config FILE of the near \
             end, doctor tests the peer)",
        ),
    }
}

/// The stores of near ends.
pub(super) fn stores(context: &Context) -> Vec<Finding> {
    let found = context.found().iter();
    let stores = found.filter_map(|found| found.status.store.as_ref());
    let findings = stores.map(|store| match (&store.last_error, store.is_open) {
        (None, true) => Finding::ok(format!(
            "\"{}\": {} of {}",
            store.path,
            bytes(store.disk_bytes),
            bytes(store.disk_bytes_max)
        )),
        (error, _) => {
            let error = error.as_deref().unwrap_or("it is not open yet");
            Finding::problem(
                format!("\"{}\": {error}; traffic continues without it", store.path),
                "fix the cause; the store is tried again automatically",
            )
        }
    });
    findings.collect()
}

/// The bound of each gateway, against what its machine or control group has.
pub(super) fn memory(context: &Context) -> Vec<Finding> {
    let findings = context.found().iter().filter_map(|found| {
        let process = found.place.process()?.to_string();
        let (bound, has) = (found.status.memory.bound_bytes, memory_bytes_of(&process)?);
        let text = format!(
            "{}: limit {}, of {} that its machine or container has",
            called(found, context),
            bytes(bound),
            bytes(has)
        );
        Some(match bound < has {
            true => Finding::ok(text),
            false => Finding::problem(text, "lower `memory`, or the kernel may kill the gateway"),
        })
    });
    findings.collect()
}

/// The limit on open files of each gateway, and how many it has open.
pub(super) fn open_files(context: &Context) -> Vec<Finding> {
    let findings = context.found().iter().filter_map(|found| {
        let process = found.place.process()?;
        let limit = open_files_max(&text_of(format!("/proc/{process}/limits"))?)?;
        let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
        let role = &found.status.role;
        let text = format!("{role} end (process {process}): {open} of at most {limit}");
        let advice = "raise the limit to 65536 or more (LimitNOFILE in the unit, ulimit -n), and restart the gateway";
        Some(match (open > limit / 10 * 9, limit < OPEN_FILES_MIN) {
            (true, _) => Finding::problem(text, advice),
            (false, true) => {
                Finding::note(format!("{text}, few for many connections")).advise(advice)
            }
            (false, false) => Finding::ok(text),
        })
    });
    findings.collect()
}

/// The limit on open files in a process's `limits`.
fn open_files_max(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let values = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    match values.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_open_files_is_read() {
        let own = text_of("/proc/self/limits").expect("Linux has it");
        assert!(open_files_max(&own).is_some_and(|limit| limit > 8), "{own}");
        assert_eq!(
            open_files_max("Max open files  unlimited unlimited"),
            Some(u64::MAX)
        );
        for text in ["", "Max open files", "Max open files   many", "\u{0}Max"] {
            assert_eq!(open_files_max(text), None);
        }
    }
}
