//! The second transfer of an object, which costs the link next to nothing.

use std::{fmt::Write, sync::Arc, thread};

use serde::{Deserialize, Serialize};

use super::{
    Setup,
    client::{Client, Path, Transfer},
    origin::{Content, Request},
    table::{PAUSE, ms, seconds},
};
use crate::{
    chapters::Figures,
    corpus,
    machine::cores,
    median::median,
    over_link::OverLink,
    targets::{Target, all_of, at_most},
};

const MBIT: [u32; 3] = [10, 100, 1000];
const DELAYS_MS: [u64; 3] = [0, 25, 100];
const SAMBA: &str = "samba";
const RELEASES: &str = "two releases";

/// Beside two round trips and the link bytes: memory at both ends is copied at this rate, and all else takes so long.
const BYTES_PER_S: f64 = 1.5e9;
const ALLOWANCE_S: f64 = 0.02;

/// Seconds of WANProxy with zlib, on another machine (two cores, noisy) and of one release of 46 MB where there are two
/// here: a pair is to take a share of them at most. They are on the page of peers.
const WANPROXY: [(&str, Path, f64); 4] = [
    (
        RELEASES,
        Path {
            mbit: 100,
            delay_ms: 0,
        },
        0.239,
    ),
    (
        RELEASES,
        Path {
            mbit: 100,
            delay_ms: 25,
        },
        0.323,
    ),
    (
        SAMBA,
        Path {
            mbit: 100,
            delay_ms: 25,
        },
        0.216,
    ),
    (
        SAMBA,
        Path {
            mbit: 10,
            delay_ms: 25,
        },
        0.234,
    ),
];
const OF_WANPROXY: f64 = 0.7;

/// Bounds of their own, in seconds.
const LONG: (Path, f64) = (
    Path {
        mbit: 1000,
        delay_ms: 100,
    },
    0.60,
);
const THIN: (Path, f64) = (
    Path {
        mbit: 100,
        delay_ms: 25,
    },
    0.23,
);

#[derive(Serialize, Deserialize)]
pub(super) struct SecondTransfers {
    cells: Vec<Cell>,
}

/// An object on a link.
#[derive(Serialize, Deserialize)]
struct Cell {
    content: String,
    bytes: u64,
    path: Path,
    /// Of each build, run by run.
    builds: Vec<(String, Vec<Run>)>,
    /// Why there are fewer runs, if there are.
    trouble: Option<String>,
}

/// Both transfers by a new pair.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Run {
    first: Transfer,
    second: Transfer,
}

impl Figures<Setup> for SecondTransfers {
    const NAME: &'static str = "second";
    const TITLE: &'static str = "Second transfers";

    fn measure(setup: &Setup) -> anyhow::Result<Self> {
        let samba = corpus::unpacked(&setup.data.join("silesia/samba.zst"))?;
        let releases = corpus::linux_releases(&setup.data, 2)?.objects.concat();
        let mut cells = Vec::new();
        for (name, object) in [(SAMBA, samba), (RELEASES, releases)] {
            let content = Arc::new(Content::of(vec![object]));
            for mbit in MBIT {
                for delay_ms in DELAYS_MS {
                    let path = Path { mbit, delay_ms };
                    cells.push(cell(setup, name, &content, path));
                }
            }
        }
        Ok(Self { cells })
    }

