//! Debian's programs, which `lab/setup` installs: found, run with a time limit, or skipped.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Whether all of `programs` are here. If not, the test is to return; where
/// `REFRAIN_REQUIRE_PROGRAMS=1`, it fails.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    are_installed_or_skipped(programs, "lab/setup", &["1", "all"])
}

/// The same for programs that are too large for every run: the test fails only where `REFRAIN_REQUIRE_PROGRAMS=all`.
pub(crate) fn are_large_ones_installed(programs: &[&str]) -> bool {
    are_installed_or_skipped(programs, "lab/setup --ecosystems", &["all"])
}

fn are_installed_or_skipped(programs: &[&str], installer: &str, required_by: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| find(program).is_none()) else {
        return true;
    };
    let message = format!("{missing} is not installed ({installer} installs it)");
    let required = env::var("REFRAIN_REQUIRE_PROGRAMS");
    assert!(
        !required.is_ok_and(|value| required_by.contains(&&*value)),
        "{message}"
    );
    eprintln!("skipped: {message}");
    false
}

/// A program's path. Servers live in sbin, which is not on every user's path, and those of PostgreSQL in a folder for
/// each version.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .chain(versions)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Puts a program at `target`, by a process of its own: a file that this one has open for writing cannot be run as long
/// as a child that another test is about to start has it open too ("Text file busy").
pub(crate) fn install(program: &Path, target: &Path) {
    let installed = Command::new("install")
        .args(["--mode=755", "--"])
        .args([program, target])
        .status()
        .expect("install(1) runs");
    assert!(installed.success(), "cannot install {}", target.display());
}

/// The same with a script's text.
pub(crate) fn install_script(text: &str, target: &Path) {
    let source = target.with_extension("text");
    fs::write(&source, text).expect("a new file");
    install(&source, target);
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
