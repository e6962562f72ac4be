//! A terminal of the test's own.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::Command,
};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal's two ends: the keyboard's, and the programs'.
pub(crate) fn terminal() -> (File, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&keyboard).expect("it is ours");
    unlockpt(&keyboard).expect("it is ours");
    let name = ptsname(&keyboard, Vec::new()).expect("it has a name");
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    let programs = OpenOptions::new().read(true).write(true).open(name);
    (keyboard.into(), programs.expect("it opens"))
}

/// The command in the foreground of a terminal, started by another one.
pub(crate) fn on_terminal(terminal: &File, starter: &[&str], run: &Command) -> Command {
    let mut child = Command::new("setsid");
    child.args(["--ctty", "--wait"]).args(starter);
    child.arg(run.get_program()).args(run.get_args());
    child.envs(
        run.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    child.current_dir(run.get_current_dir().expect("a folder"));
    let end = || terminal.try_clone().expect("a terminal");
    child.stdin(end()).stdout(end()).stderr(end());
    child
}
