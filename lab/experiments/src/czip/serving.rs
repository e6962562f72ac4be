//! The server on files that overlap (CZIP, section 6.1 and Figure 9): more of them than memory has room
//! for, whose union has room; beside nginx on the same files, plain.
//!
//! As in the paper: a "DVD" and three "CDs" that hold what it has, and a second copy of all four in
//! another folder; memory of 4/3 of the union (2 GB for 1.5 there). Each run begins with nothing in
//! memory.
//!
//! - Deviation: clients are on the same machine, and take processor time from the server. The paper's
//!   come every 3 s, one after the other; here all are there from the start, and their first download
//!   begins anywhere in a file. A run in which all begin at the beginning of one stands beside it.

mod chapter;
mod control_group;
mod load;
mod servers;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
};
use crate::{chapters::Figures, median::median, targets::Target};
use control_group::{ControlGroup, Limits, UNLIMITED};
use load::{Begin, Load, Wanted};
use servers::Server;

/// What the paper's disk read in a second, about.
const DISK_BYTES_A_S: u64 = 100_000_000;
/// 1 Gbit/s.
const LINK_BYTES_A_S: u64 = 125_000_000;
/// Of the memory that the server has, for chunks; it needs some for its clients, and for what it reads.
const CACHE_SHARE: f64 = 0.79;
/// Where all is to be in memory before the time begins, clients read until hardly anything comes from the
/// disk, and no longer than this.
const WARMING_S_MAX: usize = 20;
/// In the paper's figure.
const CLIENTS: [usize; 3] = [100, 200, 300];

/// How the machine is, and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Condition {
    /// Memory and disk as the paper's.
    Paper,
    /// The same, and all clients begin at the beginning of a file.
    Together,
    /// The same without the second copies: less that repeats.
    Once,
    /// Memory as the paper's, the disk as fast as it is.
    FastDisk,
    /// All fits in memory, and is there; 1 Gbit/s for all clients together.
    FitsOnLink,
    /// All fits in memory, and is there.
    Fits,
}

impl Condition {
    fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Self::Paper | Self::Together | Self::Once => 7,
            Self::FastDisk => 4,
            Self::FitsOnLink | Self::Fits => 2,
        })
    }

    /// Whether all is in memory when the time begins.
    fn is_warm(self) -> bool {
        matches!(self, Self::FitsOnLink | Self::Fits)
    }
}

/// What is served, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// nginx, the plain files.
    Nginx,
    /// nginx with threads that wait for the disk.
    NginxThreads,
    /// Content of archives of profile `shared`, nothing compressed.
    Shared,
    /// The same, compressed.
    SharedZstd,
    /// Content of archives of profile `small`, compressed.
    SmallZstd,
    /// The archives of profile `shared` as they are: their own bytes are asked for.
    Stored,
    /// The plain files by our server.
    Plain,
}

impl Way {
    /// What `create` is told, where there are archives.
    fn options(self) -> Option<&'static str> {
        match self {
            Self::Nginx | Self::NginxThreads | Self::Plain => None,
            Self::Shared | Self::Stored => Some("--profile shared --compress none"),
            Self::SharedZstd => Some("--profile shared --compress zstd"),
            Self::SmallZstd => Some("--profile small --compress zstd"),
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Nginx | Self::NginxThreads | Self::Plain => "plain",
            Self::Shared | Self::Stored => "shared",
            Self::SharedZstd => "shared-zstd",
            Self::SmallZstd => "small-zstd",
        }
    }
}

/// All that was measured.
#[derive(Serialize, Deserialize)]
pub(super) struct Servings {
    pub runs: usize,
    /// `None` where it could not be measured; it was said why.
    pub measured: Option<Measured>,
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    /// Of the control groups.
    pub version: u8,
    /// The files' bytes, with the second copies.
    pub all_bytes: u64,
    /// Of what is in them, once.
    pub union_bytes: u64,
    pub memory_bytes: u64,
    pub cache_bytes: u64,
    pub trials: Vec<Trial>,
}

/// A server under a condition.
#[derive(Serialize, Deserialize)]
pub(super) struct Trial {
    pub condition: Condition,
    pub way: Way,
    pub clients: usize,
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// All bytes a second, to all clients.
    pub rate: f64,
    /// In the second half of the time.
    pub later_rate: f64,
    /// The median of the clients' rates, and the rate of the slowest one.
    pub client_rates: [f64; 2],
    /// Of the server, for 10^9 bytes sent.
    pub cpu_s_per_gb: f64,
    pub disk_bytes: u64,
    /// Of the server's processes, without files' pages.
    pub peak_bytes: u64,
    pub blocks_checked: u64,
}

