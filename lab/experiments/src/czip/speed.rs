//! How fast archives are made, read and checked, and in how much memory.

mod content;

use std::{
    ffi::OsStr,
    fmt::Write as _,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
    measured::{Cost, Feed, measure, medians},
    sizes::Report,
};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
    targets::{Target, at_least, at_most},
};

/// All figures; what lacks its data is `None`.
#[derive(Serialize, Deserialize)]
pub(super) struct Speeds {
    pub runs: usize,
    pub series: Option<Series>,
    pub big: Option<Big>,
    pub many: Vec<Many>,
}

/// The Django series.
#[derive(Serialize, Deserialize)]
pub(super) struct Series {
    pub plain_bytes: u64,
    pub archive_bytes: u64,
    pub create: Vec<Cost>,
    pub create_shared: Vec<Cost>,
    /// Into a folder in memory.
    pub extract: Vec<Cost>,
    pub verify: Vec<Cost>,
}

/// An archive whose stored bytes are as many as its plain ones.
#[derive(Serialize, Deserialize)]
pub(super) struct Big {
    pub plain_bytes: u64,
    pub report: Report,
    pub create: Cost,
    pub verify: Vec<Cost>,
    /// 64 KiB each, from places all over the middle half.
    pub read: Vec<Cost>,
    /// A program that does nothing, started the same way.
    pub nothing: Vec<Cost>,
}

/// A stream in which no chunk comes twice, with little memory for names.
#[derive(Serialize, Deserialize)]
pub(super) struct Many {
    pub chunk_bytes: u64,
    pub plain_bytes: u64,
    pub chunks: u64,
    pub create: Cost,
}

/// Bytes that are read from the middle.
const READ_BYTES: u64 = 64 << 10;
const READS: u64 = 31;

/// Memory for names of chunks in streams of new ones.
const INDEX_BUDGET: &str = "64MB";

impl Figures<Setup<'_>> for Speeds {
    const NAME: &'static str = "speed";
    const TITLE: &'static str = "Speed and memory";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        run(setup)
    }

    fn targets(&self) -> Vec<Target> {
        let series = self.series.as_ref();
        let big = self.big.as_ref();
        let rate = |bytes: u64, costs: &[Cost]| {
            bytes as f64 / 1e6 / median(costs.iter().map(|cost| cost.wall_s))
        };
        let mb_a_s = |rate: f64, bound: f64| at_least(rate, bound, format!("{rate:.0} MB/s"));
        let peak = |costs: &mut dyn Iterator<Item = Cost>| {
            let mb = costs.map(|cost| cost.peak_bytes).max()? as f64 / 1e6;
            Some(at_most(mb, 512.0, format!("{mb:.0} MB")))
        };
        let plenty = series.iter().flat_map(|series| &series.create);
        let plenty = plenty.copied().chain(big.map(|big| big.create));
        vec![
            Target {
                what: "creating the archive of the Django series",
                asked: "≥ 200 MB/s",
                measured: series.map(|it| mb_a_s(rate(it.plain_bytes, &it.create), 200.0)),
            },
            Target {
                what: "peak memory for creating the archive of the series, and the big archive",
                asked: "< 512 MB",
                measured: peak(&mut { plenty }),
            },
            Target {
                what: "the same with 64 MB for names, and with as many chunks as 1 TB has",
                asked: "< 512 MB",
                measured: peak(&mut self.many.iter().map(|many| many.create)),
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

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        write!(
            page,
            "Figures are {}. *Series*: the Django tars. *Big archive*: repeated copies of the DVD, from a pipe\n\
             that another program fills. Each copy has all bytes changed in another way, so nothing repeats and\n\
             nothing can be compressed. *New chunks*: noise from such a pipe, uncompressed, with {INDEX_BUDGET} for\n\
             names. Chunks of 4 KiB go to a file. Chunks of 1 KiB go to `/dev/null`, as many as 1 TB has of\n\
             32 KiB.\n\n\
             | | MB/s | wall, s | CPU, s | peak, MB |\n\
             |---|--:|--:|--:|--:|\n",
            medians_of(self.runs)
        )?;
        let mut row = |what: &str, bytes: u64, costs: &[Cost]| {
            let cost = medians(costs);
            let mb = bytes as f64 / 1e6;
            writeln!(
                page,
                "| {what} | {:.0} | {:.3} | {:.3} | {:.0} |",
                mb / cost.wall_s,
                cost.wall_s,
                cost.cpu_s,
                cost.peak_bytes as f64 / 1e6,
            )
        };
        if let Some(series) = &self.series {
            let bytes = series.plain_bytes;
            row("series: `create`", bytes, &series.create)?;
            row(
                "series: `create --profile shared`",
                bytes,
                &series.create_shared,
            )?;
            row("series: `extract`, into memory", bytes, &series.extract)?;
            let stored = "series: `verify`, of stored bytes";
            row(stored, series.archive_bytes, &series.verify)?;
        }
        if let Some(big) = &self.big {
            let gb = big.plain_bytes / 1_000_000_000;
            let create = format!("big archive, {gb} GB: `create`");
            row(&create, big.plain_bytes, &[big.create])?;
            let verify = "big archive: `verify`, of stored bytes";
            row(verify, big.report.stored_bytes, &big.verify)?;
            let read = "big archive: `cat --range`, 64 KiB";
            row(read, READ_BYTES, &big.read)?;
            row("a process that does nothing", 0, &big.nothing)?;
        }
        for many in &self.many {
            let what = format!(
                "new chunks of {} KiB, {} of them: `create`",
                many.chunk_bytes >> 10,
                many.chunks
            );
            row(&what, many.plain_bytes, &[many.create])?;
        }
        Ok(())
    }
}

/// Measures them.
fn run(setup: &Setup<'_>) -> anyhow::Result<Speeds> {
    let files = |set: DataSet| {
        let files = setup.data.files(set);
        files
            .inspect_err(|error| eprintln!("{}: not available: {error:#}", set.name()))
            .ok()
    };
    let series = files(DataSet::Django).map(|files| series(setup, &files));
    let big = files(DataSet::DvdAndCds).map(|files| big(setup, &files[0]));
    let many = [
        (4 << 10, setup.big_bytes, "big.czip"),
        // As many as a terabyte has of 32 KiB: at 1 KiB, 3.1 times as much as the big archive.
        (1 << 10, setup.big_bytes * 31 / 10, "/dev/null"),
    ];
    let many =
        many.map(|(chunk_bytes, bytes, output)| many_chunks(setup, chunk_bytes, bytes, output));
    Ok(Speeds {
        runs: setup.runs,
        series: series.transpose()?,
        big: big.transpose()?,
        many: many.into_iter().collect::<Result<_, _>>()?,
    })
}

/// `refrain czip` with `arguments`.
fn czip<'a>(
    setup: &'a Setup<'_>,
    folder: &Path,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    feed: Option<Feed<'_>>,
) -> anyhow::Result<(Cost, Vec<u8>)> {
    let program = [setup.refrain.as_os_str(), OsStr::new("czip")];
    let command: Vec<&OsStr> = program.into_iter().chain(arguments).collect();
    let (cost, output) = measure(command.iter().copied(), folder, feed)?;
    eprintln!("{:?}: {cost:?}", command.get(2));
    Ok((cost, output))
}

