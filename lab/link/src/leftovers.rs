//! Links that nothing would remove: those of a process that a signal ends.

use std::{fs, process, thread};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::namespace::{ip, name_prefix};

/// On SIGINT, SIGTERM and SIGHUP, kills the programs in this process's links, removes the links and exits.
///
/// # Errors
/// The system takes no such handler.
pub fn remove_on_signals() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            remove_all(&name_prefix(process::id()));
            process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Removes the links of processes that have ended.
pub(crate) fn remove_abandoned() {
    for name in names() {
        let number = name.strip_prefix("refrain-link-");
        let process = number
            .and_then(|rest| rest.split_once('-'))
            .map(|(id, _)| id);
        let Some(Ok(process)) = process.map(str::parse) else {
            continue;
        };
        if !fs::exists(format!("/proc/{process}")).unwrap_or(true) {
            remove_all(&name_prefix(process));
        }
    }
}

fn remove_all(prefix: &str) {
    for name in names().filter(|name| name.starts_with(prefix)) {
        let programs = ip(&["netns", "pids", &name]).unwrap_or_default();
        let ids = programs.split_whitespace().flat_map(str::parse);
        for id in ids.filter_map(Pid::from_raw) {
            // One that fails has ended by itself.
            let _ = kill_process(id, Signal::KILL);
        }
        let _ = ip(&["netns", "delete", &name]);
    }
}

/// All network namespaces of this machine that have names.
fn names() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
