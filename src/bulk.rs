//! `refrain bulk`: how much of large inputs repeats, as fast as this machine can tell.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Args;
use refrain_bulk::{
    BulkOptions, Choice, Failed, Histogram, Input, Method, Outcome, Progress, StageTime, Threads,
    choose, find_redundancy,
};
use refrain_codec::{
    chunk::{
        chunking::{Chunking, ChunkingMethod},
        hash::ChunkHasher,
    },
    simd::{Backend, BackendChoice},
};
use refrain_gateway::units::ByteSize;
use serde::Serialize;

use crate::{
    bounded,
    interrupt::Interrupt,
    progress,
    standard_io::{self, StandardInput},
    table::{Table, bytes, count, lines, percent, printable_path},
    told::tell,
};

/// What stands for standard input.
const STANDARD: &str = "-";

/// What stays in a processor's caches on its way from stage to stage.
const BATCH_BYTES: usize = 1 << 20;

/// What keeps a GPU busy for longer than it takes to tell it so.
const BATCH_BYTES_OF_GPUS: usize = 16 << 20;

/// There are several, so that no machine has room for more.
const BATCH_BYTES_MAX: u64 = 1 << 30;

/// Where the kernel says how much memory the process has had.
const PROCESS_STATUS: &str = "/proc/self/status";

#[derive(Args)]
pub struct BulkArguments {
    /// Files, and folders with all that is in them; `-` is standard input. What cannot be read is told,
    /// the rest goes on, and the exit code is 1
    #[arg(value_name = "FILE|DIR", required = true)]
    inputs: Vec<PathBuf>,
    /// Who does the work: `auto`, the fastest, by a short measurement if there is enough to do; `pipeline`, all of this machine's threads and vectors; `harens`, the same with its
    /// CUDA GPUs, which find where chunks may end; and to see what these are worth `naive`, one thread and a byte
    /// at a time, and `cuda`, one thread and a GPU. All find the same
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_method)]
    method: Asked,
    /// The average chunk, 1KiB to 1MiB: the nearest power of two
    #[arg(long, value_name = "SIZE", default_value = "2KiB", value_parser = bounded::chunk_size)]
    chunk_size: u32,
    /// The shortest chunk; HARENS has it as long as the average [default: a quarter of the average]
    #[arg(long, value_name = "SIZE", value_parser = bounded::size)]
    chunk_min: Option<ByteSize>,
    /// How chunks are cut: modp, pack or fixed
    #[arg(long, value_name = "NAME", default_value_t = ChunkingMethod::Modp)]
    chunker: ChunkingMethod,
    /// What chunks are known by: blake3, or sha1, to see what that costs
    #[arg(long, value_name = "NAME", default_value_t)]
    hash: ChunkHasher,
    /// Bytes of the chunks that are remembered; those that were not seen for longest are forgotten first.
    /// Takes about a fortieth of it in memory, at the default size of chunks
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
    /// Bytes that go from stage to stage at once [default: 1MiB, with GPUs 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_batch_size)]
    batch_size: Option<usize>,
    /// Kernels for these instructions: portable, avx2, avx512, neon, or auto for the fastest
    #[arg(long, value_name = "SET", env = "REFRAIN_SIMD", default_value = "auto")]
    simd: BackendChoice,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
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

/// What was found, and how fast.
#[derive(Serialize)]
struct Report {
    method: String,
    /// Why `auto` chose that.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    files: u64,
    bytes: u64,
    seconds: f64,
    gb_per_s: f64,
    /// 0 to 1.
    redundancy: f64,
    redundant_bytes: u64,
    chunks: u64,
    redundant_chunks: u64,
    chunker: String,
    chunk_size: u32,
    chunk_bytes_min: u32,
    chunk_bytes_max: u32,
    hash: String,
    cache_bytes: u64,
    simd: String,
    gpus: Vec<String>,
    /// Why one of them did not work to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_failure: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Stage>,
    chunk_lengths: Vec<Lengths>,
    peak_memory_bytes: Option<u64>,
    special_files: u64,
    unread_files: u64,
}

/// A stage of the pipeline.
#[derive(Serialize)]
struct Stage {
    name: &'static str,
    threads: usize,
    cpu_seconds: f64,
    busy_seconds: f64,
    /// All bytes by the processor time of the stage: what one processor of its own would do.
    gb_per_s: f64,
}

/// Chunks of so many bytes and more, and less than twice as many.
#[derive(Serialize)]
struct Lengths {
    bytes_min: u32,
    chunks: u64,
    redundant_chunks: u64,
}

