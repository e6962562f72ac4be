//! Version N+1 to a client that has N: what goes over the wire, in how many requests, how long it
//! takes.
//!
//! A web server that knows nothing, nginx, counts; for rsync its own daemon. The client's programs are
//! whole processes, which end with the new version written out, and it is compared.

mod server;
mod ways;

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
    measured::{Cost, measure, medians},
    ways::{are_installed, bash},
};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
    targets::{Target, at_most},
};
use server::{RsyncDaemon, Web};
use ways::{OURS, OURS_AFTER, RSYNC, Server, TransferWay};

/// All steps from a version to the next.
#[derive(Serialize, Deserialize)]
pub(super) struct Transfers {
    pub runs: usize,
    pub steps: Vec<Step>,
}

/// A step from a version to the next.
#[derive(Serialize, Deserialize)]
pub(super) struct Step {
    pub name: String,
    /// `None` where its files are not there.
    pub moved: Option<Moved>,
}

/// What came of a step.
#[derive(Serialize, Deserialize)]
pub(super) struct Moved {
    /// Of the new version.
    pub bytes: u64,
    pub rows: Vec<MovedRow>,
}

/// The step in one way.
#[derive(Serialize, Deserialize)]
pub(super) struct MovedRow {
    pub way: String,
    pub outcome: MovedOutcome,
}

/// What came of it.
#[derive(Serialize, Deserialize)]
pub(super) enum MovedOutcome {
    Moved { runs: Vec<MovedRun> },
    NotThere,
    Failed,
}

/// One transfer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct MovedRun {
    pub traffic: Traffic,
    pub cost: Cost,
}

/// What went over the connections, with the heads of requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Traffic {
    pub sent_by_client: u64,
    pub sent_by_server: u64,
    /// rsync has none.
    pub requests: Option<u64>,
}

impl Traffic {
    pub(super) fn bytes(self) -> u64 {
        self.sent_by_client + self.sent_by_server
    }
}

impl MovedRow {
    /// Median bytes, requests, seconds.
    pub(super) fn medians(&self) -> Option<(u64, Option<u64>, f64)> {
        let MovedOutcome::Moved { runs } = &self.outcome else {
            return None;
        };
        let of = |figure: fn(&MovedRun) -> f64| median(runs.iter().map(figure));
        let count = |figure: fn(&MovedRun) -> f64| of(figure).round() as u64;
        let has_requests = runs.iter().all(|run| run.traffic.requests.is_some());
        let requests = count(|run| run.traffic.requests.unwrap_or_default() as f64);
        Some((
            count(|run| run.traffic.bytes() as f64),
            has_requests.then_some(requests),
            of(|run| run.cost.wall_s),
        ))
    }
}

impl Moved {
    /// The row of the way of that name.
    pub(super) fn row(&self, way: &str) -> Option<&MovedRow> {
        self.rows.iter().find(|row| row.way == way)
    }
}

/// Steps: a name, a set, the old file, the new one.
const STEPS: [(&str, DataSet, &str, &str); 3] = [
    (DJANGO_STEP, DataSet::Django, "d10.tar", "d11.tar"),
    (
        ROOT_STEP,
        DataSet::RootFileSystems,
        "base.tar",
        "apache.tar",
    ),
    ("DVD → CD 1", DataSet::DvdAndCds, "dvd.tar", "cd1.tar"),
];

const DJANGO_STEP: &str = "Django 4.2.10 → 4.2.11";
const ROOT_STEP: &str = "base → + apache";

