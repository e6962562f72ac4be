//! The machine and the commit that figures come from.

use std::process::Command;

use anyhow::{Context, ensure};

/// One line: processor, cores, and that all ran on loopback.
pub(crate) fn describe() -> String {
    format!("{}, loopback", processor())
}

/// How many there are.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// The processor and its cores.
pub(crate) fn processor() -> String {
    let cores = cores();
    let model = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    format!("{model}, {cores} cores (virtual)")
}

/// What follows the commit in a version if tracked files other than pages have changed since.
const CHANGED: &str = "-dirty";

/// The commit that is checked out, and whether anything but pages is not as it says.
pub(crate) fn version() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]);
    // Pages are written one after the other.
    let status = [
        "status",
        "--porcelain",
        "-uno",
        "--",
        ":/",
        ":(exclude,top)docs",
    ];
    let changed = git(&status).is_some_and(|changed| !changed.is_empty());
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    format!("{commit}{}", if changed { CHANGED } else { "" })
}

/// The commit of a version, and whether files have changed since.
pub(crate) fn commit_of(version: &str) -> (&str, bool) {
    match version.strip_suffix(CHANGED) {
        Some(commit) => (commit, true),
        None => (version, false),
    }
}

/// A version as pages name it.
pub(crate) fn version_in_words(version: &str) -> String {
    match commit_of(version) {
        (commit, true) => format!("{commit} (with uncommitted changes)"),
        (commit, false) => commit.to_owned(),
    }
}

/// Programs that run on it now: the load over a minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or_default()
}

/// The version of a package of Debian.
pub(crate) fn package_version(package: &str) -> anyhow::Result<String> {
    let mut command = Command::new("dpkg-query");
    command.args(["--show", "--showformat=${Version}", package]);
    let output = command.output().context("cannot run dpkg-query")?;
    let version = String::from_utf8(output.stdout)?;
    ensure!(
        !version.is_empty(),
        "{package} is not installed: run lab/setup --peers"
    );
    Ok(version)
}

/// The day, in UTC.
pub(crate) fn date() -> anyhow::Result<String> {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let output = output.context("cannot run date")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_uncommitted_changes_in_words() {
        assert_eq!(commit_of("1234567-dirty"), ("1234567", true));
        assert_eq!(version_in_words("1234567"), "1234567");
        let words = version_in_words("1234567-dirty");
        assert_eq!(words, "1234567 (with uncommitted changes)");
    }
}