pub fn run(arguments: &BulkArguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let inputs = inputs(&arguments.inputs, &interrupt)?;
    let expected = expected_bytes(&arguments.inputs, &interrupt);
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
    let bar = progress::of_bytes(expected);
    let outcome = find_redundancy(inputs, &options, &mut |now: Progress<'_>| {
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
    interrupt.check()?;
    let outcome = outcome.with_context(|| format!("--method {}", options.method))?;
    if let Some(failure) = &outcome.gpu_failure {
        tell(format_args!("{failure}; the processor went on for it"));
    }
    let report = Report::new(&outcome, &options, why);
    report
        .print(arguments.json)
        .map_err(standard_io::output_failed)?;
    ensure!(
        report.unread_files == 0,
        "this is without what could not be read: {}",
        count(report.unread_files, "path", "paths")
    );
    Ok(())
}

fn options(arguments: &BulkArguments, method: Method) -> anyhow::Result<BulkOptions> {
    let mut chunking = Chunking::new(arguments.chunker, arguments.chunk_size)?;
    if let Some(ByteSize(shortest)) = arguments.chunk_min {
        let shortest = u32::try_from(shortest).unwrap_or(u32::MAX);
        chunking = chunking.with_bounds(shortest, chunking.max_bytes())?;
    }
    let defaults = Threads::default();
    let or = |asked: Option<usize>, default| asked.and_then(NonZero::new).unwrap_or(default);
    Ok(BulkOptions {
        method,
        chunking,
        hasher: arguments.hash,
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

fn inputs(paths: &[PathBuf], interrupt: &Interrupt) -> anyhow::Result<Vec<Input>> {
    let standard = paths.iter().filter(|path| path.as_os_str() == STANDARD);
    ensure!(
        standard.count() < 2,
        "standard input is read once: `-` may stand once"
    );
    let mut inputs = Vec::new();
    for path in paths {
        inputs.push(match path.as_os_str() == STANDARD {
            true => {
                let stream = StandardInput::new(interrupt).context("standard input")?;
                Input::Stream("standard input".into(), Box::new(stream))
            }
            false => Input::Path(path.clone()),
        });
    }
    Ok(inputs)
}

fn parse_batch_size(text: &str) -> Result<usize, String> {
    let ByteSize(asked) = bounded::size(text)?;
    match asked <= BATCH_BYTES_MAX {
        true => Ok(asked as usize),
        false => Err("expected at most 1GiB".to_owned()),
    }
}

/// About how many bytes there are, if that can be known before they are read.
fn expected_bytes(paths: &[PathBuf], interrupt: &Interrupt) -> Option<u64> {
    let mut sum = 0;
    for path in paths {
        sum += match path.as_os_str() == STANDARD {
            true => standard_io::input_left()?,
            false => bytes_below(path, interrupt),
        };
    }
    Some(sum)
}

/// Bytes of the files at and below `path`; what cannot be read has none.
fn bytes_below(path: &Path, interrupt: &Interrupt) -> u64 {
    if let Ok(metadata) = fs::metadata(path)
        && !metadata.is_dir()
    {
        return metadata.len();
    }
    let mut sum = 0;
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop()
        && interrupt.check().is_ok()
    {
        for below in fs::read_dir(folder).into_iter().flatten().flatten() {
            // Of the entry itself: links are not followed.
            match below.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(below.path()),
                Ok(metadata) if metadata.is_file() => sum += metadata.len(),
                _ => {}
            }
        }
    }
    sum
}

fn in_words(path: &Path, failed: &Failed) -> String {
    let path = printable_path(path);
    match failed {
        Failed::Special => format!("passed over: {path}: it is no file, folder or link"),
        Failed::Unread(error) => format!("not read, or not to its end: {path}: {error}"),
        Failed::Shrunk => format!("became shorter while it was read: {path}"),
    }
}

impl Report {
    fn new(outcome: &Outcome, options: &BulkOptions, why: Option<String>) -> Self {
        let Outcome {
            redundancy: found,
            elapsed,
            stages,
            ..
        } = outcome;
        let stages = stages.iter().flat_map(|stages| {
            [
                ("fetch", stages.fetch),
                ("scan", stages.scan),
                ("cut", stages.cut),
                ("hash", stages.hash),
                ("match", stages.matching),
            ]
        });
        let chunking = options.chunking;
        Self {
            method: options.method.to_string(),
            why,
            files: found.files,
            bytes: found.bytes,
            seconds: elapsed.as_secs_f64(),
            gb_per_s: gb_per_s(found.bytes, *elapsed),
            redundancy: found.share(),
            redundant_bytes: found.redundant_bytes,
            chunks: found.chunks,
            redundant_chunks: found.redundant_chunks,
            chunker: chunking.method().to_string(),
            chunk_size: chunking.average_bytes(),
            chunk_bytes_min: chunking.min_bytes(),
            chunk_bytes_max: chunking.max_bytes(),
            hash: options.hasher.to_string(),
            cache_bytes: options.cache_bytes,
            simd: match options.method {
                Method::Naive => Backend::PORTABLE,
                Method::Pipeline | Method::Cuda | Method::Harens => options.backend,
            }
            .instruction_set()
            .to_string(),
            gpus: outcome.gpus.clone(),
            gpu_failure: outcome.gpu_failure.as_ref().map(ToString::to_string),
            stages: stages
                .map(|(name, stage)| Stage::new(name, stage, found.bytes))
                .collect(),
            chunk_lengths: lengths(&found.histogram),
            peak_memory_bytes: peak_memory_bytes(),
            special_files: found.special_files,
            unread_files: found.failures,
        }
    }

    fn print(&self, is_json: bool) -> std::io::Result<()> {
        use std::io::Write;
        let out = &mut std::io::stdout().lock();
        if is_json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        let mean = self.bytes.checked_div(self.chunks).unwrap_or(0);
        lines(
            &[
                (
                    "read",
                    format!(
                        "{} of {} in {:.3} s: {:.2} GB/s, on {}",
                        bytes(self.bytes),
                        count(self.files, "file", "files"),
                        self.seconds,
                        self.gb_per_s,
                        [slice::from_ref(&self.simd), &self.gpus[..]]
                            .concat()
                            .join(", ")
                    ),
                ),
                (
                    "redundant",
                    format!(
                        "{} ({})",
                        bytes(self.redundant_bytes),
                        share(self.redundant_bytes, self.bytes)
                    ),
                ),
                (
                    "chunks",
                    format!(
                        "{}, {} of them redundant; {} on average",
                        self.chunks,
                        self.redundant_chunks,
                        bytes(mean)
                    ),
                ),
                (
                    "method",
                    match &self.why {
                        Some(why) => format!("{}: {why}", self.method),
                        None => self.method.clone(),
                    },
                ),
                (
                    "peak memory",
                    self.peak_memory_bytes.map_or("unknown".to_owned(), bytes),
                ),
            ],
            out,
        )?;
        if !self.stages.is_empty() {
            writeln!(out)?;
            let mut table = Table::new(&["stage", "threads", "CPU s", "busy s", "GB/s of CPU"]);
            for stage in &self.stages {
                table.row([
                    stage.name.to_owned(),
                    stage.threads.to_string(),
                    format!("{:.3}", stage.cpu_seconds),
                    format!("{:.3}", stage.busy_seconds),
                    format!("{:.2}", stage.gb_per_s),
                ]);
            }
            table.print(out)?;
        }
        writeln!(out)?;
        let mut table = Table::new(&["chunks of at least", "number", "redundant"]);
        for lengths in &self.chunk_lengths {
            table.row([
                ByteSize(lengths.bytes_min.into()).to_string(),
                lengths.chunks.to_string(),
                share(lengths.redundant_chunks, lengths.chunks),
            ]);
        }
        table.print(out)
    }
}

impl Stage {
    fn new(name: &'static str, stage: StageTime, bytes: u64) -> Self {
        Self {
            name,
            threads: stage.threads,
            cpu_seconds: stage.cpu.as_secs_f64(),
            busy_seconds: stage.busy.as_secs_f64(),
            gb_per_s: gb_per_s(bytes, stage.cpu),
        }
    }
}

fn share(part: u64, of: u64) -> String {
    percent(part as f64, of as f64)
}

fn gb_per_s(bytes: u64, time: Duration) -> f64 {
    match time {
        Duration::ZERO => 0.0,
        time => bytes as f64 / 1e9 / time.as_secs_f64(),
    }
}

fn lengths(histogram: &Histogram) -> Vec<Lengths> {
    let counts = histogram.chunks.iter().zip(&histogram.repeats).enumerate();
    let lengths = counts.map(|(bits, (&chunks, &redundant_chunks))| Lengths {
        bytes_min: 1 << bits,
        chunks,
        redundant_chunks,
    });
    lengths.filter(|lengths| lengths.chunks > 0).collect()
}

/// The most memory that this process has had.
fn peak_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string(PROCESS_STATUS).ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