fn words(words: &str) -> impl Iterator<Item = &OsStr> {
    words.split(' ').map(OsStr::new)
}

fn series(setup: &Setup<'_>, files: &[PathBuf]) -> anyhow::Result<Series> {
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    let plain_bytes = files
        .iter()
        .map(|file| bytes_of(file))
        .sum::<Result<_, _>>()?;
    let mut series = Series {
        plain_bytes,
        archive_bytes: 0,
        create: Vec::new(),
        create_shared: Vec::new(),
        extract: Vec::new(),
        verify: Vec::new(),
    };
    let memory = ["/dev/shm", "/tmp"].map(Path::new);
    let memory = memory.into_iter().find(|folder| folder.is_dir());
    for _ in 0..setup.runs {
        let inputs = || files.iter().map(|file| file.as_os_str());
        let shared = words("create --profile shared -o shared.czip").chain(inputs());
        let (cost, _) = czip(setup, folder.path(), shared, None)?;
        series.create_shared.push(cost);
        let small = words("create -o small.czip").chain(inputs());
        let (cost, _) = czip(setup, folder.path(), small, None)?;
        series.create.push(cost);
        let out = match memory {
            Some(memory) => tempfile::tempdir_in(memory)?,
            None => tempfile::tempdir()?,
        };
        let target = out.path().join("out");
        let extract = words("extract small.czip -o").chain([target.as_os_str()]);
        let (cost, _) = czip(setup, folder.path(), extract, None)?;
        series.extract.push(cost);
        let (cost, _) = czip(setup, folder.path(), words("verify small.czip"), None)?;
        series.verify.push(cost);
    }
    series.archive_bytes = bytes_of(&folder.path().join("small.czip"))?;
    Ok(series)
}

fn big(setup: &Setup<'_>, source: &Path) -> anyhow::Result<Big> {
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    let source = std::fs::read(source)?;
    let mut feed = |out: &mut dyn Write| content::altered(&source, setup.big_bytes, out);
    // A pipe would be written with its header at the end.
    let arguments = words("create --json -o big.czip -");
    let (create, output) = czip(setup, folder.path(), arguments, Some(&mut feed))?;
    let report: Report = serde_json::from_slice(&output)?;
    let mut verify = Vec::new();
    // The first one brings what the system forgot back into its memory.
    for run in 0..=setup.runs {
        let (cost, _) = czip(setup, folder.path(), words("verify big.czip"), None)?;
        if run > 0 {
            verify.push(cost);
        }
    }
    let (mut read, mut nothing) = (Vec::new(), Vec::new());
    for place in 0..READS {
        let start = setup.big_bytes / 4 + place * (setup.big_bytes / 2 / READS);
        let range = format!("{start}-{}", start + READ_BYTES);
        let arguments = words("cat big.czip --range").chain([OsStr::new(&range)]);
        let (cost, output) = czip(setup, folder.path(), arguments, None)?;
        anyhow::ensure!(
            output == content::altered_range(&source, start, READ_BYTES),
            "the bytes at {start} differ"
        );
        read.push(cost);
        nothing.push(measure([OsStr::new("true")], folder.path(), None)?.0);
    }
    Ok(Big {
        plain_bytes: setup.big_bytes,
        report,
        create,
        verify,
        read,
        nothing,
    })
}

fn many_chunks(
    setup: &Setup<'_>,
    chunk_bytes: u64,
    bytes: u64,
    output: &str,
) -> anyhow::Result<Many> {
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    let mut feed = |out: &mut dyn Write| -> io::Result<()> { content::noise(bytes, out) };
    let size = chunk_bytes.to_string();
    let arguments = words("create --json --chunker fixed --compress none --index-memory")
        .chain([INDEX_BUDGET, "--chunk-size", &size, "-o", output, "-"].map(OsStr::new));
    let (create, said) = czip(setup, folder.path(), arguments, Some(&mut feed))?;
    let report: Report = serde_json::from_slice(&said)?;
    Ok(Many {
        chunk_bytes,
        plain_bytes: bytes,
        chunks: report.chunks,
        create,
    })
}