impl Trial {
    fn median(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(figure))
    }
}

impl Measured {
    fn trial(&self, condition: Condition, way: Way, clients: usize) -> Option<&Trial> {
        let mut trials = self.trials.iter();
        trials
            .find(|trial| (trial.condition, trial.way, trial.clients) == (condition, way, clients))
    }
}

/// Ways that take turns.
struct Round {
    condition: Condition,
    clients: usize,
    ways: Vec<Way>,
    /// Whether it is measured once: beside what was asked.
    is_beside: bool,
}

fn rounds() -> Vec<Round> {
    use Condition::*;
    use Way::*;
    let round = |condition, clients, is_beside, ways: &[Way]| Round {
        condition,
        clients,
        ways: ways.to_vec(),
        is_beside,
    };
    let mut rounds = CLIENTS
        .map(|clients| round(Paper, clients, false, &[NginxThreads, Shared]))
        .into_iter()
        .collect::<Vec<_>>();
    rounds.extend([
        round(Paper, 100, true, &[Nginx, SharedZstd, SmallZstd]),
        round(Together, 100, true, &[NginxThreads, Shared]),
        round(Once, 100, true, &[NginxThreads, Shared]),
        round(FastDisk, 100, true, &[NginxThreads, Shared]),
        round(FitsOnLink, 100, false, &[Nginx, Shared]),
        round(
            Fits,
            100,
            false,
            &[Nginx, Shared, SharedZstd, SmallZstd, Stored, Plain],
        ),
    ]);
    rounds
}

impl Figures<Setup<'_>> for Servings {
    const NAME: &'static str = "serving";
    const TITLE: &'static str = "The server where files overlap";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        run(setup)
    }

    fn targets(&self) -> Vec<Target> {
        chapter::targets(self)
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        chapter::write(page, self)
    }
}

/// Measures all.
fn run(setup: &Setup<'_>) -> anyhow::Result<Servings> {
    let runs = setup.runs;
    let files = match setup.data.files(DataSet::DvdAndCds) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("servers: not available: {error:#}");
            let measured = None;
            return Ok(Servings { runs, measured });
        }
    };
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    // Whether there are control groups shows before anything is made.
    let version = match ControlGroup::new(UNLIMITED, folder.path()) {
        Ok(group) => group.version(),
        Err(error) => {
            eprintln!("servers: not available: {error:#}");
            let measured = None;
            return Ok(Servings { runs, measured });
        }
    };
    let site = Site::make(setup, &files, folder.path())?;
    let union_bytes = bytes_of(&files[0])?;
    let memory_bytes = union_bytes / 3 * 4;
    let mut measured = Measured {
        version,
        all_bytes: site.plain.iter().map(Wanted::bytes).sum(),
        union_bytes,
        memory_bytes,
        cache_bytes: (memory_bytes as f64 * CACHE_SHARE) as u64,
        trials: Vec::new(),
    };
    for round in rounds() {
        let Round {
            condition, clients, ..
        } = round;
        let mut trials: Vec<Trial> = round
            .ways
            .iter()
            .map(|&way| Trial {
                condition,
                way,
                clients,
                runs: Vec::new(),
            })
            .collect();
        for _ in 0..if round.is_beside { 1 } else { runs } {
            for trial in &mut trials {
                let run = site.once(setup, trial, &measured)?;
                eprintln!(
                    "{condition:?}, {clients} clients, {:?}: {:.0} MB/s, {:.0} MB read",
                    trial.way,
                    run.rate / 1e6,
                    run.disk_bytes as f64 / 1e6,
                );
                trial.runs.push(run);
            }
        }
        measured.trials.extend(trials);
    }
    Ok(Servings {
        runs,
        measured: Some(measured),
    })
}

/// The folders that are served.
struct Site {
    folder: PathBuf,
    plain: Arc<Vec<Wanted>>,
    /// Without the second copies.
    plain_once: Arc<Vec<Wanted>>,
    /// The archives themselves.
    stored: Arc<Vec<Wanted>>,
}

