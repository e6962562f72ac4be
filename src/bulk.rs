//! `refrain bulk`: how much of large inputs repeats, as fast as this machine can tell.

mod archive;
mod history;
mod keep;
mod report;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, ensure};
use archive::Archive;
use clap::Args;
use history::History;
use keep::Keep;
use refrain_bulk::{
    BulkOptions, Choice, Failed, Method, Progress, Sink, Threads, choose, find_redundancy,
};
use refrain_codec::{
    chunk::{
        chunking::{Chunking, ChunkingMethod},
        hash::ChunkHasher,
    },
    simd::BackendChoice,
};
use refrain_czip::create::CreateOptions;
use refrain_czip_format::{header::Profile, method::Compression};
use refrain_gateway::units::ByteSize;
use refrain_store::StoreConfig;
use report::{Report, share};

use crate::{
    bounded,
    czip::create::{parse_profile, temporary_for},
    inputs::{InputArguments, expected_bytes},
    interrupt::Interrupt,
    progress,
    standard_io::{self, is_standard},
    store::{parse_realm, refuse_loss, store_config},
    table::{count, printable_path},
    told::tell,
    wrong::WrongArguments,
};

/// What stays in a processor's caches on its way from stage to stage.
const BATCH_BYTES: usize = 1 << 20;

/// What keeps a GPU busy for longer than it takes to tell it so.
const BATCH_BYTES_OF_GPUS: usize = 16 << 20;

/// With less, all that is done is passing batches on.
const BATCH_BYTES_MIN: u64 = 4 << 10;

/// There are several, so that no machine has room for more.
const BATCH_BYTES_MAX: u64 = 1 << 30;

#[derive(Args)]
#[command(
    after_help = "A file that has several names, or is given twice, is read and counted as often."
)]
pub(crate) struct BulkArguments {
    #[command(flatten)]
    inputs: InputArguments,
    /// Who does the work: `auto`, the fastest, by a short measurement if there is enough to do; `pipeline`, all of this machine's threads and vectors; `harens`, the same with its
    /// CUDA GPUs, which find where chunks may end; and to see what these are worth `naive`, one thread and a byte
    /// at a time, and `cuda`, one thread and a GPU. All find the same
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_method)]
    method: Asked,
    /// The average chunk, 1KiB to 1MiB: the nearest power of two [default: 2KiB]
    #[arg(long, value_name = "SIZE", value_parser = bounded::chunk_size)]
    chunk_size: Option<u32>,
    /// The shortest chunk; HARENS has it as long as the average [default: a quarter of the average]
    #[arg(long, value_name = "SIZE", value_parser = bounded::size)]
    chunk_min: Option<ByteSize>,
    /// How chunks are cut: modp, pack or fixed [default: modp]
    #[arg(long, value_name = "NAME")]
    chunker: Option<ChunkingMethod>,
    /// What chunks are known by: blake3, or sha1, to see what that costs [default: blake3]
    #[arg(long, value_name = "NAME")]
    hash: Option<ChunkHasher>,
    /// Bytes of the chunks that are remembered; those that were not seen for longest are forgotten first,
    /// in each of 64 equal parts: give it somewhat more than is to be remembered, and much more if that
    /// is few chunks. Takes about a fortieth of it in memory, at the default size of chunks
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = bounded::size)]
    cache_size: ByteSize,
    /// Threads that read [default: by processors, as all of these]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    fetchers: Option<usize>,
    /// Threads that look for where chunks may end
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    scanners: Option<usize>,
    /// Threads that hash chunks
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    hashers: Option<usize>,
    /// Threads that look up hashes; 64 have work
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    matchers: Option<usize>,
    /// Bytes that go from stage to stage at once, 4KiB to 1GiB. There are twice as many such batches as
    /// threads in memory, and two more [default: 1MiB, with GPUs 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_batch_size)]
    batch_size: Option<usize>,
    /// Kernels for these instructions: portable, avx2, avx512, neon, or auto for the fastest
    #[arg(long, value_name = "SET", env = "REFRAIN_SIMD", default_value = "auto")]
    simd: BackendChoice,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keep: KeepArguments,
}

/// Where what was found goes.
#[derive(Args)]
#[command(next_help_heading = "To keep what was found")]
struct KeepArguments {
    /// Write all that is read, each chunk once: as a CZIP archive, for `refrain czip`, which replaces what is
    /// there once it is whole; with --realm, into the chunk store in this folder
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Of an archive, what it is made for: `small` compresses chunks together; in `shared` each chunk stands
    /// alone, so that caches can share it
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with = "realm", default_value = "small", value_parser = parse_profile)]
    profile: Profile,
    /// Of an archive, zstd, gzip, bzip2 or none, and perhaps a level, such as zstd:19
    #[arg(
        long,
        value_name = "METHOD[:LEVEL]",
        requires = "output",
        conflicts_with = "realm",
        default_value_t
    )]
    compress: Compression,
    /// The service whose flows this may answer as history, as the near gateway names it. A chunk store cuts
    /// in its own way: so do then --chunk-size, --chunker and --hash
    #[arg(long, value_name = "NAME", requires = "output", value_parser = parse_realm,
          conflicts_with_all = ["chunk_size", "chunk_min", "chunker", "hash"])]
    realm: Option<String>,
    /// The bound on disk of a chunk store [default: as it is, or 100GB for a new one]
    #[arg(long, value_name = "SIZE", requires = "realm", value_parser = bounded::size)]
    store_size: Option<ByteSize>,
    /// Keep private keys and chunk stores in a chunk store too: a prediction tells the other end what is
    /// here
    #[arg(long, requires = "realm")]
    all: bool,
}

