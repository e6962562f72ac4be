//! A terminal of the test's own.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    os::unix::ffi::OsStrExt,
    path::Path,
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
