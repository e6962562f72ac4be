//! `refrain czip verify`: whether an archive is what it was when it was made.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    sync::Mutex,
};

use anyhow::{Context, bail, ensure};
use refrain_czip::{
    archive::{Archive, ReadError},
    verify::{
        Damage, Verified, bytes_to_verify, files_in_frames, find_damage, verify_content,
        verify_names,
    },
};
use refrain_czip_format::{FormatError, Stream};
use serde::Serialize;

use super::{
    bounded,
    open::{AnySource, ArchiveArguments, advice},
    report::{self, NAMED_MAX, ReportedPath},
    threads,
};
use crate::{
    interrupt::Interrupt,
    progress,
    stderr::warn,
    table::{bytes, count, lines, printable_path},
};

const AFTER_HELP: &str = "\
Example:
  refrain czip verify docs.czip

All damage is reported, with the affected files if they can be determined. The exit code is then 1. If the header, \
the root, the keys or the length is wrong, only the first fault is reported.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct VerifyArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    /// Also decompress everything, and check the digest of the content and the names of chunks
    #[arg(long)]
    content: bool,
    /// Use N threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
    /// Report as one JSON object, including damage
    #[arg(long)]
    json: bool,
}

/// Damaged frames whose files are looked for: of more, that takes too much memory.
const FRAMES_MAX: usize = 1 << 20;

#[derive(Default, Serialize)]
struct Report {
    is_whole: bool,
    /// Those that are whole.
    #[serde(flatten)]
    verified: Verified,
    /// Of the plain content, if it was asked for and frames are whole.
    plain_bytes: Option<u64>,
    /// Chunks whose names were checked, if it was asked for and they can be: those of an encrypted archive
    /// of a group take its secret.
    names: Option<u64>,
    /// Frames, and parts of the table, and the first of them.
    damaged_parts: u64,
    /// Frames among them.
    #[serde(skip)]
    damaged_frames: u64,
    damaged: Vec<DamagedPart>,
    /// Files that have bytes of damaged frames, if they can be told, and the first of them.
    damaged_files: Option<u64>,
    files: Vec<ReportedPath>,
}

/// A frame, or a part of the table.
#[derive(Serialize)]
struct DamagedPart {
    stream: Option<String>,
    frame: Option<u64>,
    error: String,
}

pub(super) fn run(arguments: &VerifyArguments) -> anyhow::Result<()> {
    // Nothing lies around that Ctrl-C would have to tidy up, but it stands in the report's place.
    let interrupt = Interrupt::listen()?;
    let checked = interrupt.or(check(arguments, &interrupt));
    // Where damage keeps all else from being checked, it is the report. Who reads no more of it, such as `head`,
    // has the exit code still.
    if let Err(error) = &checked
        && let Some(damage) = damage_of(error)
    {
        let _ = print_damage(damage, arguments.json);
        bail!(
            "{} is damaged{}",
            arguments.archive.called(),
            advice(damage)
        );
    }
    let report = checked?;
    let printed = report::to_stdout(arguments.json, &report, |out| report.write(out));
    ensure!(
        report.is_whole,
        "{} is damaged: {}{}",
        arguments.archive.called(),
        report.damage(),
        report.advice()
    );
    printed
}

/// The damage of an archive that an error is about.
fn damage_of(error: &anyhow::Error) -> Option<&ReadError> {
    let damage = (error.chain()).find_map(|cause| cause.downcast_ref::<ReadError>());
    damage.filter(|error| is_damaged_archive(error))
}

fn print_damage(damage: &ReadError, is_json: bool) -> anyhow::Result<()> {
    let part = DamagedPart {
        stream: None,
        frame: None,
        error: damage.to_string(),
    };
    let report = Report {
        damaged_parts: 1,
        damaged: vec![part],
        ..Report::default()
    };
    // The line has "damaged" once.
    let reason = damage.to_string();
    let reason = reason.replace("the archive is damaged: ", "");
    let reason = reason.replace(" is damaged: ", ": ");
    report::to_stdout(is_json, &report, |out| writeln!(out, "damaged: {reason}"))
}