/// The method that is asked for.
#[derive(Clone, Copy)]
enum Asked {
    Auto,
    Only(Method),
}

fn parse_method(name: &str) -> Result<Asked, String> {
    match name {
        "auto" => Ok(Asked::Auto),
        name => match name.parse() {
            Ok(method) => Ok(Asked::Only(method)),
            Err(error) => Err(format!("{error}, or `auto`")),
        },
    }
}

pub(crate) fn run(arguments: &BulkArguments) -> anyhow::Result<()> {
    arguments.check().map_err(WrongArguments)?;
    let interrupt = Interrupt::listen()?;
    let inputs = (arguments.inputs).open(arguments.keep.archive(), &interrupt)?;
    let expected = expected_bytes(&inputs, &interrupt);
    let (method, why) = match arguments.method {
        Asked::Only(method) => (method, None),
        Asked::Auto => {
            let without = options(arguments, Method::Pipeline)?;
            let with = options(arguments, Method::Harens)?;
            let Choice { method, why } = choose(&without, &with, expected);
            (method, Some(why.to_string()))
        }
    };
    let options = options(arguments, method)?;
    let begun = Instant::now();
    let archive;
    let mut keep: Option<Box<dyn Keep + '_>> = match &arguments.keep.output {
        None => None,
        Some(output) => Some(match &arguments.keep.realm {
            Some(realm) => {
                let config = arguments.keep.store_config(output)?;
                refuse_loss(output, config)?;
                Box::new(History::new(output, config, realm, arguments.keep.all)?)
            }
            None => {
                archive = arguments.archive_options(output, &options, expected)?;
                Box::new(
                    Archive::begin(output, &archive)
                        .with_context(|| output.display().to_string())?,
                )
            }
        }),
    };
    let sink = keep.as_deref_mut().map(|keep| keep as &mut dyn Sink);
    let bar = progress::of_bytes(expected);
    let outcome = find_redundancy(inputs, &options, sink, &mut |now: Progress<'_>| {
        bar.set_position(now.bytes);
        bar.set_message(format!(
            "{} redundant",
            share(now.redundant_bytes, now.bytes)
        ));
        if let Some((path, failed)) = now.failure
            && interrupt.check().is_ok()
        {
            bar.suspend(|| tell(in_words(path, failed)));
        }
        interrupt.flow()
    });
    bar.finish_and_clear();
    let outcome = outcome.with_context(|| format!("--method {}", options.method));
    let outcome = interrupt.or(outcome)?;
    if let Some(failure) = &outcome.gpu_failure {
        tell(format_args!("{failure}; the processor went on for it"));
    }
    let found = &outcome.redundancy;
    // Half of an input is no archive; and a chunk store ends as it can.
    if keep.is_some() {
        interrupt.check()?;
    }
    ensure!(
        keep.is_none() || found.files > 0 || found.failures == 0,
        "nothing could be read: nothing is written"
    );
    let kept = match keep {
        None => None,
        Some(keep) => {
            let output = arguments.keep.output.as_deref().unwrap_or(Path::new(""));
            let kept = keep.finish().with_context(|| output.display().to_string());
            Some(interrupt.or(kept)?)
        }
    };
    let kept = kept.map(|kept| (kept, begun.elapsed()));
    let report = Report::new(&outcome, &options, why, kept);
    // Who reads no more of it, such as `head`, has the exit code still.
    let printed = report.print(arguments.json);
    if outcome.is_cut_short {
        interrupt.check()?;
    }
    ensure!(
        report.found.failures == 0,
        "this is without what could not be read: {}",
        count(report.found.failures, "path", "paths")
    );
    ensure!(
        !report.has_lost(),
        "the store does not hold all of what was read"
    );
    ensure!(
        report.found.changed_files == 0 || arguments.keep.output.is_none(),
        "this is with what changed while it was read: {}; read a snapshot, or while nobody writes",
        count(report.found.changed_files, "file", "files")
    );
    printed.map_err(standard_io::output_failed)
}

