//! Files of Silesia in small and large writes, as WANProxy was measured (Lee and others, KIPS 2020).

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::{Setup, link};
use crate::{
    chapters::{Figures, Plot},
    corpus::silesia,
    median::{median, medians_of},
    over_link::OverLink,
    targets::{Target, at_least},
};

const RATES_MBIT: [u32; 2] = [10, 100];
const DELAYS_MS: [u64; 2] = [0, 25];
const WRITES: [usize; 2] = [2048, 64 << 10];

/// Pairs by their options, at both ends.
const PAIRS: [(&str, &[&str]); 3] = [
    (
        "matching only",
        &["--mode", "sender", "--second-stage", "off"],
    ),
    ("with zstd", &["--mode", "sender", "--effort", "max"]),
    ("default", &[]),
];

/// Share of the time that second transfers save at least without a delay, by rate.
const LEAST_SAVED: [f64; 2] = [0.995, 0.97];

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
pub(super) struct Silesia {
    runs: usize,
    files: usize,
    bytes: usize,
    cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
struct Cell {
    mbit: u32,
    delay_ms: u64,
    write_bytes: usize,
    /// All files over direct connections, in seconds.
    direct_s: f64,
    pairs: Vec<PairFigures>,
}

/// Means over the files, of the first and the second transfer.
#[derive(Serialize, Deserialize)]
struct PairFigures {
    saved: [f64; 2],
    ratio: [f64; 2],
}

/// A file's transfers: seconds, and bytes on the wire.
#[derive(Default)]
struct FileSamples {
    direct_s: Vec<f64>,
    pairs: [[Vec<(f64, f64)>; 2]; PAIRS.len()],
}

impl Figures<Setup<'_>> for Silesia {
    const NAME: &'static str = "silesia";
    const TITLE: &'static str = "Silesia in small and large writes";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let files = Arc::new(silesia(&setup.data.join("silesia"))?);
        let mut cells = Vec::new();
        for mbit in RATES_MBIT {
            for delay_ms in DELAYS_MS {
                for write_bytes in WRITES {
                    cells.push(measure(setup, &files, mbit, delay_ms, write_bytes)?);
                }
            }
        }
        Ok(Self {
            runs: setup.silesia_runs,
            files: files.len(),
            bytes: files.iter().map(Vec::len).sum(),
            cells,
        })
    }

    fn targets(&self) -> Vec<Target> {
        let whats = [
            (
                "Silesia, second transfer at 10 Mbit/s, 0 ms, default, the slower writes: time saved",
                "99.5 %",
            ),
            (
                "Silesia, second transfer at 100 Mbit/s, 0 ms, default, the slower writes: time saved",
                "97 %",
            ),
        ];
        let each = whats.into_iter().zip(RATES_MBIT).zip(LEAST_SAVED);
        each.map(|(((what, asked), mbit), least)| {
            let is_it = |cell: &&Cell| cell.mbit == mbit && cell.delay_ms == 0;
            let saved = self.cells.iter().filter(is_it);
            let saved = saved.map(|cell| cell.pairs[PAIRS.len() - 1].saved[1]);
            let saved = saved.fold(f64::INFINITY, f64::min);
            let text = format!("{:.2} %", 100.0 * saved);
            Target {
                what,
                asked,
                measured: Some(at_least(saved, least, text)),
            }
        })
        .collect()
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "An origin at the far end sends the {} available files, {:.1} MB in all. Each is sent on its own connection,\n\
             in writes of one size without Nagle's algorithm. Each file goes first over a direct connection (CUBIC),\n\
             then twice over each pair. Times are from the call of `connect` to the last byte. *Saved*: the share\n\
             of the direct connection's time. *Ratio*: application bytes divided by bytes on the wire in both\n\
             directions, with all headers. Both are means over the files. Each file's times and bytes are\n\
             {}. Each run has new pairs.\n",
            self.files,
            self.bytes as f64 / 1e6,
            medians_of(self.runs)
        )?;
        for (name, options) in PAIRS {
            let options = match options {
                [] => "no option".to_owned(),
                options => format!("`{}`", options.join(" ")),
            };
            writeln!(page, "- *{name}*: {options}")?;
        }
        writeln!(
            page,
            "\n| rate | delay | writes | direct, all files | pair | first: saved | ratio | second: saved | ratio |\n\
             |--:|--:|--:|--:|---|--:|--:|--:|--:|"
        )?;
        for cell in &self.cells {
            for ((name, _), pair) in PAIRS.iter().zip(&cell.pairs) {
                writeln!(
                    page,
                    "| {} Mbit/s | {} ms | {} | {:.1} s | {name} | {:.1} % | {:.2} | {:.2} % | {:.1} |",
                    cell.mbit,
                    cell.delay_ms,
                    cell.write_bytes,
                    cell.direct_s,
                    100.0 * pair.saved[0],
                    pair.ratio[0],
                    100.0 * pair.saved[1],
                    pair.ratio[1],
                )?;
            }
        }
        page.push_str(PAPER);
        self.write_second_stage(page)
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let small = || {
            self.cells
                .iter()
                .filter(|cell| cell.write_bytes == WRITES[0])
        };
        let places: Vec<String> = small()
            .map(|cell| format!("{} Mbit/s, {} ms", cell.mbit, cell.delay_ms))
            .collect();
        let mut series = Vec::new();
        for (at, (name, _)) in PAIRS.iter().enumerate() {
            for (transfer, which) in ["first", "second"].into_iter().enumerate() {
                let saved = small().map(|cell| 100.0 * cell.pairs[at].saved[transfer]);
                series.push((format!("{name}, {which}"), saved.collect()));
            }
        }
        let words = refrain_plot::Words {
            title: "Silesia in writes of 2,048 bytes: time saved",
            across: "link",
            up: "% of the direct time",
        };
        Ok(vec![Plot {
            name: "latency-silesia.svg",
            svg: refrain_plot::lines(&words, &places, &series)?,
        }])
    }
}