/// Whether it is an archive of this version, and damaged.
fn is_damaged_archive(error: &ReadError) -> bool {
    use FormatError::{Empty, NotAnArchive, UnknownFlags, Version};
    match error {
        ReadError::Format(NotAnArchive | Empty | Version { .. } | UnknownFlags { .. }) => false,
        error => error.is_damage(),
    }
}

impl Report {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let frames = count(self.verified.frames, "frame", "frames");
        let intact = format!("{frames}, {}", bytes(self.verified.stored_bytes));
        if self.damaged_parts > 0 {
            writeln!(out, "damaged: {}", self.damage())?;
            return lines(&[("intact", intact)], out);
        }
        let content = self.plain_bytes.map(|plain_bytes| {
            let unchecked = || "chunk names not checked (needs --group-secret)".to_owned();
            let chunks = self.names.map(|names| count(names, "chunk", "chunks"));
            let chunks = chunks.unwrap_or_else(unchecked);
            format!("; content {}; {chunks}", bytes(plain_bytes))
        });
        writeln!(out, "OK: {intact}{}", content.unwrap_or_default())
    }

    /// The next step.
    fn advice(&self) -> &'static str {
        let content = Stream::Content.to_string();
        let is_of_content = |part: &DamagedPart| part.stream.as_ref() == Some(&content);
        match self.damaged.iter().all(is_of_content) {
            true => " (`extract --skip-damaged` extracts the intact files)",
            false => {
                " (`refrain czip cat` writes the content as one stream, as far as it is intact)"
            }
        }
    }

    /// How much is damaged.
    fn damage(&self) -> String {
        // Each line above names a frame, if it is about one.
        let parts = match self.damaged_frames == self.damaged_parts {
            true => count(self.damaged_parts, "frame", "frames"),
            false => count(self.damaged_parts, "part", "parts"),
        };
        match self.damaged_files {
            Some(files) => format!("{parts}, used by {}", count(files, "file", "files")),
            None => parts,
        }
    }
}

fn check(arguments: &VerifyArguments, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let called = || arguments.archive.called();
    // What cannot be asked of it is said before all is read.
    let open = match arguments.content {
        true => ArchiveArguments::open_unlocked,
        false => ArchiveArguments::open_with,
    };
    let archive = open(&arguments.archive, interrupt)?;
    let threads = threads(arguments.threads);
    let mut report = Report::default();
    stored(&archive, &called(), threads, interrupt, &mut report).with_context(called)?;
    report.is_whole = report.damaged_parts == 0;
    if report.is_whole && arguments.content {
        content(&archive, threads, interrupt).with_context(called)?;
        report.plain_bytes = Some(archive.plain_bytes());
        if archive.can_name() {
            report.names = Some(names(&archive, threads, interrupt).with_context(called)?);
        }
    }
    Ok(report)
}

fn stored(
    archive: &Archive<AnySource>,
    called: &str,
    threads: usize,
    interrupt: &Interrupt,
    report: &mut Report,
) -> anyhow::Result<()> {
    let bar =
        progress::of_bytes(Some(bytes_to_verify(archive))).with_message("checking stored data");
    let found = Mutex::new((report, BTreeSet::new()));
    let on_damage = |damage: Damage| {
        let mut found = found.lock().expect("no thread panics");
        let (report, numbers) = &mut *found;
        if report.damaged.len() < NAMED_MAX {
            bar.suspend(|| warn(format_args!("{called}: {}", in_words(&damage))));
        }
        report.add(&damage);
        if let Some((Stream::Content, number)) = damage.frame
            && numbers.len() < FRAMES_MAX
        {
            numbers.insert(number);
        }
        Ok(())
    };
    let verified = find_damage(archive, threads, &on_damage, &|checked_bytes| {
        bar.set_position(checked_bytes);
        interrupt.flow()
    });
    bar.finish_and_clear();
    let verified = unless_stopped(verified?, interrupt)?;
    let (report, numbers) = found.into_inner().expect("no thread panics");
    report.verified = verified;
    if report.damaged_parts > 0 {
        // Threads found it in any order.
        let place = |part: &DamagedPart| (part.stream.clone(), part.frame);
        report.damaged.sort_by_key(place);
        report.find_files(archive, &numbers, interrupt);
    }
    Ok(())
}

