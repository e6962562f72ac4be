//! `refrain version`.

use std::io::{self, Write};

/// As `--version` prints it, but for the name: the commit is unknown where the source has no history.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("REFRAIN_COMMIT"),
    "\ntarget: ",
    env!("REFRAIN_TARGET"),
);

pub(crate) fn run() -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "refrain {LONG}")?)
}
