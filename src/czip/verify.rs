//! `refrain czip verify`: whether an archive is what it was when it was made.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

use anyhow::{Context, anyhow};
use refrain_czip::{
    archive::{Archive, ReadError},
    format::Stream,
    verify::{
        FilesInFrame, Verified, bytes_to_verify, files_in_frame, verify, verify_content,
        verify_names,
    },
};
use serde::Serialize;

use super::{
    bounded,
    open::{self, AccessArguments},
    report, threads,
};
use crate::{
    interrupt::Interrupt,
    progress,
    table::{bytes, count, printable_path},
};

#[derive(clap::Args)]
pub struct VerifyArguments {
    /// The archive, or its http or https address; `-` is standard input
    #[arg(value_name = "IN.czip|URL")]
    archive: PathBuf,
    #[command(flatten)]
    access: AccessArguments,
    /// Decompress all of it as well, and check the digest of the whole content and the names of chunks
    #[arg(long)]
    content: bool,
    /// Threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
}

/// What was checked, and found whole.
#[derive(Serialize)]
struct Report {
    frames: u64,
    stored_bytes: u64,
    /// Of the plain content, if it was asked for.
    plain_bytes: Option<u64>,
    /// Chunks whose names were checked, if it was asked for and they can be: those of an encrypted archive
    /// of a group take its secret.
    names: Option<u64>,
}

pub fn run(arguments: &VerifyArguments) -> anyhow::Result<()> {
    // Nothing lies around that Ctrl-C would have to tidy up, but it stands in the report's place.
    let interrupt = Interrupt::listen()?;
    let report = interrupt.or(check(arguments, &interrupt))?;
    let mut lines = vec![(
        "whole",
        format!(
            "{}, {}",
            count(report.frames, "frame", "frames"),
            bytes(report.stored_bytes)
        ),
    )];
    if let Some(plain_bytes) = report.plain_bytes {
        lines.push(("content", bytes(plain_bytes)));
        let unchecked = || "not checked: --group-secret tells what chunks are called".to_owned();
        let names = report.names.map(|names| names.to_string());
        lines.push(("names", names.unwrap_or_else(unchecked)));
    }
    report::to_stdout(arguments.json, &report, &lines)
}

fn check(arguments: &VerifyArguments, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let called = || open::called(&arguments.archive);
    // What cannot be asked of it is said before all is read.
    let open = match arguments.content {
        true => open::open_unlocked,
        false => open::open_with,
    };
    let archive = open(&arguments.archive, &arguments.access, interrupt)?;
    let threads = threads(arguments.threads);
    let Verified {
        frames,
        stored_bytes,
    } = stored(&archive, threads, interrupt)
        .map_err(|error| with_files(&archive, error, interrupt))
        .with_context(called)?;
    let (mut plain_bytes, mut checked_names) = (None, None);
    if arguments.content {
        content(&archive, threads, interrupt).with_context(called)?;
        plain_bytes = Some(archive.plain_bytes());
        if archive.can_name() {
            checked_names = Some(names(&archive, threads, interrupt).with_context(called)?);
        }
    }
    Ok(Report {
        frames,
        stored_bytes,
        plain_bytes,
        names: checked_names,
    })
}

fn stored(
    archive: &Archive<open::AnySource>,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Verified> {
    let bar = progress::of_bytes(Some(bytes_to_verify(archive)));
    bar.set_message("as stored");
    let verified = verify(archive, threads, &|checked_bytes| {
        bar.set_position(checked_bytes);
        interrupt.flow()
    });
    bar.finish_and_clear();
    unless_stopped(verified?, interrupt)
}

fn content(
    archive: &Archive<open::AnySource>,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let bar = progress::of_bytes(Some(archive.plain_bytes()));
    bar.set_message("content");
    let verified = verify_content(archive, threads, &mut |piece| {
        bar.inc(piece.len() as u64);
        let checked = interrupt.check();
        checked.map_err(|interrupted| ReadError::Io(std::io::Error::other(interrupted)))
    });
    bar.finish_and_clear();
    Ok(verified?)
}

fn names(
    archive: &Archive<open::AnySource>,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<u64> {
    let bar = progress::of_bytes(Some(archive.root().summary.unique_bytes));
    bar.set_message("names");
    let verified = verify_names(archive, threads, &|plain_bytes| {
        bar.set_position(plain_bytes);
        interrupt.flow()
    });
    bar.finish_and_clear();
    unless_stopped(verified?, interrupt)
}

/// The error, with the files that it hits if it is damage to a frame and they can be told.
fn with_files(
    archive: &Archive<open::AnySource>,
    error: anyhow::Error,
    interrupt: &Interrupt,
) -> anyhow::Error {
    let Some(&ReadError::Frame {
        stream: Stream::Content,
        number,
        ..
    }) = error.downcast_ref()
    else {
        return error;
    };
    let bar = progress::of_bytes(Some(archive.plain_bytes()));
    bar.set_message("which files are damaged");
    let found = files_in_frame(archive, number, &mut |position| {
        bar.set_position(position);
        interrupt.flow()
    });
    bar.finish_and_clear();
    // Who cannot be told them is told what is damaged.
    let Ok(Some(FilesInFrame {
        first: Some(first),
        files,
    })) = found
    else {
        return error;
    };
    let first = match first.is_empty() {
        true => "standard input".to_owned(),
        false => printable_path(OsStr::from_bytes(&first)),
    };
    match files {
        1 => anyhow!("{error}; it has bytes of {first}"),
        _ => anyhow!("{error}; it has bytes of {files} files, the first is {first}"),
    }
}

/// What was verified, if nobody stopped it.
fn unless_stopped<T>(verified: Option<T>, interrupt: &Interrupt) -> anyhow::Result<T> {
    match verified {
        Some(verified) => Ok(verified),
        None => {
            interrupt.check()?;
            unreachable!("nothing else stops it")
        }
    }
}