fn content(
    archive: &Archive<AnySource>,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let bar = progress::of_bytes(Some(archive.plain_bytes())).with_message("checking content");
    let verified = verify_content(archive, threads, &mut |piece| {
        bar.inc(piece.len() as u64);
        let checked = interrupt.check();
        checked.map_err(|interrupted| ReadError::Io(io::Error::other(interrupted)))
    });
    bar.finish_and_clear();
    Ok(verified?)
}

fn names(
    archive: &Archive<AnySource>,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<u64> {
    let bar = progress::of_bytes(Some(archive.root().summary.unique_bytes))
        .with_message("checking chunk names");
    let verified = verify_names(archive, threads, &|plain_bytes| {
        bar.set_position(plain_bytes);
        interrupt.flow()
    });
    bar.finish_and_clear();
    unless_stopped(verified?, interrupt)
}

/// The damage, with the frame that it is of.
fn in_words(damage: &Damage) -> String {
    match (damage.frame, &damage.error) {
        (Some((stream, number)), ReadError::Io(error)) => {
            format!("cannot read frame {number} of the {stream}: {error}")
        }
        (_, error) => error.to_string(),
    }
}

impl Report {
    fn add(&mut self, damage: &Damage) {
        self.damaged_parts += 1;
        self.damaged_frames += u64::from(damage.frame.is_some());
        if self.damaged.len() < NAMED_MAX {
            self.damaged.push(DamagedPart {
                stream: damage.frame.map(|(stream, _)| stream.to_string()),
                frame: damage.frame.map(|(_, number)| number),
                error: in_words(damage),
            });
        }
    }

    /// Names the files that have bytes of the content's frames `numbers`. Who cannot be told them, since
    /// more is damaged or it is locked, is told what is damaged.
    fn find_files(
        &mut self,
        archive: &Archive<AnySource>,
        numbers: &BTreeSet<u64>,
        interrupt: &Interrupt,
    ) {
        // Damage to anything else hits files that are not known.
        if numbers.len() as u64 != self.damaged_parts {
            return;
        }
        let (mut files, mut named) = (0, Vec::new());
        let bar =
            progress::of_bytes(Some(archive.plain_bytes())).with_message("finding damaged files");
        let mut found = |path: Vec<u8>| {
            files += 1;
            let shown = match path.is_empty() {
                true => "standard input".to_owned(),
                false => printable_path(OsStr::from_bytes(&path)),
            };
            if named.len() < NAMED_MAX {
                bar.suspend(|| warn(format_args!("damaged: {shown}")));
                named.push(ReportedPath::new(&path));
            }
        };
        let looked = files_in_frames(archive, numbers, &mut found, &mut |position| {
            bar.set_position(position);
            interrupt.flow()
        });
        bar.finish_and_clear();
        if let Ok(true) = looked {
            self.damaged_files = Some(files);
            self.files = named;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_has_the_answer() {
        let text = |report: &Report| {
            let mut out = Vec::new();
            report.write(&mut out).expect("memory");
            String::from_utf8(out).expect("text")
        };
        let verified = Verified {
            frames: 12,
            stored_bytes: 61_000_000,
        };
        let mut report = Report {
            verified,
            ..Report::default()
        };
        assert_eq!(text(&report), "OK: 12 frames, 61.0 MB\n");
        report.plain_bytes = Some(1_730_000_000);
        assert_eq!(
            text(&report),
            "OK: 12 frames, 61.0 MB; content 1.73 GB; chunk names not checked (needs --group-secret)\n"
        );
        report.names = Some(1);
        assert!(text(&report).ends_with("; content 1.73 GB; 1 chunk\n"));
        (report.damaged_parts, report.damaged_files) = (1, Some(2));
        assert_eq!(
            text(&report),
            "damaged: 1 part, used by 2 files\nintact  12 frames, 61.0 MB\n"
        );
        report.damaged_frames = 1;
        let line = text(&report);
        assert!(line.starts_with("damaged: 1 frame, used by 2 files\n"));
    }
}
