//! What `refrain bulk` found, as a table or as JSON.

use std::{
    io::{self, Write},
    time::Duration,
};

use refrain_bulk::{BulkOptions, Histogram, Method, Outcome, Redundancy, StageTime};
use refrain_codec::{chunk::chunking::ChunkingMethod, simd::Backend};
use refrain_gateway::units::ByteSize;
use serde::Serialize;

use super::history::Kept;
use crate::table::{Table, bytes, count, lines, percent, printable};

/// What was found, and how fast.
#[derive(Serialize)]
pub(super) struct Report {
    method: String,
    /// Why `auto` chose that.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Whether somebody ended it before all was read.
    is_cut_short: bool,
    #[serde(flatten)]
    pub found: Redundancy,
    seconds: f64,
    gb_per_s: f64,
    /// 0 to 1.
    redundancy: f64,
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
    stages: Vec<StageTime>,
    chunk_lengths: Vec<Lengths>,
    peak_memory_bytes: Option<u64>,
    /// Where it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<KeptIn>,
    /// Until that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_seconds: Option<f64>,
}

#[derive(Serialize)]
struct KeptIn {
    store: Kept,
}

/// Chunks of so many bytes and more, and less than twice as many.
#[derive(Serialize)]
struct Lengths {
    bytes_min: u32,
    chunks: u64,
    redundant_chunks: u64,
}

impl Report {
    pub(super) fn new(
        outcome: &Outcome,
        options: &BulkOptions,
        why: Option<String>,
        kept: Option<(Kept, Duration)>,
    ) -> Self {
        let (kept, kept_after) = kept.unzip();
        let found = outcome.redundancy;
        let seconds = outcome.elapsed.as_secs_f64();
        let chunking = options.chunking;
        let [shortest, longest] = match chunking.method() {
            ChunkingMethod::Fixed => [chunking.average_bytes(); 2],
            ChunkingMethod::Modp | ChunkingMethod::Pack => {
                [chunking.min_bytes(), chunking.max_bytes()]
            }
        };
        Self {
            method: options.method.to_string(),
            why,
            is_cut_short: outcome.is_cut_short,
            found,
            seconds,
            gb_per_s: match seconds {
                0.0 => 0.0,
                seconds => found.bytes as f64 / 1e9 / seconds,
            },
            redundancy: found.share(),
            chunker: chunking.method().to_string(),
            chunk_size: chunking.average_bytes(),
            chunk_bytes_min: shortest,
            chunk_bytes_max: longest,
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
            stages: outcome.stages.clone(),
            chunk_lengths: lengths(&found.histogram),
            peak_memory_bytes: crate::report::peak_memory_bytes(),
            kept_seconds: kept_after.map(|after| after.as_secs_f64()),
            kept: kept.map(|store| KeptIn { store }),
        }
    }

    /// Whether a chunk store found no room for what was put into it.
    pub(super) fn has_lost(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.store.new_bytes > kept.store.held_bytes)
    }

    /// The answer first, and the rest with `--verbose`.
    pub(super) fn print(&self, is_json: bool, is_verbose: bool) -> io::Result<()> {
        let out = &mut io::stdout().lock();
        if is_json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        // The errors say it all.
        if self.found.files == 0 && self.found.failures > 0 {
            return Ok(());
        }
        self.answer(out)?;
        match is_verbose {
            true => self.details(out),
            false => Ok(()),
        }
    }

    fn answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let found = &self.found;
        let so_far = if self.is_cut_short { "so far, " } else { "" };
        let repeats = match found.bytes {
            0 => "nothing".to_owned(),
            bytes => share(found.redundant_bytes, bytes),
        };
        writeln!(
            out,
            "{so_far}{repeats} repeats: {} of {} in {}",
            bytes(found.redundant_bytes),
            bytes(found.bytes),
            count(found.files, "file", "files")
        )?;
        if found.forgotten_chunks > 0 {
            let forgotten = count(found.forgotten_chunks, "chunk", "chunks");
            writeln!(
                out,
                "possibly more: {forgotten} did not fit in --cache-size"
            )?;
        }
        let rate = match found.bytes {
            0 => String::new(),
            _ => format!(" ({}/s)", bytes((self.gb_per_s * 1e9) as u64)),
        };
        writeln!(out, "read in {:.3} s{rate}", self.seconds)?;
        if let Some(KeptIn { store }) = &self.kept {
            writeln!(
                out,
                "history: {} in realm {}: stored {}; {} was already there",
                count(store.files, "file", "files"),
                printable(&store.realm),
                bytes(store.new_bytes),
                bytes(store.known_bytes)
            )?;
        }
        Ok(())
    }

    /// How the answer was found.
    fn details(&self, out: &mut dyn Write) -> io::Result<()> {
        let found = &self.found;
        let mean = found.bytes.checked_div(found.chunks).unwrap_or(0);
        let mut all = vec![
            (
                "chunks",
                format!(
                    "{}, {} of them repeated; {} on average",
                    found.chunks,
                    found.redundant_chunks,
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
            ("SIMD path", self.simd.clone()),
        ];
        if !self.gpus.is_empty() {
            all.push(("GPUs", self.gpus.join(", ")));
        }
        let peak = self.peak_memory_bytes.map_or("unknown".to_owned(), bytes);
        all.push(("peak memory", peak));
        lines(&all, out)?;
        if !self.stages.is_empty() {
            writeln!(out)?;
            let mut table = Table::new("stage  threads  CPU s  busy s  GB/s per CPU");
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
        if self.chunk_lengths.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let mut table = Table::new("chunks of at least  number  repeated");
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

/// A part of bytes or chunks, in words.
pub(super) fn share(part: u64, of: u64) -> String {
    percent(part as f64, of as f64)
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
