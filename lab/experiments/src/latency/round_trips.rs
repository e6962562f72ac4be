//! The round trips that a transfer takes: the first, second and hundredth over a pair.

use std::{
    fmt::Write,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Setup, http, link};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
    over_link::OverLink,
    seeded::Seeded,
};

const MBIT: u32 = 100;
const DELAY_MS: u64 = 50;
const SIZES: [usize; 2] = [1_000, 100_000];

/// Which transfers are shown.
const TRANSFERS: [usize; 3] = [1, 2, 100];

/// What a warm link has carried, and how long an idle one has been silent since.
const WARM_BYTES: usize = 10_000_000;
const IDLE: Duration = Duration::from_secs(5);

/// Each needs a new pair and a hundred transfers.
const RUNS_MAX: usize = 5;

#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
enum State {
    Direct,
    Cold,
    New,
    Warm,
    Idle,
}

/// Each with its name, and the round trips that remain before the first byte.
const STATES: [(State, &str, &str); 5] = [
    (State::Direct, "direct, CUBIC", "2: TCP, request"),
    (
        State::Cold,
        "pair, cold: the first transfer starts with the near end",
        "3: TCP, TLS, hello with the request; then 1",
    ),
    (State::New, "pair, new: its lanes are up", "1: request"),
    (
        State::Warm,
        "pair, warm: it has carried 10 MB",
        "1: request",
    ),
    (
        State::Idle,
        "pair, idle: the same, 5 s earlier",
        "1: request",
    ),
];

#[derive(Serialize, Deserialize)]
pub(super) struct RoundTrips {
    runs: usize,
    /// As checked.
    round_trip_ms: f64,
    cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
struct Cell {
    state: State,
    bytes: usize,
    /// Round trips from the call of `connect`, by transfer.
    first_byte: [f64; TRANSFERS.len()],
    last_byte: [f64; TRANSFERS.len()],
}

fn object(number: u64) -> Vec<u8> {
    // The first digits are its size, so that all transfers have other content.
    let mut bytes = Vec::new();
    let noise = Seeded::noise(number, number >> 32);
    noise.write_to(&mut bytes).expect("memory takes all");
    bytes
}

impl Figures<Setup<'_>> for RoundTrips {
    const NAME: &'static str = "round-trips";
    const TITLE: &'static str = "Round trips of a transfer";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let over = OverLink::start(&link(MBIT, DELAY_MS), http::origin(object))?;
        eprintln!("{}", over.checked);
        let round_trip = over.checked.round_trip.as_secs_f64();
        let runs = setup.runs.min(RUNS_MAX);
        let mut cells = Vec::new();
        for (state, name, _) in STATES {
            for bytes in SIZES {
                let mut samples = [const { (Vec::new(), Vec::new()) }; TRANSFERS.len()];
                for run in 0..runs {
                    eprintln!("{name}, {bytes} bytes, run {} of {runs}", run + 1);
                    let times = transfers(setup, &over, state, bytes)?;
                    for (samples, times) in samples.iter_mut().zip(times) {
                        samples.0.push(times.first_byte.as_secs_f64() / round_trip);
                        samples.1.push(times.last_byte.as_secs_f64() / round_trip);
                    }
                }
                cells.push(Cell {
                    state,
                    bytes,
                    first_byte: samples.each_ref().map(|(first, _)| median(first.clone())),
                    last_byte: samples.map(|(_, last)| median(last)),
                });
            }
        }
        Ok(Self {
            runs,
            round_trip_ms: 1e3 * round_trip,
            cells,
        })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "Figures are times from the call of `connect`, divided by the round trip of {:.1} ms. The results are\n\
             numbers of round trips. For a cold pair, the first transfer counts from the start of the near end's\n\
             process. Link: {MBIT} Mbit/s. Responses are {} and {} bytes of noise, each with other content, so\n\
             nothing is saved. Transfers follow each other, each on its own connection. Figures are {}. Each\n\
             run has a new pair. *Remain*: the round trips before the first byte that cannot be saved. The near end\n\
             answers `connect`. TLS 1.3 needs one round trip. Its early data is not used, because it could be\n\
             replayed. On a path that has not carried as much before, the larger response also waits for slow\n\
             start. Its first byte waits too, because a block counts only when it is complete.\n",
            self.round_trip_ms,
            SIZES[0],
            SIZES[1],
            medians_of(self.runs)
        )?;
        for (title, figures) in [
            (
                "first byte",
                (|cell| cell.first_byte) as fn(&Cell) -> [f64; TRANSFERS.len()],
            ),
            ("last byte", |cell| cell.last_byte),
        ] {
            writeln!(
                page,
                "| {title} | bytes | first transfer | second | hundredth | remain |\n|---|--:|--:|--:|--:|---|"
            )?;
            for cell in &self.cells {
                let state = STATES.iter().find(|(state, ..)| *state == cell.state);
                let (_, name, remain) = state.expect("each state is listed");
                let [first, second, hundredth] = figures(cell);
                writeln!(
                    page,
                    "| {name} | {} | {first:.2} | {second:.2} | {hundredth:.2} | {remain} |",
                    cell.bytes
                )?;
            }
            page.push('\n');
        }
        Ok(())
    }
}

/// A hundred transfers; the times of those that are shown.
fn transfers(
    setup: &Setup<'_>,
    over: &OverLink,
    state: State,
    bytes: usize,
) -> anyhow::Result<Vec<http::Times>> {
    let number = |transfer: usize| (bytes as u64) << 32 | transfer as u64;
    let get = |address: SocketAddr, number| {
        let body = object(number);
        over.client(|| http::get(address, number, &body))
    };
    let mut pair = match state {
        State::Direct => None,
        _ => Some(over.pair(setup.refrain, &[], &[])?),
    };
    let address = match &pair {
        Some(pair) => pair.address,
        None => over.direct("cubic")?,
    };
    if matches!(state, State::Warm | State::Idle) {
        get(address, (WARM_BYTES as u64) << 32)?;
    }
    if state == State::Idle {
        thread::sleep(IDLE);
    }
    let mut times = Vec::new();
    let mut head_start = Duration::ZERO;
    if let (State::Cold, Some(pair)) = (state, &mut pair) {
        pair.end_near()?;
        let began = Instant::now();
        pair.begin_near()?;
        head_start = began.elapsed();
    }
    for transfer in 1..=*TRANSFERS.iter().max().expect("some are shown") {
        let mut took = get(address, number(transfer))?;
        let head_start = core::mem::take(&mut head_start);
        took.first_byte += head_start;
        took.last_byte += head_start;
        if TRANSFERS.contains(&transfer) {
            times.push(took);
        }
    }
    Ok(times)
}