const PAPER: &str = "\n![Time saved](plots/latency-silesia.svg)\n\n\
     The paper's figures (WANProxy, *Performance improvement of WANProxy*, KIPS 2020): twelve files\n\
     of Silesia in segments of 2,048 bytes, on another machine. Only the abstract was available. It\n\
     states no delay, and not which transfer counts.\n\n\
     | paper | 10 Mbit/s | 100 Mbit/s | ratio |\n\
     |---|--:|--:|--:|\n\
     | WANProxy: time saved | 95.2 % | 60.7 % | 150.6 |\n\
     | two stages, with zstd: compared with WANProxy | time + 2.1 % | time + 5.27 % | + 33 % |\n\
     | improved: compared with WANProxy | time - 13.8 % | time - 12.9 % | + 34.8 % |\n";

impl Silesia {
    /// The paper's comparison of one stage and two, with our figures.
    fn write_second_stage(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "\nThe same comparison of the pairs above, in writes of {} bytes: time and ratio, compared with\n\
             matching only.\n\n\
             | | delay | transfer | 10 Mbit/s: time | ratio | 100 Mbit/s: time | ratio |\n\
             |---|--:|---|--:|--:|--:|--:|",
            WRITES[0]
        )?;
        for (at, (name, _)) in PAIRS.iter().enumerate().skip(1) {
            for delay_ms in DELAYS_MS {
                for (transfer, which) in ["first", "second"].into_iter().enumerate() {
                    write!(page, "| {name} | {delay_ms} ms | {which} ")?;
                    for mbit in RATES_MBIT {
                        let cell = self.cells.iter().find(|cell| {
                            (cell.mbit, cell.delay_ms, cell.write_bytes)
                                == (mbit, delay_ms, WRITES[0])
                        });
                        let Some(cell) = cell else { continue };
                        let (one, two) = (&cell.pairs[0], &cell.pairs[at]);
                        let time = (1.0 - two.saved[transfer]) / (1.0 - one.saved[transfer]);
                        let ratio = two.ratio[transfer] / one.ratio[transfer];
                        write!(
                            page,
                            "| {:+.1} % | {:+.1} % ",
                            100.0 * (time - 1.0),
                            100.0 * (ratio - 1.0)
                        )?;
                    }
                    writeln!(page, "|")?;
                }
            }
        }
        Ok(())
    }
}

