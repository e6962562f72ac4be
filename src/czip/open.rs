//! Opens archives to read them.

use std::{
    fs::File,
    io::{self, Seek, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use anyhow::Context;
use refrain_czip::{
    archive::{Archive, CacheBytes, FileSource, RemoteSource, Source},
    format::catalog::Entry,
    remote::RemoteOptions,
};

use super::{
    headers::HeaderArguments,
    keys::UnlockArguments,
    retry,
    standard_io::{self, EndableInput},
};
use crate::{interrupt::Interrupt, progress};

/// What a path is called when it stands for standard input or output.
pub const STANDARD: &str = "-";

/// What an archive is to be read with, beside where it is.
#[derive(clap::Args)]
pub struct AccessArguments {
    #[command(flatten)]
    keys: UnlockArguments,
    #[command(flatten)]
    headers: HeaderArguments,
}

/// A file, or a URL.
pub type AnySource = Box<dyn Source>;

/// Opens the archive at `path`, or at a URL: that is read block by block. A pipe on standard input goes
/// to a temporary file without a name first: an archive is not read in order.
fn open(
    path: &Path,
    access: &AccessArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Archive<AnySource>> {
    let called = called(path);
    let headers = access.headers.read()?;
    let source = source(path, headers, interrupt).with_context(|| called.clone())?;
    Archive::open(source, CacheBytes::default()).context(called)
}

/// The same, unlocked if it is encrypted.
pub fn open_unlocked(
    path: &Path,
    access: &AccessArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Archive<AnySource>> {
    let mut archive = open(path, access, interrupt)?;
    let unlocked = access.keys.unlock(&mut archive);
    unlocked.with_context(|| called(path))?;
    Ok(archive)
}

/// The same, unlocked if it is encrypted and keys were given.
pub fn open_with(
    path: &Path,
    access: &AccessArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Archive<AnySource>> {
    match access.keys.are_given() {
        true => open_unlocked(path, access, interrupt),
        false => open(path, access, interrupt),
    }
}

fn source(
    path: &Path,
    headers: Vec<(String, String)>,
    interrupt: &Interrupt,
) -> anyhow::Result<AnySource> {
    if let Some(url) = url(path) {
        let options = RemoteOptions {
            headers,
            on_retry: retry::told(),
            ..RemoteOptions::default()
        };
        let source = RemoteSource::open(url, options, RemoteSource::CACHE_BYTES)?;
        return Ok(Box::new(source));
    }
    let file = match path.as_os_str() == STANDARD {
        true => standard_input(interrupt)?,
        false => File::open(path)?,
    };
    Ok(Box::new(FileSource::new(file)?))
}

/// The address, if it is one rather than a path.
fn url(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let is_url = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    is_url.then_some(text)
}

/// What messages call it. What follows a `?` in an address is often a signature that opens the door.
pub fn called(path: &Path) -> String {
    match url(path).and_then(|url| url.split_once('?')) {
        Some((address, _)) => format!("{address}?..."),
        None if path.as_os_str() == STANDARD => "standard input".to_owned(),
        None => path.display().to_string(),
    }
}

/// The entries of the archive at `path`. Standard input's only file has the name that it is extracted by, if
/// there is one.
pub fn entries(archive: &Archive<AnySource>, path: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut entries = archive.entries().with_context(|| called(path))?;
    if let [entry] = &mut entries[..]
        && entry.path.is_empty()
    {
        entry.path = stream_name(path).unwrap_or_default();
    }
    Ok(entries)
}

/// What the file of an archive of standard input is called: as the archive, without `.czip`.
pub fn stream_name(archive: &Path) -> Option<Vec<u8>> {
    let name = archive.file_name()?.as_bytes();
    let name = name.strip_suffix(b".czip")?;
    (!name.is_empty()).then(|| name.to_vec())
}

fn standard_input(interrupt: &Interrupt) -> io::Result<File> {
    let mut file = standard_io::input()?;
    if file.metadata()?.is_file() && file.stream_position()? == 0 {
        return Ok(file);
    }
    let spool = tempfile::tempfile().map_err(no_room)?;
    let bar = progress::of_bytes(standard_io::input_left());
    bar.set_message("to a temporary file");
    let mut reader = bar.wrap_read(EndableInput::standard(interrupt)?);
    let copied = io::copy(&mut reader, &mut Spool(&spool));
    bar.finish_and_clear();
    copied?;
    Ok(spool)
}

/// A temporary file whose errors say where it is.
struct Spool<'a>(&'a File);

impl Write for Spool<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(no_room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// There is no temporary file, or no room for it.
fn no_room(error: io::Error) -> io::Error {
    // Who tries again has to see what it is.
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    let folder = std::env::temp_dir();
    io::Error::new(
        error.kind(),
        format!(
            "it goes to a temporary file in {}, which failed: {error}; TMPDIR names another folder",
            folder.display()
        ),
    )
}
