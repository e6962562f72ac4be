//! What predictions are worth where the round trip matters: series of objects between the real
//! engines of both ends, over a link in virtual time.
//!
//! Nothing is drawn and no clock is read, so figures are exact and the same on every machine.
//! What the processors take is no part of them.

mod goodput;
mod in_store;
mod log;
mod page;
pub(crate) mod trial;

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::Context;
use refrain_proto::Mode;
use serde::Serialize;

use crate::{
    corpus::{self, Corpus},
    targets::{self, WithTargets},
};
use goodput::Goodput;
use in_store::Kept;
use trial::{LINUX, Outcome, Predicted, Trial, USUAL};

const GITHUB: &str = "GitHub";
const BREVO: &str = "Brevo";
const LOG: &str = "Log";

/// A cache that does not hold one release of Linux.
const SMALL_CACHE_MIB: usize = 16;

/// All that was measured.
#[derive(Serialize)]
struct Report {
    trials: Vec<Measured>,
    /// `zstd -3` of each object on its own: series, and share of the raw bytes.
    zstd_each: Vec<(&'static str, f64)>,
    in_store: Vec<Kept>,
    goodput: Goodput,
}

#[derive(Serialize)]
struct Measured {
    trial: Trial,
    outcome: Outcome,
}

impl Report {
    /// What came of a trial that was made.
    fn outcome(&self, trial: Trial) -> anyhow::Result<&Outcome> {
        let mut trials = self.trials.iter();
        let measured = trials.find(|measured| measured.trial == trial);
        Ok(&measured.with_context(|| format!("{trial:?}"))?.outcome)
    }

    /// What became of a series that was put into a store.
    fn in_store(&self, series: &str) -> anyhow::Result<&Kept> {
        let mut all = self.in_store.iter();
        all.find(|kept| kept.series == series).context("a series")
    }

    fn zstd_each(&self, series: &str) -> anyhow::Result<f64> {
        let mut all = self.zstd_each.iter();
        Ok(all.find(|(name, _)| *name == series).context("a series")?.1)
    }
}

/// The page of results, or all figures as JSON.
pub(crate) fn run(data: &Path, json: bool) -> anyhow::Result<String> {
    let pages = |file: &str| corpus::members(&data.join("pages").join(file), 400);
    let corpora = [
        Corpus {
            name: LINUX,
            objects: corpus::linux_releases(data, 40)?.objects,
        },
        Corpus {
            name: GITHUB,
            objects: pages("github-tos.tar.zst")?,
        },
        Corpus {
            name: BREVO,
            objects: pages("brevo-privacy.tar.zst")?,
        },
        Corpus {
            name: LOG,
            objects: log::objects(),
        },
    ];
    let report = Report {
        trials: measure(&corpora, &trials())?,
        zstd_each: zstd_each(&corpora)?,
        in_store: in_store::measure(&corpora)?,
        goodput: goodput::measure()?,
    };
    let targets = page::targets(&report)?;
    if json {
        let report = WithTargets {
            report: &report,
            targets,
        };
        return Ok(serde_json::to_string_pretty(&report)? + "\n");
    }
    targets::print(&targets);
    page::page(&report)
}

/// Each combination that stands in a table.
fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (series, chunk_kib, round_trip_ms, is_fine) in [
        (LINUX, 8, 0, true),
        (LINUX, 8, 5, true),
        (LINUX, 8, 5, false),
        (LINUX, 8, 10, false),
        (LINUX, 8, 50, false),
        (LINUX, 8, 200, false),
        (LINUX, 4, 50, false),
        (GITHUB, 2, 0, true),
        (GITHUB, 2, 5, true),
        (GITHUB, 2, 5, false),
        (GITHUB, 2, 50, false),
        (GITHUB, 4, 50, false),
        (BREVO, 2, 0, true),
        (BREVO, 2, 50, false),
        (BREVO, 4, 50, false),
    ] {
        trials.extend(Predicted::ALL.map(|predicted| Trial {
            series,
            chunk_kib,
            round_trip_ms,
            is_fine,
            predicted,
            ..USUAL
        }));
    }
    trials.extend(of_log().map(|(_, trial)| trial));
    for at in behind() {
        trials.extend([Mode::Auto, Mode::Sender].map(|mode| Trial { mode, ..at }));
    }
    trials
}

/// Trials of the log, by name.
fn of_log() -> [(&'static str, Trial); 3] {
    let window = Trial {
        series: LOG,
        ..USUAL
    };
    let near = Trial {
        round_trip_ms: 10,
        ..window
    };
    let aligned = Trial {
        predicted: Predicted::Aligned,
        ..near
    };
    [
        ("aligned, 10 ms", aligned),
        ("window, 10 ms", near),
        ("window, 50 ms", window),
    ]
}

/// Trials that are made with Max-Match and zstd as well.
fn behind() -> [Trial; 4] {
    let small = Trial {
        cache_mib: SMALL_CACHE_MIB,
        ..USUAL
    };
    let page = |series| Trial {
        series,
        chunk_kib: 4,
        ..USUAL
    };
    [USUAL, small, page(GITHUB), page(BREVO)]
}

/// Makes all trials, one on each processor at a time.
fn measure(corpora: &[Corpus], trials: &[Trial]) -> anyhow::Result<Vec<Measured>> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<(usize, Measured)>> {
        let mut measured = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&trial) = trials.get(index) else {
                return Ok(measured);
            };
            let mut corpora = corpora.iter();
            let corpus = corpora.find(|corpus| corpus.name == trial.series);
            let outcome = trial.run(&corpus.context(trial.series)?.objects)?;
            eprintln!("{trial}: {:.2} % confirmed", 100.0 * outcome.confirmed());
            measured.push((index, Measured { trial, outcome }));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut measured = std::thread::scope(|scope| -> anyhow::Result<_> {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut measured = Vec::new();
        for worker in workers {
            measured.extend(worker.join().expect("bytes out equal bytes in")?);
        }
        Ok(measured)
    })?;
    measured.sort_by_key(|&(index, _)| index);
    Ok(measured.into_iter().map(|(_, measured)| measured).collect())
}

fn zstd_each(corpora: &[Corpus]) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let share = |corpus: &Corpus| -> anyhow::Result<_> {
        let packed = corpus::zstd_each(corpus)?;
        Ok((corpus.name, packed as f64 / corpus.bytes() as f64))
    };
    corpora.iter().map(share).collect()
}