impl Site {
    /// Makes all folders: of the plain files, and of their archives.
    fn make(setup: &Setup<'_>, files: &[PathBuf], folder: &Path) -> anyhow::Result<Self> {
        let name = |file: &Path| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.map(str::to_owned).context("no name")
        };
        let mut site = Self {
            folder: folder.to_owned(),
            plain: Arc::default(),
            plain_once: Arc::default(),
            stored: Arc::default(),
        };
        for way in [Way::Plain, Way::Shared, Way::SharedZstd, Way::SmallZstd] {
            let served = folder.join(way.folder());
            eprintln!("creating {}", way.folder());
            for copy in ["a", "b"] {
                fs::create_dir_all(served.join(copy))?;
            }
            for file in files {
                let mut name = name(file)?;
                let first = match way.options() {
                    None => {
                        fs::copy(file, served.join("a").join(&name))?;
                        served.join("a").join(&name)
                    }
                    Some(options) => {
                        name += ".czip";
                        let archive = served.join("a").join(&name);
                        let status = Command::new(setup.refrain)
                            .args(["czip", "create"])
                            .args(options.split(' '))
                            .arg("-o")
                            .args([&archive, file])
                            .status()?;
                        ensure!(status.success(), "cannot archive \"{}\"", file.display());
                        archive
                    }
                };
                fs::copy(&first, served.join("b").join(&name))?;
            }
        }
        let wanted = |way: Way, copies: &[&str], end: &str| {
            let mut wanted = Vec::new();
            for copy in copies {
                for file in files {
                    let path = format!("{copy}/{}{end}", name(file)?);
                    let served = folder.join(way.folder()).join(&path);
                    wanted.push(Wanted::new(path, &served)?);
                }
            }
            anyhow::Ok(Arc::new(wanted))
        };
        site.plain = wanted(Way::Plain, &["a", "b"], "")?;
        site.plain_once = wanted(Way::Plain, &["a"], "")?;
        site.stored = wanted(Way::Stored, &["a", "b"], ".czip")?;
        Ok(site)
    }

    fn once(&self, setup: &Setup<'_>, trial: &Trial, measured: &Measured) -> anyhow::Result<Run> {
        let (condition, way) = (trial.condition, trial.way);
        let (memory_bytes, cache_bytes) = (measured.memory_bytes, measured.cache_bytes);
        let limits = match condition {
            Condition::Paper | Condition::Together | Condition::Once => Limits {
                memory_bytes,
                disk_bytes_a_s: DISK_BYTES_A_S,
            },
            Condition::FastDisk => Limits {
                memory_bytes,
                ..UNLIMITED
            },
            Condition::FitsOnLink | Condition::Fits => UNLIMITED,
        };
        let server = match way {
            Way::Nginx => Server::Nginx { has_threads: false },
            Way::NginxThreads => Server::Nginx { has_threads: true },
            _ => Server::Refrain {
                program: setup.refrain,
                cache_bytes,
            },
        };
        let files = match (way, condition) {
            (Way::Stored, _) => &self.stored,
            (_, Condition::Once) => &self.plain_once,
            _ => &self.plain,
        };
        let served = self.folder.join(way.folder());
        let serving = servers::Serving::start(server, &served, limits)?;
        let load = Load {
            address: serving.address,
            files,
            clients: trial.clients,
            begin: match condition {
                Condition::Together => Begin::Together,
                _ => Begin::Anywhere,
            },
            lasts: condition.lasts(),
            rate: (condition == Condition::FitsOnLink).then_some(LINK_BYTES_A_S),
        };
        let mut before = serving.group.used()?;
        for _ in 0..WARMING_S_MAX {
            if !condition.is_warm() {
                break;
            }
            let second = Load {
                lasts: Duration::from_secs(1),
                rate: None,
                ..load
            };
            load::run(&second)?;
            let after = serving.group.used()?;
            let read = after.disk_bytes - before.disk_bytes;
            before = after;
            if read < measured.union_bytes / 1000 {
                break;
            }
        }
        let received = load::run(&load)?;
        let after = serving.group.used()?;
        let peak_bytes = serving.group.peak_bytes()?;
        serving.end()?;
        let bytes: u64 = received.bytes.iter().sum();
        let seconds = received.seconds;
        let clients: Vec<f64> = received
            .bytes
            .iter()
            .map(|&bytes| bytes as f64 / seconds)
            .collect();
        let slowest = clients.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Run {
            rate: bytes as f64 / seconds,
            later_rate: received.later_bytes as f64 / (seconds / 2.0),
            client_rates: [median(clients), slowest],
            cpu_s_per_gb: (after.cpu_s - before.cpu_s) / (bytes as f64 / 1e9),
            disk_bytes: after.disk_bytes - before.disk_bytes,
            peak_bytes,
            blocks_checked: received.blocks_checked,
        })
    }
}
