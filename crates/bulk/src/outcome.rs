//! What came of it.

use std::{io, path::Path, sync::Arc, time::Duration};

use serde::Serialize;

use crate::error::NoGpu;

/// How far it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress<'a> {
    /// Bytes of the chunks that were looked up.
    pub bytes: u64,
    /// Of these, the bytes of chunks that were there before.
    pub redundant_bytes: u64,
    /// What went wrong just now.
    pub failure: Option<(&'a Path, &'a Failed)>,
}

/// Why a file, or what is left of it, was not looked at, or may have been looked at in vain.
#[derive(Debug)]
pub enum Failed {
    /// It is no file and no folder.
    Special,
    /// It, or the rest of it, could not be read.
    Unread(io::Error),
    /// It became shorter while it was read.
    Shrunk,
    /// Somebody wrote to it while it was read: it may never have been as it was read.
    Changed,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Unread(error)
    }
}

/// What went wrong with a path.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) path: Arc<Path>,
    pub(crate) failed: Failed,
}

impl Failure {
    pub(crate) fn of(path: impl Into<Arc<Path>>, failed: impl Into<Failed>) -> Self {
        Self {
            path: path.into(),
            failed: failed.into(),
        }
    }
}

/// A stage, and how busy it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// What it does: fetch, scan, cut, hash or match.
    pub name: &'static str,
    /// Threads that it had.
    pub threads: usize,
    /// Processor time of all of them.
    pub cpu_seconds: f64,
    /// Time that they had work, all together; longer where others had the processor meanwhile, or a
    /// disk was waited for.
    pub busy_seconds: f64,
    /// All bytes by the processor time: what one processor of its own would do.
    pub gb_per_s: f64,
}

/// Chunks by length: in place `n`, those of 2ⁿ bytes and more, and less than 2ⁿ⁺¹.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many there are.
    pub chunks: [u64; 24],
    /// How many of them were there before.
    pub repeats: [u64; 24],
}

/// The redundancy of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Redundancy {
    /// Files that were read, or some of them.
    pub files: u64,
    /// What could not be read, or not to its end.
    #[serde(rename = "unread_files")]
    pub failures: u64,
    /// Files that somebody wrote to while they were read.
    pub changed_files: u64,
    /// Pipes, devices and sockets in folders.
    pub special_files: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// All chunks.
    pub chunks: u64,
    /// Bytes of chunks that were there before.
    pub redundant_bytes: u64,
    /// Chunks that were there before.
    pub redundant_chunks: u64,
    /// Chunks that the cache forgot to have room for others, or never had room for, as often as it did: if
    /// there are none, nothing that repeats was missed.
    pub forgotten_chunks: u64,
    /// How long they are.
    #[serde(skip)]
    pub histogram: Histogram,
}

impl Redundancy {
    /// The share of redundant bytes, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self.bytes {
            0 => 0.0,
            bytes => self.redundant_bytes as f64 / bytes as f64,
        }
    }

    pub(crate) fn count(&mut self, bytes: usize, is_repeat: bool) {
        let place = bytes.max(1).ilog2() as usize;
        self.bytes += bytes as u64;
        self.chunks += 1;
        self.histogram.chunks[place] += 1;
        if is_repeat {
            self.redundant_bytes += bytes as u64;
            self.redundant_chunks += 1;
            self.histogram.repeats[place] += 1;
        }
    }
}

/// What came of an input.
#[derive(Debug)]
pub struct Outcome {
    /// What was found.
    pub redundancy: Redundancy,
    /// From the first file to the last chunk.
    pub elapsed: Duration,
    /// Of a pipeline, in the order in which bytes go through.
    pub stages: Vec<StageTime>,
    /// Whether it was ended before all was read.
    pub is_cut_short: bool,
    /// The GPUs that worked.
    pub gpus: Vec<String>,
    /// Why one of them did not to the end, if that is so: the processor went on for it.
    pub gpu_failure: Option<NoGpu>,
}
