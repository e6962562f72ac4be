//! Debian's programs, which `lab/setup` installs: found, run with a time limit, or skipped.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Whether all of `programs` are here. If not, the test is to return; where
/// `REFRAIN_REQUIRE_PROGRAMS=1`, it fails.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| find(program).is_none()) else {
        return true;
    };
    let message = format!("{missing} is not installed (lab/setup installs it)");
    let required = env::var("REFRAIN_REQUIRE_PROGRAMS").is_ok_and(|value| value == "1");
    assert!(!required, "{message}");
    eprintln!("skipped: {message}");
    false
}

/// A program's path. Servers live in sbin, which is not on every user's path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Runs a program in `folder`, without its user's own settings, for at most a minute.
pub(crate) fn run(program: &str, folder: &Path, arguments: &[&str]) -> Output {
    let path = find(program).expect("its presence was tested");
    Command::new("timeout")
        .args(["--kill-after=5", "60"])
        .arg(path)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1) runs")
}

/// Runs a program that must succeed; gives its standard output.
#[track_caller]
pub(crate) fn run_ok(program: &str, folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = run(program, folder, arguments);
    let (status, error) = (output.status, String::from_utf8_lossy(&output.stderr));
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}: {error}"
    );
    output.stdout
}
