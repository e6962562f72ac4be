//! `refrain bulk`: how much of large inputs repeats, as fast as this machine can tell.

mod history;
mod report;

use std::{
    io,
    num::NonZero,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, ensure};
use clap::Args;
use history::History;
use refrain_bulk::{
    BulkOptions, Choice, Failed, Method, Progress, Sink, Threads, choose, find_redundancy,
};
use refrain_codec::{
    chunk::{
        chunking::{Chunking, ChunkingMethod},
        hash::ChunkHasher,
    },
    simd::Backend,
};
use refrain_gateway::units::ByteSize;
use refrain_store::StoreConfig;
use report::{Report, share};

use crate::{
    bounded,
    inputs::{InputArguments, expected_bytes},
    interrupt::Interrupt,
    progress,
    standard_io::{self, is_standard},
    stderr::warn,
    store::{parse_realm, refuse_loss, store_config},
    table::{count, printable_path},
    usage::UsageError,
};

/// What stays in a processor's caches on its way from stage to stage.
const BATCH_BYTES: usize = 1 << 20;

/// What keeps a GPU busy for longer than it takes to tell it so.
const BATCH_BYTES_OF_GPUS: usize = 16 << 20;

/// With less, all that is done is passing batches on.
const BATCH_BYTES_MIN: u64 = 4 << 10;

/// There are several, so that no machine has room for more.
const BATCH_BYTES_MAX: u64 = 1 << 30;

const EXAMPLE: &str = "\
Example:
  refrain bulk /var/backups --exclude '*.tmp'";

const AFTER_LONG_HELP: &str =
    "A file that has several names, or is given twice, is read and counted each time.";

#[derive(Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{AFTER_LONG_HELP}"))]
pub(crate) struct BulkArguments {
    #[command(flatten)]
    inputs: InputArguments,
    /// Find repeats with this method: auto, pipeline, harens, naive or cuda
    ///
    /// `auto` selects the fastest method, by a short measurement if there is enough data. `pipeline` uses
    /// all threads and vector instructions of this machine. `harens` also uses its CUDA GPUs, which find
    /// chunk ends. `naive` and `cuda` are for comparison: `naive` uses one thread and works byte by byte,
    /// `cuda` uses one thread and a GPU. All methods find the same repeats.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_method)]
    method: Asked,
    /// Cut chunks of this average size [default: 2KiB]
    ///
    /// From 1KiB to 1MiB, rounded to the nearest power of two.
    #[arg(long, value_name = "SIZE", value_parser = bounded::chunk_size)]
    chunk_size: Option<u32>,
    /// Set the shortest chunk [default: average / 4]
    ///
    /// In the HARENS paper, the shortest chunk equals the average.
    #[arg(long, value_name = "SIZE", value_parser = bounded::size)]
    chunk_min: Option<ByteSize>,
    /// Cut chunks by this method: modp, pack or fixed [default: modp]
    #[arg(long, value_name = "NAME")]
    chunker: Option<ChunkingMethod>,
    /// Identify chunks by blake3 or sha1 [default: blake3]
    ///
    /// `sha1` is there to measure its cost.
    #[arg(long, alias = "hash", value_name = "NAME")]
    chunk_hash: Option<ChunkHasher>,
    /// Remember chunks of this many bytes in total
    ///
    /// The least recently seen chunks are forgotten first. To remember all data, give a tenth more than its size,
    /// and at least 1GB. This takes about a fortieth of SIZE in memory, at the default chunk size.
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = bounded::size)]
    cache_size: ByteSize,
    /// Read with N threads [default: depends on the number of CPUs]
    ///
    /// The defaults of --scanners, --hashers and --matchers also depend on the number of CPUs.
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    fetchers: Option<usize>,
    /// Find chunk ends with N threads
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    scanners: Option<usize>,
    /// Hash chunks with N threads
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    hashers: Option<usize>,
    /// Look up hashes with N threads
    ///
    /// More than 64 threads have no effect.
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    matchers: Option<usize>,
    /// Pass data between stages in batches of this size [default: 1MiB, with GPUs 16MiB]
    ///
    /// From 4KiB to 1GiB. Memory holds two batches per thread, and two more.
    #[arg(long, value_name = "SIZE", value_parser = parse_batch_size)]
    batch_size: Option<usize>,
    /// Use this SIMD path
    ///
    /// It is portable, avx2, avx512, neon, or auto for the fastest.
    #[arg(long, value_name = "SET", env = "REFRAIN_SIMD", default_value = "auto")]
    simd: Backend,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
    /// Show chunks, the method, memory, and the speed of each stage
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    #[command(flatten)]
    keep: KeepArguments,
}

/// The options of the chunk store for the read data.
#[derive(Args)]
#[command(next_help_heading = "Options for a chunk store")]
struct KeepArguments {
    /// Write all data to the chunk store in this directory
    ///
    /// Each chunk is written once. (`refrain czip create` makes archives.)
    #[arg(short, long, value_name = "DIR", requires = "realm")]
    output: Option<PathBuf>,
    /// Store the data under this realm: the near end's --realm or, if it has none, the far end's public key
    ///
    /// The store determines how chunks are cut and named: --chunk-size, --chunk-min, --chunker and --chunk-hash cannot
    /// be given.
    #[arg(long, value_name = "NAME", requires = "output", value_parser = parse_realm)]
    realm: Option<String>,
    /// Limit the chunk store on disk [default: unchanged, or 100GB for a new one]
    #[arg(long, value_name = "SIZE", requires = "realm", value_parser = bounded::store_size)]
    store_size: Option<ByteSize>,
    /// Also write private keys and other chunk stores
    ///
    /// They are otherwise skipped, since predictions reveal local data to the other end.
    #[arg(long, requires = "realm")]
    all: bool,
}

