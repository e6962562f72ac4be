//! `refrain czip create`: files and folders, or standard input, into an archive.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Cursor, IsTerminal, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, ensure};
use refrain_czip::create::{
    CreateError, CreateOptions, CreateProgress, Created, FileId, Input, LeftOut, Output, create,
};
use refrain_czip_format::{
    chunker::{Chunking, ChunkingMethod},
    header::{Profile, may_be_archive},
    method::Compression,
};
use refrain_gateway::units::ByteSize;
use serde::Serialize;

use super::{
    bounded,
    keys::EncryptArguments,
    report::{self, NAMED_MAX, ReportedPath},
    share,
    standard_io::{self, EndableInput, is_standard},
    threads,
};
use crate::{
    inputs::{InputArguments, expected_bytes},
    interrupt::Interrupt,
    progress,
    stderr::{cannot_open, warn},
    table::{bytes, count, lines, printable_path},
    usage::UsageError,
};

/// No frame of an archive may be longer than 16 MiB, and its last chunk has up to 8.
const FRAME_BYTES_MAX: u64 = 8 << 20;

/// With less, hardly anything is remembered.
const INDEX_BYTES_MIN: usize = 1_000_000;

const EXAMPLE: &str = "\
Example:
  refrain czip create docs -o docs.czip";

const AFTER_LONG_HELP: &str = "\
The archive does not contain itself. Owners, extended attributes and access lists are not kept. Standard input must \
be the only input. If it is empty, it does not replace an archive. If a given FILE or DIR cannot be read, no archive \
is made. The exit code is also 1 if a file changes while it is read. The archive is still made.

Data that repeats is stored once. So damage in one place can affect every file, and every day of a backup, that \
contains this data. Keep a second copy of the archive, and check it with `refrain czip verify`.

A new archive replaces an existing one when it is complete. Until then, and after a signal, a full disk or a power \
cut, the old one stays unchanged. Incomplete archives and temporary files have no names, if the file system supports \
that. So even `kill -9` leaves nothing. Otherwise the next archive in that directory removes the leftovers. \
A growing file is read up to the length that it had when it was opened. It is reported as changed. Temporary files \
are in $TMPDIR, or next to the archive.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{AFTER_LONG_HELP}"))]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    inputs: InputArguments,
    /// Write to this file; `-` is standard output
    ///
    /// An existing archive is replaced. Any other file is not, unless it is empty. A pipe or a device gets the
    /// archive in one pass, as with --stream.
    #[arg(short, long, value_name = "OUT.czip")]
    output: PathBuf,
    /// Compress chunks together (small) or separately (shared)
    ///
    /// Caches can share chunks of profile `shared`.
    #[arg(long, value_name = "NAME", default_value = "small", value_parser = parse_profile)]
    profile: Profile,
    /// Cut chunks of this average size
    ///
    /// From 1KiB to 1MiB, rounded to the nearest power of two.
    #[arg(long, value_name = "SIZE", default_value = "32KiB", value_parser = bounded::chunk_size)]
    chunk_size: u32,
    /// Cut chunks by this method: modp, pack or fixed
    #[arg(long, value_name = "NAME", default_value_t)]
    chunker: ChunkingMethod,
    /// Compress with zstd, gzip, bzip2 or none
    ///
    /// A level N is optional, such as zstd:19.
    #[arg(long, value_name = "METHOD[:N]", default_value_t)]
    compress: Compression,
    /// Write the archive in one pass, without seeking back: its final header is at the end
    #[arg(long)]
    stream: bool,
    /// Compress chunks together, up to this size [default: 256KiB]
    ///
    /// At most 8MiB, and only in profile `small`. 0 compresses each chunk separately.
    #[arg(long, value_name = "SIZE", value_parser = parse_frame_size)]
    frame_size: Option<u32>,
    /// Do not compress chunks against similar earlier ones
    #[arg(long)]
    no_delta: bool,
    /// Optimize for clients that have OLD.czip
    ///
    /// An example is the previous release. These clients fetch less, because chunks of OLD.czip are stored separately
    /// from new ones. OLD.czip must have the same options for chunks. Clients that use `get --archive` fetch more,
    /// because frames differ from those of OLD.czip.
    #[arg(long, value_name = "OLD.czip")]
    after: Vec<PathBuf>,
    /// Do not unpack tar, cpio, zip and ar archives internally
    #[arg(long)]
    no_containers: bool,
    /// Limit the memory for names of chunks
    ///
    /// At least 1MB. When it is full, the least recently seen names are forgotten. Their chunks are stored again if
    /// they repeat. A name takes at most 48 bytes.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_index_memory)]
    index_memory: usize,
    #[command(flatten)]
    encrypt: EncryptArguments,
    /// Compress with N threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
    /// Show the number of chunks
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

