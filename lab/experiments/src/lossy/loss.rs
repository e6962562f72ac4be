//! One flow and eight at once, where segments are lost.

use std::{fmt::Write, time::Duration};

use refrain_link::LinkConfig;
use refrain_relay::Rate;
use serde::{Deserialize, Serialize};

use super::{DIRECT, PAIRS, Setup, flows};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
    over_link::OverLink,
    seeded::{Kind, Seeded},
};
use flows::Expected;

const MBIT: u32 = 100;
const DELAY_MS: u64 = 10;
const LOSSES_PERCENT: [f64; 4] = [0.1, 0.5, 1.0, 2.0];
const FLOW_BYTES: u64 = 3 << 20;
const CASES: [(Kind, &str, usize); 4] = [
    (Kind::Noise, "noise", 8),
    (Kind::Text, "text", 8),
    (Kind::Noise, "noise", 1),
    (Kind::Text, "text", 1),
];

#[derive(Serialize, Deserialize)]
pub(super) struct Losses {
    runs: usize,
    cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
struct Cell {
    /// In [`CASES`].
    case: usize,
    loss_percent: f64,
    direct_s: [f64; DIRECT.len()],
    pairs: [PairFigures; PAIRS.len()],
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct PairFigures {
    fresh_s: f64,
    in_use_s: f64,
    /// At the end.
    lanes: usize,
}

#[derive(Default)]
struct Samples {
    direct_s: [Vec<f64>; DIRECT.len()],
    fresh_s: [Vec<f64>; PAIRS.len()],
    in_use_s: [Vec<f64>; PAIRS.len()],
    lanes: [usize; PAIRS.len()],
}

impl Figures<Setup<'_>> for Losses {
    const NAME: &'static str = "loss";
    const TITLE: &'static str = "Flows where segments are lost";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut cells = Vec::new();
        for loss_percent in LOSSES_PERCENT {
            let link = LinkConfig {
                rate: Some(Rate::mbit(MBIT)),
                delay: Duration::from_millis(DELAY_MS),
                loss: loss_percent / 100.0,
                ..LinkConfig::default()
            };
            let over = OverLink::start(&link, flows::origin())?;
            eprintln!("{loss_percent} % lost: {}", over.checked);
            for case in 0..CASES.len() {
                cells.push(measure(setup, &over, loss_percent, case)?);
            }
        }
        let runs = setup.runs;
        Ok(Self { runs, cells })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "Seconds from the first connect to the last byte. They are {}; the ways took turns. Flows have\n\
             {} MiB and run at the same time. Link: {MBIT} Mbit/s, {DELAY_MS} ms one way. *Fresh*: a pair that has\n\
             carried nothing. *In use*: the same pair afterwards, with other content. *Lanes*: the maximum at the\n\
             end of a run; a pair begins with 4.",
            medians_of(self.runs),
            FLOW_BYTES >> 20
        )?;
        for (case, (_, name, flows)) in CASES.iter().enumerate() {
            let flows = match flows {
                1 => "one flow".to_owned(),
                flows => format!("{flows} flows"),
            };
            write!(page, "\n### {name}, {flows}\n\n| loss ")?;
            for name in DIRECT {
                write!(page, "| direct, {name} ")?;
            }
            for name in PAIRS {
                write!(page, "| pair, {name}: fresh | in use | lanes ")?;
            }
            let columns = 1 + DIRECT.len() + 3 * PAIRS.len();
            writeln!(page, "|\n{}|", "|--:".repeat(columns))?;
            for cell in self.cells.iter().filter(|cell| cell.case == case) {
                write!(page, "| {} % ", cell.loss_percent)?;
                for seconds in cell.direct_s {
                    write!(page, "| {seconds:.2} ")?;
                }
                for pair in cell.pairs {
                    write!(
                        page,
                        "| {:.2} | {:.2} | {} ",
                        pair.fresh_s, pair.in_use_s, pair.lanes
                    )?;
                }
                writeln!(page, "|")?;
            }
        }
        Ok(())
    }
}

fn measure(
    setup: &Setup<'_>,
    over: &OverLink,
    loss_percent: f64,
    case: usize,
) -> anyhow::Result<Cell> {
    let (kind, name, flows) = CASES[case];
    let mut seeds = 0..;
    let mut objects = || -> Vec<Expected> {
        let seeded = seeds.by_ref().take(flows).map(|seed| Seeded {
            kind,
            seed,
            bytes: FLOW_BYTES,
        });
        seeded.map(Expected::new).collect()
    };
    let mut samples = Samples::default();
    for run in 0..setup.runs {
        let (first, then) = (objects(), objects());
        for (congestion, samples) in DIRECT.iter().zip(&mut samples.direct_s) {
            let address = over.direct(congestion)?;
            let took = over.client(|| flows::fetch_all(address, &first))?;
            samples.push(took.as_secs_f64());
        }
        for (at, congestion) in PAIRS.into_iter().enumerate() {
            let options = ["--congestion", congestion];
            let pair = over.pair(setup.refrain, &options, &options)?;
            for (samples, objects) in [
                (&mut samples.fresh_s[at], &first),
                (&mut samples.in_use_s[at], &then),
            ] {
                let took = over.client(|| flows::fetch_all(pair.address, objects))?;
                samples.push(took.as_secs_f64());
            }
            samples.lanes[at] = samples.lanes[at].max(pair.near()?.lanes);
        }
        let last = |times: &Vec<f64>| times.last().copied().unwrap_or_default();
        eprintln!(
            "{loss_percent} % lost, {name}, {flows} flows, run {}: direct {:.2?}, fresh {:.2?}, in use {:.2?}",
            run + 1,
            samples.direct_s.each_ref().map(last),
            samples.fresh_s.each_ref().map(last),
            samples.in_use_s.each_ref().map(last),
        );
    }
    let (fresh_s, in_use_s) = (samples.fresh_s.map(median), samples.in_use_s.map(median));
    Ok(Cell {
        case,
        loss_percent,
        direct_s: samples.direct_s.map(median),
        pairs: std::array::from_fn(|at| PairFigures {
            fresh_s: fresh_s[at],
            in_use_s: in_use_s[at],
            lanes: samples.lanes[at],
        }),
    })
}