    fn targets(&self) -> Vec<Target> {
        let of = |content: &str, path: Path| {
            let mut cells = self.cells.iter().filter_map(Medians::of);
            cells.find(|cell| cell.content == content && cell.path == path)
        };
        let cells = self.cells.iter().filter_map(Medians::of);
        let met = cells.filter(|cell| !cell.is_slow()).count();
        let shares = WANPROXY
            .iter()
            .filter_map(|&(content, path, theirs)| Some(of(content, path)?.seconds / theirs));
        let met_of_wanproxy = shares.filter(|&share| share <= OF_WANPROXY).count();
        let single = |what, asked, (path, bound): (Path, f64)| Target {
            what,
            asked,
            measured: of(RELEASES, path)
                .map(|cell| at_most(cell.seconds, bound, seconds(cell.seconds) + " s")),
        };
        vec![
            Target {
                what: "second transfers: cells within two round trips + link bytes / rate + size / 1.5 GB/s + 20 ms",
                asked: "18 of 18",
                measured: Some(all_of(met, self.cells.len())),
            },
            Target {
                what: "second transfers: cells within 0.7 of the seconds of WANProxy with zlib",
                asked: "4 of 4",
                measured: Some(all_of(met_of_wanproxy, WANPROXY.len())),
            },
            single(
                "two releases again, 1 Gbit/s, 100 ms",
                "0.60 s at most",
                LONG,
            ),
            single(
                "two releases again, 100 Mbit/s, 25 ms",
                "0.23 s at most",
                THIN,
            ),
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        let before = self.cells[0].builds.len() > 1;
        writeln!(
            page,
            "An object is fetched through a new pair, and again one second later. *First byte*: when it came.\n\
             *Link*: how long the link bytes take at the link's rate. *In flight*: how long the lanes had bytes in\n\
             flight. *CPU*: of the far and near gateway.\n\n\
             | object | Mbit/s | delay, ms | first, s | {}again, s | link bytes | first byte, ms | link, ms | \
             in flight, ms | CPU, ms |\n\
             |---|--:|--:|--:|{}--:|--:|--:|--:|--:|--:|",
            if before { "before: again, s | " } else { "" },
            if before { "--:|" } else { "" },
        )?;
        for cell in &self.cells {
            row(page, cell, before)?;
        }
        writeln!(
            page,
            "\nObjects: samba is Silesia's file, {:.1} MB; the releases are Linux 2.0.1 and 2.0.2 in one stream, {:.1} MB.",
            self.cells[0].bytes as f64 / 1e6,
            self.cells[self.cells.len() - 1].bytes as f64 / 1e6,
        )?;
        self.write_slow(page)
    }
}

impl SecondTransfers {
    /// The cells that took longer than their estimate, and why.
    fn write_slow(&self, page: &mut String) -> anyhow::Result<()> {
        let cells: Vec<Medians<'_>> = self.cells.iter().filter_map(Medians::of).collect();
        let slow: Vec<_> = cells.iter().filter(|cell| cell.is_slow()).collect();
        writeln!(
            page,
            "\nA simple estimate of a second transfer is two round trips + link bytes / rate + size / 1.5 GB/s +\n\
             20 ms. {} of {} rows took longer. WANProxy's second transfers are from another machine:\n\
             [its figures](results-peers.md#wanproxy-measured-on-another-day).",
            slow.len(),
            cells.len()
        )?;
        if slow.is_empty() {
            return Ok(());
        }
        writeln!(
            page,
            "\nThe slow rows, with the reasons why the far end's sending waited. *Cores*: the share of all cores' time\n\
             that the gateways, the client, the origin and the link took.\n"
        )?;
        for cell in slow {
            writeln!(
                page,
                "- {}, {} Mbit/s, {} ms: {} s, estimated {} s; {}",
                cell.content,
                cell.path.mbit,
                cell.path.delay_ms,
                seconds(cell.seconds),
                seconds(cell.estimate_s),
                cell.waits_for()
            )?;
        }
        Ok(())
    }
}

fn cell(setup: &Setup, name: &str, content: &Arc<Content>, path: Path) -> Cell {
    let builds = setup.builds.iter();
    let mut cell = Cell {
        content: name.to_owned(),
        bytes: content.objects[0].len() as u64,
        path,
        builds: builds
            .map(|build| (build.name.to_owned(), Vec::new()))
            .collect(),
        trouble: None,
    };
    let mut client = Client::default();
    for _ in 0..setup.runs {
        for (build, (_, runs)) in setup.builds.iter().zip(&mut cell.builds) {
            match run(&build.refrain, content, path, &mut client) {
                Ok(run) => {
                    eprintln!(
                        "{name}, {} Mbit/s, {} ms, {}: {:.3} s, then {:.3} s, {} bytes, {} of {} blocks bypassed",
                        path.mbit,
                        path.delay_ms,
                        build.name,
                        run.first.fetched.seconds,
                        run.second.fetched.seconds,
                        run.second.link_bytes,
                        run.second.bypassed_blocks,
                        run.second.blocks,
                    );
                    runs.push(run);
                }
                Err(error) => {
                    eprintln!("{name}, {path:?}: {error:#}");
                    cell.trouble = Some(format!("{error:#}"));
                }
            }
        }
    }
    cell
}

fn run(
    refrain: &std::path::Path,
    content: &Arc<Content>,
    path: Path,
    client: &mut Client,
) -> anyhow::Result<Run> {
    let over = OverLink::start(&path.config(), content.served())?;
    let pair = over.pair(refrain, &[], &[])?;
    let mut fetch = || client.through(&over, &pair, Request::Object(0), &content.objects[0]);
    let first = fetch()?;
    thread::sleep(PAUSE);
    let second = fetch()?;
    Ok(Run { first, second })
}

/// A cell's medians.
struct Medians<'a> {
    content: &'a str,
    path: Path,
    first: f64,
    /// Of the second transfer, as all that follows.
    seconds: f64,
    estimate_s: f64,
    link_bytes: u64,
    /// How long the far end waited for its reader, for credit, for the link and for the processor.
    waits: [f64; 4],
    first_byte_s: f64,
    link_s: f64,
    in_flight_s: f64,
    far_cpu_s: f64,
    near_cpu_s: f64,
    /// Of both gateways, client, origin and link, spread over all cores.
    all_cpu_s: f64,
}

