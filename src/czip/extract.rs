//! `refrain czip extract`: what is in an archive, into a folder or to standard output.

use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

use anyhow::{Context, anyhow, bail, ensure};
use refrain_czip::{
    archive::{Archive, ReadError},
    extract::{ExtractError, ExtractOptions, Extracted, extract},
};
use refrain_czip_format::{
    FormatError, Portion,
    catalog::{self, Entry, EntryKind},
};
use serde::Serialize;

use super::{
    bounded, cat,
    open::{AnySource, ArchiveArguments, CacheArguments, meant},
    report::{self, NAMED_MAX, ReportedPath},
    threads,
};
use crate::{
    interrupt::Interrupt,
    progress,
    standard_io::is_standard,
    stderr::warn,
    table::{bytes, count, printable_path},
};

const EXAMPLE: &str = "\
Example:
  refrain czip extract docs.czip -o out";

const AFTER_LONG_HELP: &str = "\
Everything is extracted under temporary names (.refrain-…), checked against the archive's digest, and then renamed. \
At any time, each file is the old one or the complete new one. After Ctrl-C, SIGTERM, an error or a full disk, \
nothing has changed. One exception: on a file system that cannot exchange two names, such as NFS, some files may \
already be new. This happens if a file cannot be replaced, for example an immutable one. The error reports how many. \
After `kill -9`, the next extraction to DIR removes the temporary files.

Existing files with the same names are replaced. Existing directories are kept. No link below DIR is followed. \
If the file system refuses a hard link, a file with the same content replaces it, and this is reported. \
Your own directories that lack permissions get u+rwx during the extraction, and their modes back at the end. \
Modes and times are those of the archive, without setuid, setgid and sticky bits. Missing directories above a PATH \
also get their modes and times from the archive. \
The content of standard input gets the name of the archive without `.czip`: `logs` from `logs.czip`.

An archive is not read in order. So one from a pipe is first copied to an unnamed temporary file in $TMPDIR.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{AFTER_LONG_HELP}"))]
pub(super) struct ExtractArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    /// Extract only these files and directories [default: all]
    ///
    /// They are named as in `list`. `./` before a name is ignored, and `.` is everything.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Extract to this directory, and create it if needed
    ///
    /// `-` writes a single file to standard output.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    #[command(flatten)]
    cache: CacheArguments,
    /// Skip damaged files and extract all others
    ///
    /// Existing files with the names of damaged ones stay.
    #[arg(long)]
    skip_damaged: bool,
    /// Decompress with N threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    extracted: Extracted,
    /// The first of what is damaged.
    damaged: Vec<DamagedFile>,
}

#[derive(Serialize)]
struct DamagedFile {
    #[serde(flatten)]
    path: ReportedPath,
    error: String,
}

pub(crate) fn run(arguments: &ExtractArguments) -> anyhow::Result<()> {
    if is_standard(&arguments.output) {
        return to_standard_output(arguments);
    }
    let interrupt = Interrupt::listen()?;
    let mut damaged = Vec::new();
    let extracted = to_folder(arguments, &interrupt, &mut damaged);
    let extracted = interrupt.or(extracted)?;
    if extracted.copied_links > 0 {
        warn(format_args!(
            "the file system refused {}: a separate file with the same content replaces each",
            count(extracted.copied_links, "hard link", "hard links")
        ));
    }
    if extracted.unset > 0 {
        warn(format_args!(
            "cannot set modes or times of {}: the file system does not support them, or another user is the owner",
            count(extracted.unset, "path", "paths")
        ));
    }
    let report = Report { extracted, damaged };
    // Who reads no more of it, such as `head`, has the exit code still.
    let printed = report::to_stdout(arguments.json, &report, |out| {
        writeln!(out, "{}", headline(&extracted))
    });
    let intact = match extracted.files {
        0 => "no file is intact",
        _ => "all intact files are extracted",
    };
    ensure!(
        extracted.damaged == 0,
        "{intact}; {} skipped because of damage",
        count(extracted.damaged, "file", "files")
    );
    printed
}

fn headline(extracted: &Extracted) -> String {
    let mut headline = count(extracted.files, "file", "files");
    for (number, one, many) in [
        (extracted.folders, "directory", "directories"),
        (extracted.links, "link", "links"),
    ] {
        if number > 0 {
            headline += &format!(", {}", count(number, one, many));
        }
    }
    format!("extracted {headline}, {}", bytes(extracted.plain_bytes))
}