/// The method that is asked for.
#[derive(Clone, Copy)]
enum Asked {
    Auto,
    Only(Method),
}

fn parse_method(name: &str) -> Result<Asked, &'static str> {
    match name {
        "auto" => Ok(Asked::Auto),
        name => match name.parse() {
            Ok(method) => Ok(Asked::Only(method)),
            Err(_) => Err("expected `auto`, `pipeline`, `harens`, `naive` or `cuda`"),
        },
    }
}

pub(crate) fn run(arguments: &BulkArguments) -> anyhow::Result<()> {
    arguments.check().map_err(UsageError)?;
    let interrupt = Interrupt::listen()?;
    let inputs = arguments.inputs.open(None, &interrupt)?;
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
    let mut history = match (&arguments.keep.output, &arguments.keep.realm) {
        (Some(output), Some(realm)) => {
            let config = arguments.keep.store_config(output)?;
            refuse_loss(output, config)?;
            Some(History::new(output, config, realm, arguments.keep.all)?)
        }
        _ => None,
    };
    let sink = history.as_mut().map(|history| history as &mut dyn Sink);
    let bar = progress::of_bytes(expected);
    let outcome = find_redundancy(inputs, &options, sink, &mut |now: Progress<'_>| {
        bar.set_position(now.bytes);
        bar.set_message(format!(
            "{} repeated",
            share(now.redundant_bytes, now.bytes)
        ));
        if let Some((path, failed)) = now.failure
            && interrupt.check().is_ok()
        {
            bar.suspend(|| warn(in_words(path, failed)));
        }
        interrupt.flow()
    });
    bar.finish_and_clear();
    let outcome = outcome.with_context(|| format!("--method {}", options.method));
    let outcome = interrupt.or(outcome)?;
    if let Some(failure) = &outcome.gpu_failure {
        warn(format_args!("{failure}; continued on the CPU"));
    }
    let found = &outcome.redundancy;
    if history.is_some() {
        interrupt.check()?;
    }
    ensure!(
        history.is_none() || found.files > 0 || found.failures == 0,
        "no input could be read, so nothing was written"
    );
    let kept = history.map(|history| interrupt.or(history.finish()));
    let kept = kept.transpose()?;
    let kept = kept.map(|kept| (kept, begun.elapsed()));
    let report = Report::new(&outcome, &options, why, kept);
    // Who reads no more of it, such as `head`, has the exit code still.
    let printed = report.print(arguments.json, arguments.verbose);
    if outcome.is_cut_short {
        interrupt.check()?;
    }
    ensure!(
        report.found.failures == 0,
        "could not read {}{}",
        count(report.found.failures, "path", "paths"),
        match report.found.files {
            0 => "",
            _ => ", so the report is incomplete",
        }
    );
    ensure!(
        !report.has_lost(),
        "the store does not have all data that was read"
    );
    ensure!(
        report.found.changed_files == 0 || arguments.keep.output.is_none(),
        "the store has data of {} that changed while being read (read a snapshot, or while no program \
         writes)",
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
            "standard input is read only once: give `-` only once"
        );
        self.inputs.refuse_nothing()?;
        match self.keep.realm {
            Some(_) => self.refuse_cutting(),
            None => self.cutting().map(drop),
        }
    }

    /// Fails if an option is given that a chunk store decides.
    fn refuse_cutting(&self) -> anyhow::Result<()> {
        for (option, is_given) in [
            ("--chunk-size", self.chunk_size.is_some()),
            ("--chunk-min", self.chunk_min.is_some()),
            ("--chunker", self.chunker.is_some()),
            ("--chunk-hash", self.chunk_hash.is_some()),
        ] {
            ensure!(
                !is_given,
                "{option} cannot be given with -o: the store determines how chunks are cut"
            );
        }
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
                "--chunk-min: all fixed chunks have the same size"
            );
            ensure!(
                shortest <= average.into(),
                "--chunk-min: the shortest chunk, {}, must not be longer than the average, {}",
                ByteSize(shortest),
                ByteSize(average.into())
            );
            let bounded = chunking.with_bounds(shortest as u32, chunking.max_bytes());
            chunking = bounded.context("--chunk-min")?;
        }
        Ok((chunking, self.chunk_hash.unwrap_or_default()))
    }
}

impl KeepArguments {
    /// The configuration of the chunk store in a folder, or of a new one.
    fn store_config(&self, folder: &Path) -> anyhow::Result<StoreConfig> {
        ensure!(
            !folder.exists() || folder.is_dir(),
            "\"{}\" is not a directory: with --realm, -o must be the directory of a chunk store",
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
        backend: arguments.simd,
    })
}

fn parse_batch_size(text: &str) -> Result<usize, String> {
    let ByteSize(asked) = bounded::size(text)?;
    match (BATCH_BYTES_MIN..=BATCH_BYTES_MAX).contains(&asked) {
        true => Ok(asked as usize),
        false => {
            let hint = bounded::unit_hint(text, BATCH_BYTES_MIN..=BATCH_BYTES_MAX, "KiB");
            Err(format!("must be from 4KiB to 1GiB{hint}"))
        }
    }
}

pub(crate) fn in_words(path: &Path, failed: &Failed) -> String {
    let path = printable_path(path);
    match failed {
        Failed::Special => format!("skipped \"{path}\": not a file, directory or link"),
        Failed::Unread(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                format!("cannot open \"{path}\": {error}")
            }
            _ => format!("cannot read all of \"{path}\": {error}"),
        },
        Failed::Shrunk => format!("\"{path}\" became shorter while it was read"),
        Failed::Changed => {
            format!("\"{path}\" changed while it was read: this content may never have existed")
        }
    }
}
