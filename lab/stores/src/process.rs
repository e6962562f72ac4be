//! What a process of the comparison is told, and how one starts another.
//!
//! Every measurement has a process of its own, so that memory and bytes written are one store's alone
//! and one that is killed is really gone.

use std::{
    fs::File,
    io::{BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;

use crate::{
    fill::{self, Event},
    load::Load,
    read,
    store::{Digest, Kind, Settings, Store},
};

/// Which store, where, under which load.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The store
    #[arg(long)]
    pub kind: Kind,
    /// Its folder
    #[arg(long)]
    pub folder: PathBuf,
    /// A file with the digests of all chunks
    #[arg(long)]
    pub digests: PathBuf,
    /// How it is opened
    #[command(flatten)]
    pub settings: Settings,
    /// The load
    #[command(flatten)]
    pub load: Load,
}

impl Place {
    /// The digests of all chunks, by number.
    pub fn digests(&self) -> Result<Vec<Digest>> {
        // One by one, so that memory at its highest holds them once.
        let mut file = BufReader::new(File::open(&self.digests)?);
        let mut digests = vec![[0; 32]; self.load.chunks as usize];
        for digest in &mut digests {
            file.read_exact(digest)
                .context("the digests are another load's")?;
        }
        Ok(digests)
    }

    /// Opens the store as its owner.
    pub fn open(&self, bytes_max: Option<u64>) -> Result<Box<dyn Store>> {
        self.kind.open(&self.folder, self.settings, bytes_max)
    }

    /// The same store elsewhere.
    pub fn at(&self, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            ..self.clone()
        }
    }

    /// Starts a process of this program for one step.
    pub fn start(&self, step: &[&str]) -> Result<Child> {
        Command::new(std::env::current_exe()?)
            .arg("step")
            .args(step)
            .args(["--kind", self.kind.name()])
            .arg("--folder")
            .arg(&self.folder)
            .arg("--digests")
            .arg(&self.digests)
            .arg(format!("--cache-mib={}", self.settings.cache_mib))
            .args(self.load.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("this program, once more")
    }

    /// Runs one step to its end, and gives what it says.
    pub fn run<T: DeserializeOwned>(&self, step: &[&str]) -> Result<T> {
        answer(self.start(step)?)
    }
}

/// Waits for a step; what it writes to standard error becomes the error.
pub fn answer<T: DeserializeOwned>(child: Child) -> Result<T> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| !line.is_empty()).unwrap_or("");
        anyhow::bail!("{first} ({})", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The steps, each in a process of its own.
#[derive(Subcommand)]
pub enum Step {
    /// Write the load
    Fill {
        /// Keep about so many bytes
        #[arg(long)]
        bytes_max: Option<u64>,
        /// Say after each batch how far it is
        #[arg(long)]
        tell: bool,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Open, look up, read chains
    Read {
        /// No look-ups before the chains
        #[arg(long)]
        chains_alone: bool,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Read while another process writes, until standard input ends
    Beside {
        /// Chunks that are there already
        #[arg(long)]
        synced: u32,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Read every recipe
    Check {
        /// Chunks that have to be there
        #[arg(long)]
        synced: u32,
        /// Where
        #[command(flatten)]
        place: Place,
    },
    /// Delete the oldest
    Shrink {
        /// What may stay
        #[arg(long)]
        bytes_max: u64,
        /// Where
        #[command(flatten)]
        place: Place,
    },
}

impl Step {
    /// Does it, and prints what there is to say as one line of JSON.
    pub fn run(&self) -> Result<()> {
        let line = match self {
            Self::Fill {
                bytes_max,
                tell,
                place,
            } => {
                let filled = fill::fill(place, *bytes_max, *tell)?;
                if *tell {
                    serde_json::to_string(&Event::Filled(filled))
                } else {
                    serde_json::to_string(&filled)
                }
            }
            Self::Read {
                chains_alone,
                place,
            } => serde_json::to_string(&read::read(place, *chains_alone)?),
            Self::Beside { synced, place } => serde_json::to_string(&read::beside(place, *synced)?),
            Self::Check { synced, place } => serde_json::to_string(&read::check(place, *synced)?),
            Self::Shrink { bytes_max, place } => {
                serde_json::to_string(&read::shrink(place, *bytes_max)?)
            }
        }?;
        println!("{line}");
        Ok(())
    }
}
