//! `refrain bulk` as users run it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};
use serde::Deserialize;

/// What a machine without a GPU says.
const NO_GPU: &str = "no CUDA device";

/// The program.
pub(super) struct Program(PathBuf);

/// What it reported.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    /// What the process took beside looking for redundancy: beginning, making GPUs ready, ending.
    #[serde(skip)]
    pub around_s: f64,
    pub bytes: u64,
    pub seconds: f64,
    pub gb_per_s: f64,
    pub redundancy: f64,
    pub chunks: u64,
    pub simd: String,
    pub gpus: Vec<String>,
    pub peak_memory_bytes: Option<u64>,
    #[serde(default)]
    pub stages: Vec<Stage>,
    pub kept_seconds: Option<f64>,
    pub kept: Option<Kept>,
}

/// A stage of the pipeline.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stage {
    pub name: String,
    pub threads: usize,
    pub gb_per_s: f64,
}

/// What was kept.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Kept {
    pub store: InStore,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct InStore {
    pub new_bytes: u64,
}

impl Program {
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        let program = path.display();
        let path = path.canonicalize().with_context(|| {
            format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
        })?;
        Ok(Self(path))
    }

    /// Looks for the redundancy of `inputs`; nothing if that takes a GPU and there is none.
    pub(super) fn bulk(
        &self,
        inputs: &[PathBuf],
        options: &[&str],
    ) -> anyhow::Result<Option<Report>> {
        let begun = Instant::now();
        let output = Command::new(&self.0)
            .args(["bulk", "--json"])
            .args(options)
            .args(inputs)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            let report: Report = serde_json::from_slice(&output.stdout)?;
            return Ok(Some(Report {
                around_s: begun.elapsed().as_secs_f64() - report.seconds,
                ..report
            }));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains(NO_GPU) {
            return Ok(None);
        }
        bail!("refrain bulk {}: {}", options.join(" "), said.trim());
    }
}
