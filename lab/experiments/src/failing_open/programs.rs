//! Programs of others that the experiment runs to their end.

use std::process::Command;

use anyhow::{Context, ensure};

/// The options of `setpriv` for a user that has a group of its own.
pub(super) fn as_user(user: u32) -> [String; 3] {
    let number = ["--reuid", "--regid"].map(|option| format!("{option}={user}"));
    let [user, group] = number;
    [user, group, "--clear-groups".to_owned()]
}

/// Runs a command to its end, and gives what it printed.
pub(super) fn ok(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