impl Figures<Setup<'_>> for Transfers {
    const NAME: &'static str = "transfer";
    const TITLE: &'static str = "Version N+1 to a client that has N";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        run(setup)
    }

    fn targets(&self) -> Vec<Target> {
        let moved = |step: &str| {
            let step = self.steps.iter().find(|row| row.name == step)?;
            step.moved.as_ref()
        };
        let medians = |step: &str, way: &str| moved(step)?.row(way)?.medians();
        let django = medians(DJANGO_STEP, OURS);
        let root = |way: &str| {
            let (ours, ..) = medians(ROOT_STEP, way)?;
            let (theirs, ..) = medians(ROOT_STEP, RSYNC)?;
            let ratio = ours as f64 / theirs as f64;
            let (ours, theirs) = (ours as f64 / 1e6, theirs as f64 / 1e6);
            let text = format!("{ratio:.2} ({ours:.1} of {theirs:.1} MB)");
            Some(at_most(ratio, 1.2, text))
        };
        vec![
            Target {
                what: "Django 4.2.10 → 4.2.11 over HTTP",
                asked: "≤ 1.2 MB",
                measured: django.map(|(bytes, ..)| {
                    let mb = bytes as f64 / 1e6;
                    at_most(mb, 1.2, format!("{mb:.2} MB"))
                }),
            },
            Target {
                what: "requests for it",
                asked: "≤ 20",
                measured: django.and_then(|(_, requests, _)| {
                    let requests = requests?;
                    Some(at_most(requests as f64, 20.0, requests.to_string()))
                }),
            },
            Target {
                what: "base → + apache, over `rsync -z`, with default options",
                asked: "≤ 1.2",
                measured: root(OURS),
            },
            Target {
                what: "the same, created with `--after` and the archive of base",
                asked: "≤ 1.2",
                measured: root(OURS_AFTER),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        write!(
            page,
            "Clients fetch over HTTP on loopback from nginx, which counts bytes with HTTP headers; `rsync` fetches\n\
             from its own daemon. Loopback has no delay and no limit of bandwidth. Requests and bytes show the cost\n\
             on a real link, and seconds show the client's computing. Figures are {}. Each client ends with\n\
             the new version, which is compared.\n",
            medians_of(self.runs)
        )?;
        for step in &self.steps {
            match &step.moved {
                None => writeln!(page, "\n### {}\n\nNot available.", step.name)?,
                Some(moved) => {
                    let mb = moved.bytes as f64 / 1e6;
                    writeln!(page, "\n### {}, {mb:.1} MB\n", step.name)?;
                    write_step(page, moved)?;
                }
            }
        }
        Ok(())
    }
}

/// Measures them; ways take turns.
fn run(setup: &Setup<'_>) -> anyhow::Result<Transfers> {
    let ways = ways::all();
    let mut steps = Vec::new();
    for (name, set, old, new) in STEPS {
        let files = || anyhow::Ok((setup.data.file(set, old)?, setup.data.file(set, new)?));
        let moved = match files() {
            Ok((old, new)) => Some(of_step(setup, &old, &new, &ways)?),
            Err(error) => {
                eprintln!("{name}: not available: {error:#}");
                None
            }
        };
        let name = name.to_owned();
        steps.push(Step { name, moved });
    }
    let runs = setup.runs;
    Ok(Transfers { runs, steps })
}

fn of_step(
    setup: &Setup<'_>,
    old: &Path,
    new: &Path,
    ways: &[TransferWay],
) -> anyhow::Result<Moved> {
    let mut turns = Vec::new();
    for way in ways {
        let published = match are_installed(way.programs) {
            true => Published::new(setup, old, new, way).map(Some),
            false => Ok(None),
        };
        turns.push(match published {
            Ok(Some(published)) => (Some(published), MovedOutcome::Moved { runs: Vec::new() }),
            Ok(None) => (None, MovedOutcome::NotThere),
            Err(error) => {
                eprintln!("{}: {error:#}", way.name);
                (None, MovedOutcome::Failed)
            }
        });
    }
    for _ in 0..setup.runs {
        for (published, outcome) in &mut turns {
            let (Some(published), MovedOutcome::Moved { runs }) = (published, &mut *outcome) else {
                continue;
            };
            let name = published.way.name;
            match published.fetch() {
                Ok(run) => {
                    let traffic = run.traffic;
                    eprintln!("{name}: {traffic:?}, {:.2} s", run.cost.wall_s);
                    runs.push(run);
                }
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    *outcome = MovedOutcome::Failed;
                }
            }
        }
    }
    let rows = ways.iter().zip(turns).map(|(way, (_, outcome))| MovedRow {
        way: way.name.to_owned(),
        outcome,
    });
    Ok(Moved {
        bytes: bytes_of(new)?,
        rows: rows.collect(),
    })
}

