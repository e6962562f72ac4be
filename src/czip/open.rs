//! Opens archives to read them.

use std::{
    fs::File,
    io::{self, Seek},
    path::Path,
};

use anyhow::Context;
use refrain_czip::archive::{Archive, CacheBytes, FileSource};

use super::{
    keys::UnlockArguments,
    standard_io::{self, StandardInput},
};
use crate::interrupt::Interrupt;

/// What a path is called when it stands for standard input or output.
pub const STANDARD: &str = "-";

/// Opens the archive at `path`. A pipe on standard input goes to a temporary file without a name
/// first: an archive is not read in order.
pub fn open(path: &Path, interrupt: &Interrupt) -> anyhow::Result<Archive<FileSource>> {
    let called = called(path);
    let file = match path.as_os_str() == STANDARD {
        true => standard_input(interrupt),
        false => File::open(path),
    };
    let source = file.and_then(FileSource::new);
    let source = source.with_context(|| called.clone())?;
    Archive::open(source, CacheBytes::default()).context(called)
}

/// The same, unlocked if it is encrypted.
pub fn open_unlocked(
    path: &Path,
    keys: &UnlockArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Archive<FileSource>> {
    let mut archive = open(path, interrupt)?;
    keys.unlock(&mut archive).with_context(|| called(path))?;
    Ok(archive)
}

/// The same, unlocked if it is encrypted and keys were given.
pub fn open_with(
    path: &Path,
    keys: &UnlockArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Archive<FileSource>> {
    match keys.are_given() {
        true => open_unlocked(path, keys, interrupt),
        false => open(path, interrupt),
    }
}

/// What messages call it.
pub fn called(path: &Path) -> String {
    match path.as_os_str() == STANDARD {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

fn standard_input(interrupt: &Interrupt) -> io::Result<File> {
    let mut file = standard_io::input()?;
    if file.metadata()?.is_file() && file.stream_position()? == 0 {
        return Ok(file);
    }
    let mut spool = tempfile::tempfile()?;
    io::copy(&mut StandardInput::new(interrupt)?, &mut spool)?;
    Ok(spool)
}
