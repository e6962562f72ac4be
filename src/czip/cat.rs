//! `refrain czip cat`: the plain content, or some of it.

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    ops::Range,
};

use anyhow::Context;
use indicatif::ProgressBar;
use refrain_czip::archive::{Archive, ReadError, copy_checked};
use refrain_czip_format::catalog;

use super::{
    bounded,
    open::{AnySource, ArchiveArguments, meant},
    range::ByteRange,
    standard_io, threads,
};
use crate::{interrupt::Interrupt, progress};

#[derive(clap::Args)]
pub(super) struct CatArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    /// Write only this file, named as in `list`, with or without `./` before it [default: all files, in order]
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// Write only the bytes from START up to, but not including, END, such as 1GiB-1GiB+64KiB, 100-200 or 4096-
    ///
    /// A range that ends after the last byte is an error. 200K is 200000 bytes. 200KiB is 204800 bytes, which dd, head
    /// and tail call 200K. Only the needed parts of the archive are read.
    #[arg(long, value_name = "START-END", allow_hyphen_values = true)]
    range: Option<ByteRange>,
    /// Decompress with N threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
}

pub(super) fn run(arguments: &CatArguments) -> anyhow::Result<()> {
    let called = arguments.archive.called();
    // Ctrl-C ends it at once: nothing lies around.
    let archive = arguments.archive.open_unlocked(&Interrupt::default())?;
    // A range is of this file, so an error about it names the file.
    let named = match &arguments.path {
        None => called.clone(),
        Some(path) => format!("{called}: \"{}\"", path.display()),
    };
    let whole = match &arguments.path {
        None => 0..archive.plain_bytes(),
        Some(path) => {
            let entries = arguments.archive.entries(&archive)?;
            catalog::content_of(&entries, &meant(&entries, path)).with_context(|| named.clone())?
        }
    };
    let bytes = whole.end - whole.start;
    let wanted = arguments.range.map_or(0..bytes, |range| range.of(bytes));
    if wanted.end > bytes {
        let (end, wanted) = (bytes, wanted.end);
        return Err(anyhow::Error::from(ReadError::BeyondEnd { end, wanted }).context(named));
    }
    let range = whole.start + wanted.start..whole.start + wanted.end;
    write(&archive, &called, range, threads(arguments.threads))
}

/// Writes bytes of the plain content to standard output; if they are all, their digest is checked.
pub(super) fn write(
    archive: &Archive<AnySource>,
    called: &str,
    range: Range<u64>,
    threads: usize,
) -> anyhow::Result<()> {
    let mut out = standard_io::output()?;
    // On the terminal that the content goes to, a bar would be in its midst.
    let bar = match out.is_terminal() {
        true => ProgressBar::hidden(),
        false => progress::of_bytes(Some(range.end - range.start)),
    };
    let copied = copy_checked(archive, range, threads, &mut |piece: &[u8]| {
        out.write_all(piece).map_err(standard_io::output_failed)?;
        bar.inc(piece.len() as u64);
        Ok(())
    });
    bar.finish_and_clear();
    copied.map_err(|error: anyhow::Error| match error.is::<ReadError>() {
        true => error.context(called.to_owned()),
        false => error,
    })
}
