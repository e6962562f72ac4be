//! What was asked for, beside what was measured.

use super::{
    Figures, data::DataSet, measured::median, sizes::SetStored, speed::Speeds, transfer, ways,
};

/// One thing that was asked for.
pub struct Target {
    pub what: &'static str,
    pub asked: &'static str,
    /// `None` where it was not measured.
    pub measured: Option<Measured>,
}

/// What came out.
pub struct Measured {
    pub text: String,
    pub is_met: bool,
}

fn at_most(value: f64, bound: f64, text: String) -> Measured {
    Measured {
        text,
        is_met: value <= bound,
    }
}

fn at_least(value: f64, bound: f64, text: String) -> Measured {
    Measured {
        text,
        is_met: value >= bound,
    }
}

/// All of them.
pub fn all(figures: &Figures) -> Vec<Target> {
    let mut targets = sizes(figures);
    targets.extend(transfers(figures));
    targets.extend(speeds(figures));
    targets
}

fn sizes(figures: &Figures) -> Vec<Target> {
    let stored = |set: DataSet| {
        let sizes = &figures.sizes.as_ref()?.figures;
        sizes
            .sets
            .iter()
            .find(|row| row.set == set)?
            .stored
            .as_ref()
    };
    let over = |set: DataSet, way: &str, bound: f64| {
        let stored = stored(set)?;
        let (ours, theirs) = (stored.stored(ways::SMALL)?, stored.stored(way)?);
        let ratio = ours as f64 / theirs as f64;
        let (ours, theirs) = (ours as f64 / 1e6, theirs as f64 / 1e6);
        let text = format!("{ratio:.3} ({ours:.2} of {theirs:.2} MB)");
        Some(at_most(ratio, bound, text))
    };
    let share = |set: DataSet| {
        let stored = stored(set)?;
        let percent = 100.0 * stored.stored(ways::SMALL)? as f64 / stored.bytes as f64;
        let solid = 100.0 * stored.stored(ways::SOLID)? as f64 / stored.bytes as f64;
        let text = format!("{percent:.2} % (solid: {solid:.2} %)");
        Some(at_most(percent, 0.5, text))
    };
    vec![
        Target {
            what: "Django series, over solid `zstd -3 --long=31`",
            asked: "≤ 1.3",
            measured: over(DataSet::Django, ways::SOLID, 1.3),
        },
        Target {
            what: "root file systems, over casync",
            asked: "≤ 0.80",
            measured: over(DataSet::RootFileSystems, ways::CASYNC, 0.8),
        },
        Target {
            what: "root file systems, over solid",
            asked: "≤ 1.25",
            measured: over(DataSet::RootFileSystems, ways::SOLID, 1.25),
        },
        Target {
            what: "DVD and CDs, over solid",
            asked: "≤ 1.02",
            measured: over(DataSet::DvdAndCds, ways::SOLID, 1.02),
        },
        Target {
            what: "200 revisions of a page (GitHub), of their size",
            asked: "≤ 0.5 %",
            measured: share(DataSet::GithubPage),
        },
        Target {
            what: "200 revisions of a page (Brevo), of their size",
            asked: "≤ 0.5 %",
            measured: share(DataSet::BrevoPage),
        },
        Target {
            what: "the table of any of these archives, over 40 bytes a chunk and 4 a reference",
            asked: "≤ 1",
            measured: figures.sizes.as_ref().and_then(|sizes| {
                let stored = sizes
                    .figures
                    .sets
                    .iter()
                    .filter_map(|set| set.stored.as_ref());
                let ratio = stored.filter_map(table_ratio).reduce(f64::max)?;
                Some(at_most(ratio, 1.0, format!("{ratio:.2}")))
            }),
        },
    ]
}

/// The table's bytes over 40 a chunk and 4 a reference, of the default archive; where it has enough
/// chunks for the root and room that stays empty not to count.
fn table_ratio(stored: &SetStored) -> Option<f64> {
    let reports = stored.rows.iter().filter_map(|row| row.report());
    let ratios = reports.filter(|report| report.chunks > 1000).map(|report| {
        let table = report.archive_bytes - report.stored_bytes;
        table as f64 / (40 * report.chunks + 4 * report.references) as f64
    });
    ratios.reduce(f64::max)
}

fn transfers(figures: &Figures) -> Vec<Target> {
    let moved = |step: &str| {
        let transfers = &figures.transfers.as_ref()?.figures;
        let step = transfers.steps.iter().find(|row| row.name == step)?;
        step.moved.as_ref()
    };
    let medians = |step: &str, way: &str| moved(step)?.row(way)?.medians();
    let django = medians(transfer::DJANGO_STEP, transfer::OURS);
    let root = || {
        let (ours, ..) = medians(transfer::ROOT_STEP, transfer::OURS)?;
        let (theirs, ..) = medians(transfer::ROOT_STEP, transfer::RSYNC)?;
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
            what: "base → + apache, over `rsync -z`",
            asked: "≤ 1.2",
            measured: root(),
        },
    ]
}

fn speeds(figures: &Figures) -> Vec<Target> {
    let speeds: Option<&Speeds> = figures.speeds.as_ref().map(|taken| &taken.figures);
    let series = speeds.and_then(|speeds| speeds.series.as_ref());
    let big = speeds.and_then(|speeds| speeds.big.as_ref());
    let rate = |bytes: u64, costs: &[super::measured::Cost]| {
        bytes as f64 / 1e6 / median(costs.iter().map(|cost| cost.wall_s))
    };
    let mb_a_s = |rate: f64, bound: f64| at_least(rate, bound, format!("{rate:.0} MB/s"));
    let peak = || {
        let speeds = speeds?;
        let many = speeds.many.iter().map(|many| many.create.peak_bytes);
        let big = speeds.big.iter().map(|big| big.create.peak_bytes);
        let series = speeds.series.iter().flat_map(|series| &series.create);
        let series = series.map(|cost| cost.peak_bytes);
        let mb = many.chain(big).chain(series).max()? as f64 / 1e6;
        Some(at_most(mb, 512.0, format!("{mb:.0} MB")))
    };
    vec![
        Target {
            what: "making the Django series' archive",
            asked: "≥ 200 MB/s",
            measured: series.map(|it| mb_a_s(rate(it.plain_bytes, &it.create), 200.0)),
        },
        Target {
            what: "the most memory that making any of the archives below took",
            asked: "< 512 MB",
            measured: peak(),
        },
        Target {
            what: "extracting the series into memory",
            asked: "≥ 800 MB/s",
            measured: series.map(|it| mb_a_s(rate(it.plain_bytes, &it.extract), 800.0)),
        },
        Target {
            what: "verifying stored bytes of the big archive",
            asked: "≥ 2 GB/s",
            measured: big.map(|big| {
                let gb = rate(big.report.stored_bytes, &big.verify) / 1e3;
                at_least(gb, 2.0, format!("{gb:.2} GB/s"))
            }),
        },
        Target {
            what: "opening the big archive and reading 64 KiB, a whole process",
            asked: "< 5 ms",
            measured: big.map(|big| {
                let ms = 1e3 * median(big.read.iter().map(|cost| cost.wall_s));
                at_most(ms, 5.0, format!("{ms:.1} ms"))
            }),
        },
    ]
}