fn to_folder(
    arguments: &ExtractArguments,
    interrupt: &Interrupt,
    damaged: &mut Vec<DamagedFile>,
) -> anyhow::Result<Extracted> {
    let open = match arguments.skip_damaged {
        true => ArchiveArguments::open_damaged,
        false => ArchiveArguments::open_unlocked,
    };
    let archive = open(&arguments.archive, interrupt)?;
    let archive = arguments.archive.with_cache(archive, &arguments.cache)?;
    let paths = paths(&archive, &arguments.paths);
    let options = ExtractOptions {
        paths: paths.with_context(|| arguments.archive.called())?,
        name: arguments.archive.stream_name(),
        threads: threads(arguments.threads),
        is_damage_left_out: arguments.skip_damaged,
    };
    // Of other files than the damaged one, if it is known which there are.
    let may_be_skipped = || {
        let entries = archive.entries();
        !arguments.skip_damaged && entries.is_ok_and(|entries| entries.len() > 1)
    };
    let bar = progress::bar(progress::OF_BYTES);
    let extracted = extract(&archive, &arguments.output, &options, &mut |now| {
        bar.set_length(now.plain_bytes_total);
        bar.set_position(now.plain_bytes);
        if now.is_syncing {
            bar.set_message("writing to disk");
        }
        if let Some(now) = now.damaged {
            let path = printable_path(OsStr::from_bytes(now.path));
            bar.suspend(|| warn(format_args!("skipped \"{path}\": {}", now.error)));
            if damaged.len() < NAMED_MAX {
                damaged.push(DamagedFile {
                    path: ReportedPath::new(now.path),
                    error: now.error.to_string(),
                });
            }
        }
        interrupt.flow()
    });
    bar.finish_and_clear();
    extracted
        .map_err(|error| match error {
            ExtractError::Read(ReadError::Format(FormatError::Truncated(Portion::File)))
                if arguments.skip_damaged =>
            {
                anyhow!(
                    "its end is missing, with its list of files: nothing can be extracted (copy or create it again)"
                )
            }
            ExtractError::Missing { path } if path.is_dir() => anyhow!(
                "{path:?} not found in the archive (to extract to this directory, give -o {})",
                path.display()
            ),
            ExtractError::Read(error) if error.is_damage() && may_be_skipped() => {
                anyhow!("{error} (--skip-damaged extracts the intact files)")
            }
            error => error.into(),
        })
        .with_context(|| arguments.archive.called())
}

fn paths(archive: &Archive<AnySource>, asked: &[OsString]) -> Result<Vec<Vec<u8>>, ReadError> {
    // The catalog of a large archive is read once, but for names that may be escaped.
    let entries = match asked.iter().any(|path| path.as_bytes().contains(&b'\\')) {
        true => archive.entries()?,
        false => Vec::new(),
    };
    let paths = asked.iter().map(|path| meant(&entries, path));
    Ok(paths.collect())
}

/// Ctrl-C ends it at once: nothing lies around.
fn to_standard_output(arguments: &ExtractArguments) -> anyhow::Result<()> {
    ensure!(
        !arguments.skip_damaged,
        "--skip-damaged works only with a directory as output: standard output takes one file"
    );
    let archive = arguments.archive.open_unlocked(&Interrupt::default())?;
    let archive = arguments.archive.with_cache(archive, &arguments.cache)?;
    let called = arguments.archive.called();
    let entries = arguments.archive.entries(&archive)?;
    let range = match &arguments.paths[..] {
        [] => the_file(&entries).with_context(|| called.clone())?,
        [path] => catalog::content_of(&entries, &meant(&entries, path))
            .with_context(|| format!("{called}: \"{}\"", path.display()))?,
        paths => bail!(
            "standard output takes one file, but {} paths are given",
            paths.len()
        ),
    };
    cat::write(&archive, &called, range, threads(arguments.threads))
}

/// The bytes of the archive's only file.
fn the_file(entries: &[Entry]) -> anyhow::Result<Range<u64>> {
    match entries {
        [
            Entry {
                kind: EntryKind::File { bytes },
                ..
            },
        ] => Ok(0..*bytes),
        entries => bail!(
            "standard output takes one file, but the archive has {} (name one; `cat` writes all, one after \
             the other)",
            count(
                entries.len() as u64,
                "file, directory or link",
                "files, directories and links"
            )
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_has_only_kinds_that_are_there() {
        let mut extracted = Extracted {
            files: 1,
            plain_bytes: 1_730_000_000,
            ..Extracted::default()
        };
        assert_eq!(headline(&extracted), "extracted 1 file, 1.73 GB");
        (extracted.files, extracted.folders, extracted.links) = (120, 5, 1);
        assert_eq!(
            headline(&extracted),
            "extracted 120 files, 5 directories, 1 link, 1.73 GB"
        );
    }
}