#[derive(Serialize)]
struct Report {
    plain_bytes: u64,
    archive_bytes: u64,
    /// Plain bytes of all chunks, each once.
    unique_bytes: u64,
    stored_bytes: u64,
    entries: u64,
    chunks: u64,
    references: u64,
    /// With some, chunks may be stored more than once.
    forgotten_chunks: u64,
    #[serde(flatten)]
    left_out: AllLeftOut,
    profile: String,
    /// BLAKE3 of the plain content.
    digest: String,
}

/// What could not be read.
#[derive(Serialize)]
struct Unread {
    #[serde(flatten)]
    path: ReportedPath,
    error: String,
    /// The first bytes of a file that failed in its middle: they are in the archive.
    archived_bytes: u64,
}

/// What is not in the archive.
#[derive(Default, Serialize)]
struct AllLeftOut {
    /// Sockets, pipes and devices.
    special_files: u64,
    /// Files and folders that could not be read, and the first of them.
    unread_files: u64,
    unread: Vec<Unread>,
    /// Files that were written to while they were read, and the first of them.
    changed_files: u64,
    changed: Vec<ReportedPath>,
}

impl AllLeftOut {
    /// Counts it, and says so to people.
    fn add(&mut self, left_out: LeftOut<'_>) -> String {
        match left_out {
            LeftOut::Special { path } => {
                self.special_files += 1;
                let path = printable_path(path);
                format!("skipped \"{path}\": not a file, directory or link")
            }
            LeftOut::Unread {
                path,
                error,
                archived_bytes,
            } => {
                self.unread_files += 1;
                if self.unread.len() < NAMED_MAX {
                    self.unread.push(Unread {
                        path: ReportedPath::new(path.as_os_str().as_bytes()),
                        error: error.to_string(),
                        archived_bytes,
                    });
                }
                let path = printable_path(path);
                match archived_bytes {
                    0 => format!("skipped \"{path}\": {error}"),
                    some => {
                        let some = bytes(some);
                        format!("archived only the first {some} of \"{path}\": {error}")
                    }
                }
            }
            LeftOut::Changed { path } => {
                self.changed_files += 1;
                if self.changed.len() < NAMED_MAX {
                    let path = path.as_os_str().as_bytes();
                    self.changed.push(ReportedPath::new(path));
                }
                let path = printable_path(path);
                format!(
                    "\"{path}\" changed while it was read: its archived content may never have existed"
                )
            }
        }
    }
}

pub(crate) fn run(arguments: &CreateArguments) -> anyhow::Result<()> {
    arguments.check().map_err(UsageError)?;
    let is_pipe = is_pipe(&arguments.output);
    if !is_pipe {
        arguments.refuse_other_file()?;
    }
    // Down a pipe nothing is left to tidy up, so that Ctrl-C may end it at once.
    let interrupt = match is_pipe {
        true => Interrupt::default(),
        false => Interrupt::listen()?,
    };
    let cannot_write = match is_standard(&arguments.output) {
        true => "cannot write to standard output".to_owned(),
        false => format!("cannot write to \"{}\"", arguments.output.display()),
    };
    let opened = output(arguments, is_pipe);
    let (output, passed_over) = opened.with_context(|| cannot_write.clone())?;
    let mut options = options(arguments, is_pipe)?;
    options.passed_over = passed_over;
    let found = (arguments.inputs).open(Some(&arguments.output), &interrupt)?;
    options.expected_bytes = expected_bytes(&found, &interrupt);
    let inputs = interrupt.or(inputs(arguments, is_pipe, &interrupt))?;
    let bar = progress::of_bytes(options.expected_bytes);
    let mut left_out = AllLeftOut::default();
    let standard = || {
        arguments
            .is_of_standard_input()
            .then(standard_io::input_state)
    };
    let state = standard();
    let created = create(inputs, output, &options, &mut |now: CreateProgress<'_>| {
        bar.set_position(now.plain_bytes);
        bar.set_message(format!("{} stored", bytes(now.stored_bytes)));
        if let Some(now) = now.left_out {
            let warning = left_out.add(now);
            bar.suspend(|| warn(warning));
        }
        interrupt.flow()
    });
    bar.finish_and_clear();
    let created = interrupt.or(created.map_err(|error| match error {
        CreateError::Output(error) => anyhow!("{cannot_write}: {error}"),
        CreateError::SameName { .. } | CreateError::OutputIsInput { .. } | CreateError::Nothing => {
            UsageError(error.into()).into()
        }
        error => error.into(),
    }))?;
    if standard() != state {
        let path = Path::new("standard input");
        warn(left_out.add(LeftOut::Changed { path }));
    }
    let report = Report::new(&created, left_out);
    let shown = |out: &mut dyn Write| {
        writeln!(out, "{}", report.headline())?;
        lines(&report.lines(arguments.verbose), out)
    };
    // The archive is made, whether anybody hears of it or not: who reads no more of this, such as
    // `head`, has the exit code still.
    let printed = match is_standard(&arguments.output) {
        true => {
            drop(report::print(
                &mut io::stderr(),
                arguments.json,
                &report,
                shown,
            ));
            Ok(())
        }
        false => report::to_stdout(arguments.json, &report, shown),
    };
    ensure!(
        report.left_out.unread_files == 0,
        "the archive was written, but is incomplete: {} could not be read",
        count(report.left_out.unread_files, "path", "paths")
    );
    ensure!(
        report.left_out.changed_files == 0,
        "the archive was written, but {} changed while being read (archive a snapshot, or while no program \
         writes)",
        count(report.left_out.changed_files, "file", "files")
    );
    printed
}

