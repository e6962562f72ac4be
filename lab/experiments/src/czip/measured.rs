//! What a program costs as a whole process: wall time, processor time, peak memory.
//!
//! The system counts processor time and memory of all children that a process waited for. So each
//! program is the only child of a process of its own: this program, with a hidden subcommand, which
//! is small when it starts it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, ensure};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use serde::{Deserialize, Serialize};

use crate::median::median;

/// The hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "measured";

/// What it took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub wall_s: f64,
    /// User and system, of it and its children.
    pub cpu_s: f64,
    /// The most that one of its processes had at a time.
    pub peak_bytes: u64,
}

/// Writes to a program's standard input.
pub(super) type Feed<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Runs `command` in `folder`, and gives what it cost and what it wrote. What `feed` writes is its
/// standard input.
pub(super) fn measure<'a>(
    command: impl IntoIterator<Item = &'a OsStr>,
    folder: &Path,
    feed: Option<Feed<'_>>,
) -> anyhow::Result<(Cost, Vec<u8>)> {
    let command: Vec<&OsStr> = command.into_iter().collect();
    let report = tempfile::NamedTempFile::new()?;
    let mut measurer = Command::new(std::env::current_exe()?);
    measurer
        .arg(SUBCOMMAND)
        .arg(report.path())
        .args(&command)
        .current_dir(folder)
        // Caches and settings are as on a new machine, and the server is on this one.
        .env("HOME", folder)
        .env_remove("http_proxy")
        .env("RESTIC_PASSWORD", "none")
        .stdin(match feed {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = measurer.spawn()?;
    if let Some(feed) = feed {
        let mut stdin = child.stdin.take().context("no pipe")?;
        // A program that ends early says itself why.
        feed(&mut stdin).ok();
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok((
        serde_json::from_slice(&std::fs::read(report.path())?)?,
        output.stdout,
    ))
}

/// Runs `command`, and writes what it cost to `report`.
pub(crate) fn run(report: &Path, command: &[OsString]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("no program")?;
    let began = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let wall_s = began.elapsed().as_secs_f64();
    ensure!(status.success(), "{}: {status}", program.display());
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu = usage.user_time() + usage.system_time();
    let cost = Cost {
        wall_s,
        cpu_s: cpu.num_microseconds() as f64 / 1e6,
        peak_bytes: usage.max_rss().cast_unsigned() << 10,
    };
    Ok(std::fs::write(report, serde_json::to_vec(&cost)?)?)
}

/// The medians of all that was measured.
pub(super) fn medians(costs: &[Cost]) -> Cost {
    let of = |figure: fn(&Cost) -> f64| median(costs.iter().map(figure));
    Cost {
        wall_s: of(|cost| cost.wall_s),
        cpu_s: of(|cost| cost.cpu_s),
        peak_bytes: of(|cost| cost.peak_bytes as f64).round() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost_of(script: &str) -> anyhow::Result<Cost> {
        let report = tempfile::NamedTempFile::new()?;
        run(report.path(), &["bash", "-c", script].map(OsString::from))?;
        Ok(serde_json::from_slice(&std::fs::read(report.path())?)?)
    }

    #[test]
    fn children_of_a_program_count() {
        // 64 MiB in a variable of a grandchild.
        let script = "bash -c 'x=$(head -c 67108864 /dev/zero | tr \"\\0\" x); echo ${#x}' >&2";
        let cost = cost_of(script).expect("bash");
        assert!(cost.peak_bytes > 64 << 20, "{cost:?}");
        assert!(cost.cpu_s > 0.0 && cost.wall_s > 0.0, "{cost:?}");
    }

    #[test]
    fn a_program_that_fails_is_an_error() {
        assert!(cost_of("exit 3").is_err());
    }
}
