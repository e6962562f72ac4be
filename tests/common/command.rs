//! The program, run to its end.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use super::{eventually, programs::install};

/// Runs `refrain` to its end, without the environment's own options.
pub(crate) fn refrain(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program runs")
}

/// Runs `refrain`, which must fail: its exit code and standard error.
#[track_caller]
pub(crate) fn refrain_fails(arguments: &[&str]) -> (i32, String) {
    let mut child = command(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let ended = eventually(&format!("refrain {} ends", arguments.join(" ")), || {
        child.try_wait().expect("a child's status")
    });
    let error = io::read_to_string(child.stderr.take().expect("it is piped"));
    assert!(
        !ended.success(),
        "refrain {} succeeded",
        arguments.join(" ")
    );
    (
        ended.code().expect("no signal ended it"),
        error.expect("messages are text"),
    )
}

/// The signals that end programs, and the exit codes that tell them. Without a hangup where the tests
/// were started to ignore it, as by `nohup`: so are the programs that they start.
pub(crate) fn ending_signals() -> Vec<(&'static str, i32)> {
    let mut signals = vec![("INT", 130), ("TERM", 143), ("HUP", 129)];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map(|mask| u64::from_str_radix(mask.trim(), 16).expect("a mask"));
    if ignored.is_some_and(|mask| mask & 1 == 1) {
        println!("skipped: HUP, which is ignored here");
        signals.pop();
    }
    signals
}

/// Puts the program into a folder that other users can read, unlike that of a build.
pub(crate) fn program_in(folder: &Path) -> PathBuf {
    let (built, program) = (env!("CARGO_BIN_EXE_refrain"), folder.join("program"));
    if fs::hard_link(built, &program).is_err() {
        install(built.as_ref(), &program);
    }
    program
}

/// Makes a key, and returns its public one.
pub(crate) fn keygen(path: &Path) -> String {
    let made = refrain(&["keygen", &path.display().to_string()]);
    let error = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "refrain keygen: {error}");
    String::from_utf8_lossy(&made.stdout).trim().to_owned()
}

/// `refrain` with `arguments`, not yet run.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program(arguments));
    command.env_clear().args(arguments).stdin(Stdio::null());
    // A bug that is planted on purpose, in a build that has them.
    command.envs(env::var_os("REFRAIN_PLANT").map(|bug| ("REFRAIN_PLANT", bug)));
    command
}

/// The program for a command. `REFRAIN_TEST_NEAR` and `REFRAIN_TEST_FAR` name another version of it for one end, so
/// that any test of a pair is one of two versions.
fn program(arguments: &[&str]) -> OsString {
    let other = match arguments.first() {
        Some(&"near") => env::var_os("REFRAIN_TEST_NEAR"),
        Some(&"far") => env::var_os("REFRAIN_TEST_FAR"),
        _ => None,
    };
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_refrain").into())
}

/// The same, with a limit on its open files.
pub(crate) fn command_with_files(arguments: &[&str], files: u32) -> Command {
    let mut command = Command::new("sh");
    let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
    command.env_clear().args(["-c", &limited]);
    command.arg(program(arguments)).args(arguments);
    command.stdin(Stdio::null());
    command
}