impl CreateArguments {
    fn is_of_standard_input(&self) -> bool {
        let mut inputs = self.inputs.inputs.iter();
        inputs.any(|path| is_standard(path))
    }

    /// Whether they make sense together, as far as that can be said before anything is opened.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.inputs.inputs.len() == 1 || !self.is_of_standard_input(),
            "standard input (`-`) must be the only input: it has no name"
        );
        let is_of_frames = self.frame_size.is_some() || !self.after.is_empty();
        ensure!(
            self.profile == Profile::Small || !is_of_frames,
            "--frame-size and --after are for profile `small`: `shared` compresses each chunk separately"
        );
        self.encrypt.check()?;
        self.inputs.refuse_nothing()
    }

    /// Fails if the archive would replace a file that is not an archive: its name is most likely a mistake.
    fn refuse_other_file(&self) -> anyhow::Result<()> {
        let path = &self.output;
        let Ok(there) = fs::metadata(path) else {
            return Ok(());
        };
        let is_output = |input: &PathBuf| {
            fs::metadata(input).is_ok_and(|input| FileId::of(&input) == FileId::of(&there))
        };
        // That it is also an input is another error.
        if there.is_dir() || there.len() == 0 || self.inputs.inputs.iter().any(is_output) {
            return Ok(());
        }
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut begin));
        read.with_context(|| cannot_open(path))?;
        if !may_be_archive(&begin) {
            let path = path.display();
            let error = anyhow!(
                "\"{path}\" exists and is not a CZIP archive (give another name, or remove it first)"
            );
            return Err(UsageError(error).into());
        }
        Ok(())
    }
}

/// Whether the archive goes where nothing can be changed or replaced.
fn is_pipe(output: &Path) -> bool {
    let is_other = |metadata: fs::Metadata| !metadata.is_file() && !metadata.is_dir();
    is_standard(output) || fs::metadata(output).is_ok_and(is_other)
}

/// Where the archive goes, and the files that this is beside the output itself.
fn output(arguments: &CreateArguments, is_pipe: bool) -> anyhow::Result<(Output, Vec<FileId>)> {
    let path = &arguments.output;
    let file = match (is_pipe, arguments.stream) {
        (false, false) => return Ok((Output::File(path.clone()), Vec::new())),
        (false, true) => return Ok((Output::Stream(path.clone()), Vec::new())),
        (true, _) if is_standard(path) => standard_io::output()?,
        (true, _) => OpenOptions::new().write(true).open(path)?,
    };
    ensure!(
        !file.is_terminal(),
        "it is a terminal (give a file with -o, or a pipe)"
    );
    let own = FileId::of(&file.metadata()?);
    Ok((Output::Pipe(Box::new(file)), vec![own]))
}

fn options(arguments: &CreateArguments, is_pipe: bool) -> anyhow::Result<CreateOptions> {
    let defaults = CreateOptions::default();
    let mut options = CreateOptions {
        profile: arguments.profile,
        chunking: Chunking::new(arguments.chunker, arguments.chunk_size)?,
        compression: arguments.compress,
        frame_bytes: arguments.frame_size.unwrap_or(defaults.frame_bytes),
        has_bases: !arguments.no_delta,
        earlier: arguments.after.clone(),
        is_woven: !arguments.no_containers,
        index_bytes: arguments.index_memory,
        threads: threads(arguments.threads),
        encryption: arguments.encrypt.options()?,
        exclude: arguments.inputs.patterns()?,
        is_one_file_system: arguments.inputs.one_file_system,
        ..defaults
    };
    if !is_pipe {
        options.temporary = temporary_for(&arguments.output);
    }
    Ok(options)
}