/// A version that is published in one way, in a folder that goes away when dropped.
struct Published<'a> {
    setup: &'a Setup<'a>,
    old: &'a Path,
    new: &'a Path,
    way: &'a TransferWay,
    folder: tempfile::TempDir,
}

impl<'a> Published<'a> {
    fn new(
        setup: &'a Setup<'a>,
        old: &'a Path,
        new: &'a Path,
        way: &'a TransferWay,
    ) -> anyhow::Result<Self> {
        let published = Self {
            setup,
            old,
            new,
            way,
            folder: tempfile::tempdir_in(setup.data.folder())?,
        };
        std::fs::create_dir(published.served())?;
        published.run(way.publish, "")?;
        Ok(published)
    }

    fn served(&self) -> PathBuf {
        self.folder.path().join("served")
    }

    fn run(&self, script: &str, url: &str) -> anyhow::Result<(Cost, Vec<u8>)> {
        let script = format!("REFRAIN=$1 OLD=$2 NEW=$3 URL=$4; {script}");
        let arguments = [self.setup.refrain, self.old, self.new, Path::new(url)];
        measure(bash(&script, arguments), self.folder.path(), None)
    }

    /// Brings a client to it, and compares what it has then.
    fn fetch(&self) -> anyhow::Result<MovedRun> {
        let out = self.folder.path().join("out");
        std::fs::create_dir(&out)?;
        self.run(self.way.begin, "")?;
        let run = match self.way.server {
            Server::Web => {
                let web = Web::start(&self.served())?;
                let (cost, _) = self.run(self.way.fetch, web.url())?;
                let traffic = web.end()?;
                MovedRun { traffic, cost }
            }
            Server::Rsync => {
                let daemon = RsyncDaemon::start(&self.served())?;
                let (cost, output) = self.run(self.way.fetch, daemon.url())?;
                let traffic = server::rsync_traffic(&String::from_utf8(output)?);
                MovedRun {
                    traffic: traffic.context("no statistics of rsync")?,
                    cost,
                }
            }
        };
        self.run(r#"cmp "$NEW" out/new"#, "")?;
        std::fs::remove_dir_all(out)?;
        Ok(run)
    }
}

fn write_step(page: &mut String, moved: &Moved) -> anyhow::Result<()> {
    *page += "| | MB | MB from the client | requests | s | CPU, s | peak, MB |\n\
              |---|--:|--:|--:|--:|--:|--:|\n";
    for row in &moved.rows {
        write!(page, "| {} | ", row.way)?;
        match &row.outcome {
            MovedOutcome::NotThere => writeln!(page, "not installed | | | | | |")?,
            MovedOutcome::Failed => writeln!(page, "failed | | | | | |")?,
            MovedOutcome::Moved { runs } => {
                let Some((bytes, requests, wall_s)) = row.medians() else {
                    continue;
                };
                let costs: Vec<Cost> = runs.iter().map(|run| run.cost).collect();
                let cost = medians(&costs);
                let client = median(runs.iter().map(|run| run.traffic.sent_by_client as f64));
                writeln!(
                    page,
                    "{:.3} | {:.3} | {} | {wall_s:.2} | {:.2} | {:.0} |",
                    bytes as f64 / 1e6,
                    client / 1e6,
                    requests.map_or("–".to_owned(), |requests| requests.to_string()),
                    cost.cpu_s,
                    cost.peak_bytes as f64 / 1e6,
                )?;
            }
        }
    }
    Ok(())
}
