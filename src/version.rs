//! `refrain version`.

use std::io::{self, Write};

use crate::standard_io;

/// As `--version` prints it, but for the name: the commit is unknown where the source has no history.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("REFRAIN_COMMIT"),
    "\ntarget: ",
    env!("REFRAIN_TARGET"),
);

pub(crate) fn run() -> anyhow::Result<()> {
    writeln!(io::stdout(), "refrain {LONG}").map_err(standard_io::output_failed)
}
