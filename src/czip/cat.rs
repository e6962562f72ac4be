//! `refrain czip cat`: the plain content, or some of it.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    ops::Range,
};

use anyhow::Context;
use indicatif::ProgressBar;
use refrain_czip::archive::{Archive, ReadError, copy};
use refrain_czip_format::{FormatError, Portion, catalog};

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
    /// A file in it, as `list` names it; `./` in front of it is nothing [default: all files, one behind the other]
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// Which bytes of it: the first, and the one behind the last, such as 1GiB-1GiB+64KiB, 100-200 or
    /// 4096-; one that ends beyond it is an error. 200K are 200000 bytes, and 200KiB the 204800 that dd, head and tail call 200K. No more of the
    /// archive is read than they need
    #[arg(long, value_name = "START-END", allow_hyphen_values = true)]
    range: Option<ByteRange>,
    /// Threads that decompress [default: one a processor]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
}

pub(super) fn run(arguments: &CatArguments) -> anyhow::Result<()> {
    let called = arguments.archive.called();
    // Ctrl-C ends it at once: nothing lies around.
    let archive = arguments.archive.open_unlocked(&Interrupt::default())?;
    let whole = match &arguments.path {
        None => 0..archive.plain_bytes(),
        Some(path) => {
            let entries = arguments.archive.entries(&archive)?;
            catalog::content_of(&entries, &meant(&entries, path))
                .with_context(|| format!("{called}: {}", path.display()))?
        }
    };
    let bytes = whole.end - whole.start;
    let wanted = arguments.range.map_or(0..bytes, |range| range.of(bytes));
    if wanted.end > bytes {
        let (end, wanted) = (bytes, wanted.end);
        return Err(anyhow::Error::from(ReadError::BeyondEnd { end, wanted }).context(called));
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
    let is_whole = range == (0..archive.plain_bytes());
    let mut digest = blake3::Hasher::new();
    let mut out = standard_io::output()?;
    // On the terminal that the content goes to, a bar would be in its midst.
    let bar = match out.is_terminal() {
        true => ProgressBar::hidden(),
        false => progress::of_bytes(Some(range.end - range.start)),
    };
    let copied = copy(archive, range, threads, &mut |piece: &[u8]| {
        if is_whole {
            digest.update(piece);
        }
        out.write_all(piece).map_err(CatError::Output)?;
        bar.inc(piece.len() as u64);
        Ok(())
    });
    bar.finish_and_clear();
    let is_damaged = is_whole && *digest.finalize().as_bytes() != archive.root().summary.digest;
    match copied {
        Ok(()) if is_damaged => {
            let error = ReadError::from(FormatError::Digest(Portion::Content));
            Err(anyhow::Error::from(error).context(called.to_owned()))
        }
        Ok(()) => Ok(()),
        Err(CatError::Read(error)) => Err(anyhow::Error::from(error).context(called.to_owned())),
        Err(CatError::Output(error)) => Err(standard_io::output_failed(error)),
    }
}

enum CatError {
    Read(ReadError),
    Output(io::Error),
}

impl From<ReadError> for CatError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}