fn measure(
    setup: &Setup<'_>,
    files: &Arc<Vec<Vec<u8>>>,
    mbit: u32,
    delay_ms: u64,
    write_bytes: usize,
) -> anyhow::Result<Cell> {
    let served = Arc::clone(files);
    let origin = Arc::new(move |stream| send(stream, &served, write_bytes));
    let over = OverLink::start(&link(mbit, delay_ms), origin)?;
    let name = format!("{mbit} Mbit/s, {delay_ms} ms, writes of {write_bytes}");
    eprintln!("{name}: {}", over.checked);
    let direct = over.direct("cubic")?;
    let mut samples: Vec<FileSamples> = files.iter().map(|_| FileSamples::default()).collect();
    for run in 0..setup.silesia_runs {
        let mut pairs = Vec::new();
        for (_, options) in PAIRS {
            pairs.push(over.pair(setup.refrain, options, options)?);
        }
        for (index, (file, samples)) in files.iter().zip(&mut samples).enumerate() {
            let transfer = |address| transfer(&over, address, index, file);
            let took = transfer(direct)?.0;
            samples.direct_s.push(took);
            let mut line = format!("{name}, run {}, file {index}: direct {took:.2} s", run + 1);
            for (pair, samples) in pairs.iter().zip(&mut samples.pairs) {
                for samples in samples {
                    let (took, wire_bytes) = transfer(pair.address)?;
                    samples.push((took, wire_bytes));
                    write!(line, ", {took:.3}")?;
                }
            }
            eprintln!("{line}");
        }
    }
    Ok(Cell {
        mbit,
        delay_ms,
        write_bytes,
        direct_s: samples
            .iter()
            .map(|file| median(file.direct_s.clone()))
            .sum(),
        pairs: (0..PAIRS.len())
            .map(|at| PairFigures::of(files, &samples, at))
            .collect(),
    })
}

impl PairFigures {
    fn of(files: &[Vec<u8>], samples: &[FileSamples], pair: usize) -> Self {
        let mean = |figure: &dyn Fn(&Vec<u8>, &FileSamples) -> f64| {
            let figures = files.iter().zip(samples);
            figures
                .map(|(file, samples)| figure(file, samples))
                .sum::<f64>()
                / files.len() as f64
        };
        let saved = [0, 1].map(|transfer| {
            mean(&|_, samples| {
                let took = samples.pairs[pair][transfer].iter().map(|sample| sample.0);
                1.0 - median(took) / median(samples.direct_s.clone())
            })
        });
        let ratio = [0, 1].map(|transfer| {
            mean(&|file, samples| {
                let carried = samples.pairs[pair][transfer].iter().map(|sample| sample.1);
                file.len() as f64 / median(carried)
            })
        });
        Self { saved, ratio }
    }
}

/// The origin: an index, and that file in writes of one size.
fn send(mut stream: TcpStream, files: &[Vec<u8>], write_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut index = [0; 8];
    stream.read_exact(&mut index)?;
    let file = files.get(u64::from_le_bytes(index) as usize);
    let file = file.ok_or(io::ErrorKind::InvalidData)?;
    file.chunks(write_bytes)
        .try_for_each(|segment| stream.write_all(segment))
}

/// Seconds, and bytes on the wire in both directions.
fn transfer(
    over: &OverLink,
    address: SocketAddr,
    index: usize,
    file: &[u8],
) -> anyhow::Result<(f64, f64)> {
    let before = over.wire_bytes();
    let took = over.client(|| {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&(index as u64).to_le_bytes())?;
        let mut came = vec![0; 256 << 10];
        let mut rest = file;
        loop {
            let bytes = stream.read(&mut came)?;
            if bytes == 0 {
                break;
            }
            let stripped = rest.strip_prefix(&came[..bytes]);
            ensure!(stripped.is_some(), "file {index} differs");
            rest = stripped.unwrap_or_default();
        }
        ensure!(rest.is_empty(), "file {index} is truncated");
        Ok(began.elapsed())
    })?;
    let wire_bytes = over.wire_bytes() - before;
    Ok((took.as_secs_f64(), wire_bytes as f64))
}