impl BulkArguments {
    /// Whether they make sense together, as far as that can be said before anything is opened.
    fn check(&self) -> anyhow::Result<()> {
        let standard = self.inputs.inputs.iter().filter(|path| is_standard(path));
        let standard = standard.count();
        ensure!(
            standard < 2,
            "standard input is read once: `-` may stand once"
        );
        self.inputs.refuse_nothing()?;
        if self.keep.realm.is_some() {
            return Ok(());
        }
        let (_, hasher) = self.cutting()?;
        let Some(output) = &self.keep.output else {
            return Ok(());
        };
        ensure!(
            !is_standard(output),
            "the report goes to standard output: give a file, or a pipe that has a name, with -o"
        );
        ensure!(
            hasher == ChunkHasher::Blake3,
            "archives know chunks by blake3: leave --hash out"
        );
        ensure!(
            self.inputs.inputs.len() == 1 || standard == 0,
            "`-` is archived alone: it has no name"
        );
        Ok(())
    }

    /// How files are cut and chunks known, unless a chunk store says.
    fn cutting(&self) -> anyhow::Result<(Chunking, ChunkHasher)> {
        let chunker = self.chunker.unwrap_or(ChunkingMethod::Modp);
        let average = self.chunk_size.unwrap_or(BulkOptions::CHUNK_BYTES);
        let mut chunking = Chunking::new(chunker, average)?;
        if let Some(ByteSize(shortest)) = self.chunk_min {
            ensure!(
                chunker != ChunkingMethod::Fixed,
                "--chunk-min: fixed chunks are all as long"
            );
            ensure!(
                shortest <= average.into(),
                "--chunk-min: the shortest chunk, {}, is longer than the average, {}",
                ByteSize(shortest),
                ByteSize(average.into())
            );
            let bounded = chunking.with_bounds(shortest as u32, chunking.max_bytes());
            chunking = bounded.context("--chunk-min")?;
        }
        Ok((chunking, self.hash.unwrap_or_default()))
    }

    /// How an archive of what is found is to be.
    fn archive_options(
        &self,
        output: &Path,
        options: &BulkOptions,
        expected: Option<u64>,
    ) -> anyhow::Result<CreateOptions> {
        ensure!(
            !output.is_dir(),
            "{} is a folder: an archive is a file, and for a chunk store in it --realm says whose history it is",
            output.display()
        );
        Ok(CreateOptions {
            profile: self.keep.profile,
            chunking: options.chunking,
            compression: self.keep.compress,
            is_woven: false,
            expected_bytes: expected,
            temporary: temporary_for(output),
            ..CreateOptions::default()
        })
    }
}

impl KeepArguments {
    /// Where an archive goes, if one is to be made.
    fn archive(&self) -> Option<&Path> {
        match self.realm {
            None => self.output.as_deref(),
            Some(_) => None,
        }
    }

    /// The configuration of the chunk store in a folder, or of a new one.
    fn store_config(&self, folder: &Path) -> anyhow::Result<StoreConfig> {
        ensure!(
            !folder.exists() || folder.is_dir(),
            "{} is no folder: with --realm, -o is the folder of a chunk store",
            folder.display()
        );
        store_config(folder, self.store_size)
    }
}

fn options(arguments: &BulkArguments, method: Method) -> anyhow::Result<BulkOptions> {
    let (chunking, hasher) = match (&arguments.keep.output, &arguments.keep.realm) {
        (Some(folder), Some(_)) => {
            let config = arguments.keep.store_config(folder)?;
            (history::chunking(&config)?, config.chunking.hasher)
        }
        _ => arguments.cutting()?,
    };
    let defaults = Threads::default();
    let or = |asked: Option<usize>, default| asked.and_then(NonZero::new).unwrap_or(default);
    Ok(BulkOptions {
        method,
        chunking,
        hasher,
        cache_bytes: arguments.cache_size.0,
        threads: Threads {
            fetch: or(arguments.fetchers, defaults.fetch),
            scan: or(arguments.scanners, defaults.scan),
            hash: or(arguments.hashers, defaults.hash),
            matching: or(arguments.matchers, defaults.matching),
        },
        batch_bytes: arguments.batch_size.unwrap_or(match method {
            Method::Naive | Method::Pipeline => BATCH_BYTES,
            Method::Cuda | Method::Harens => BATCH_BYTES_OF_GPUS,
        }),
        backend: arguments.simd.backend(),
    })
}

fn parse_batch_size(text: &str) -> Result<usize, String> {
    let ByteSize(asked) = bounded::size(text)?;
    match (BATCH_BYTES_MIN..=BATCH_BYTES_MAX).contains(&asked) {
        true => Ok(asked as usize),
        false => Err("expected 4KiB to 1GiB".to_owned()),
    }
}

fn in_words(path: &Path, failed: &Failed) -> String {
    let path = printable_path(path);
    match failed {
        Failed::Special => format!("passed over: {path}: it is no file, folder or link"),
        Failed::Unread(error) => format!("not read, or not to its end: {path}: {error}"),
        Failed::Shrunk => format!("became shorter while it was read: {path}"),
        Failed::Changed => {
            format!("changed while it was read: {path}: it may never have been as it was read")
        }
    }
}