impl<'a> Medians<'a> {
    /// `None` if nothing was measured.
    fn of(cell: &'a Cell) -> Option<Self> {
        let (_, runs) = &cell.builds[0];
        if runs.is_empty() {
            return None;
        }
        let of = |figure: fn(&Transfer) -> f64| median(runs.iter().map(|run| figure(&run.second)));
        let path = cell.path;
        let link_bytes = of(|transfer| transfer.link_bytes as f64).round() as u64;
        let link_s = path.seconds_for(link_bytes);
        let copied_s = cell.bytes as f64 / BYTES_PER_S;
        Some(Self {
            content: &cell.content,
            path,
            first: median(runs.iter().map(|run| run.first.fetched.seconds)),
            seconds: of(|transfer| transfer.fetched.seconds),
            estimate_s: 2.0 * path.round_trip_s() + link_s + copied_s + ALLOWANCE_S,
            link_bytes,
            waits: [
                of(|transfer| transfer.waits.reader_s),
                of(|transfer| transfer.waits.credit_s),
                of(|transfer| transfer.waits.link_s),
                of(|transfer| transfer.waits.processor_s),
            ],
            first_byte_s: of(|transfer| transfer.fetched.first_byte_s),
            link_s,
            in_flight_s: of(|transfer| transfer.lanes_busy_s),
            far_cpu_s: of(|transfer| transfer.far_cpu_s),
            near_cpu_s: of(|transfer| transfer.near_cpu_s),
            all_cpu_s: of(|transfer| transfer.near_cpu_s + transfer.far_cpu_s + transfer.lab_cpu_s)
                / f64::from(cores()),
        })
    }

    fn is_slow(&self) -> bool {
        self.seconds > self.estimate_s
    }

    /// Where the time after the first byte goes, by the far end's own counters, and how busy the machine was.
    fn waits_for(&self) -> String {
        let waits = [
            ("reader", self.waits[0]),
            ("credit", self.waits[1]),
            ("link", self.waits[2]),
            ("processor", self.waits[3]),
        ];
        let waits = waits
            .into_iter()
            .filter(|(_, seconds)| *seconds >= 1e-3)
            .map(|(name, seconds)| format!("{name} {} ms", ms(seconds)));
        let busy = 100.0 * self.all_cpu_s / self.seconds;
        let mut causes: Vec<String> = waits.collect();
        causes.push(format!("cores {busy:.0} % busy"));
        causes.join(", ")
    }
}

fn row(page: &mut String, cell: &Cell, before: bool) -> anyhow::Result<()> {
    let Path { mbit, delay_ms } = cell.path;
    write!(page, "| {} | {mbit} | {delay_ms} | ", cell.content)?;
    let Some(medians) = Medians::of(cell) else {
        let trouble = cell.trouble.as_deref().unwrap_or_default();
        writeln!(page, "not measured: {trouble} |")?;
        return Ok(());
    };
    write!(page, "{} | ", seconds(medians.first))?;
    if before {
        let runs = &cell.builds[1].1;
        let runs: Vec<f64> = runs.iter().map(|run| run.second.fetched.seconds).collect();
        let median = (!runs.is_empty()).then(|| seconds(median(runs)));
        write!(page, "{} | ", median.unwrap_or_default())?;
    }
    writeln!(
        page,
        "{} | {} | {} | {} | {} | {} + {} |",
        seconds(medians.seconds),
        medians.link_bytes,
        ms(medians.first_byte_s),
        ms(medians.link_s),
        ms(medians.in_flight_s),
        ms(medians.far_cpu_s),
        ms(medians.near_cpu_s),
    )?;
    Ok(())
}