/// Where temporary files go while the archive at `output` is made: unless the user says, beside it, where
/// there is more room than in a folder in memory.
pub(crate) fn temporary_for(output: &Path) -> PathBuf {
    if std::env::var_os("TMPDIR").is_some() {
        return std::env::temp_dir();
    }
    let folder = output.parent().unwrap_or(Path::new(""));
    match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder.to_owned(),
    }
}

fn inputs(
    arguments: &CreateArguments,
    is_pipe: bool,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Input>> {
    if !arguments.is_of_standard_input() {
        let paths = arguments.inputs.inputs.iter().cloned();
        return Ok(paths.map(Input::Path).collect());
    }
    let mut stream = EndableInput::standard(interrupt).context("cannot open standard input")?;
    let mut begin = Vec::new();
    let path = &arguments.output;
    // Any other file was refused: this one is an archive. A program that failed has often sent nothing.
    if !is_pipe && fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() > 0) {
        let read = stream.by_ref().take(1).read_to_end(&mut begin);
        read.context("cannot read standard input")?;
        if begin.is_empty() {
            let path = path.display();
            let error = anyhow!(
                "standard input is empty, so the archive \"{path}\" is not replaced (check the program before the \
                 pipe; to make an empty archive, remove \"{path}\" first)"
            );
            return Err(UsageError(error).into());
        }
    }
    let stream = Cursor::new(begin).chain(stream);
    Ok(vec![Input::Stream(Box::new(stream))])
}

impl Report {
    fn new(created: &Created, left_out: AllLeftOut) -> Self {
        let Created {
            header,
            summary,
            forgotten_chunks,
        } = created;
        Self {
            plain_bytes: summary.plain_bytes,
            archive_bytes: header.archive_bytes,
            unique_bytes: summary.unique_bytes,
            stored_bytes: summary.stored_bytes,
            entries: summary.entries,
            chunks: header.chunks,
            references: header.references,
            forgotten_chunks: *forgotten_chunks,
            left_out,
            profile: header.profile.to_string(),
            digest: report::hex(&summary.digest),
        }
    }

    fn headline(&self) -> String {
        format!(
            "{} → {}{}, {}",
            bytes(self.plain_bytes),
            bytes(self.archive_bytes),
            share(self.archive_bytes, self.plain_bytes, " of the input"),
            count(self.entries, "entry", "entries")
        )
    }

    /// Trouble, and details if they are wanted.
    fn lines(&self, is_verbose: bool) -> Vec<(&'static str, String)> {
        let left_out = &self.left_out;
        let mut lines = Vec::new();
        if is_verbose {
            let chunks = format!("{} stored, {} in the content", self.chunks, self.references);
            lines.push(("chunks", chunks));
        }
        if self.forgotten_chunks > 0 {
            let what = count(self.forgotten_chunks, "chunk name", "chunk names");
            lines.push((
                "forgotten",
                format!("{what}: their repeats are stored again (raise --index-memory)"),
            ));
        }
        if left_out.special_files > 0 {
            let what = count(left_out.special_files, "special file", "special files");
            lines.push(("skipped", what));
        }
        if left_out.unread_files > 0 {
            let what = count(left_out.unread_files, "path", "paths");
            lines.push(("unreadable", what));
        }
        if left_out.changed_files > 0 {
            let what = count(left_out.changed_files, "file", "files");
            lines.push(("changed", format!("{what} while being read")));
        }
        lines
    }
}

fn parse_profile(name: &str) -> Result<Profile, &'static str> {
    let named = Profile::ALL.into_iter().find(|it| it.name() == name);
    named.ok_or("must be small or shared")
}

fn parse_frame_size(text: &str) -> Result<u32, String> {
    let ByteSize(asked) = text.parse().map_err(|error| format!("{error}"))?;
    match asked <= FRAME_BYTES_MAX {
        true => Ok(asked as u32),
        false => Err("too large (limit 8MiB)".to_owned()),
    }
}

fn parse_index_memory(text: &str) -> Result<usize, String> {
    let ByteSize(asked) = text.parse().map_err(|error| format!("{error}"))?;
    let bytes = usize::try_from(asked).ok();
    let enough = bytes.filter(|&bytes| bytes >= INDEX_BYTES_MIN);
    enough.ok_or_else(|| {
        let hint = bounded::unit_hint(text, INDEX_BYTES_MIN as u64..=u64::MAX, "MiB");
        format!("must be at least 1MB{hint}")
    })
}
