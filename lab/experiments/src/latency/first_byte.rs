//! How long a new flow waits for its first byte.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::{Setup, http, link};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
    over_link::OverLink,
};

const MBIT: u32 = 100;
const DELAYS_MS: [u64; 4] = [0, 5, 20, 80];
const ANSWER: &[u8] = b"a small answer";

#[derive(Serialize, Deserialize)]
pub(super) struct FirstBytes {
    runs: usize,
    cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
struct Cell {
    delay_ms: u64,
    direct_ms: f64,
    pair_ms: f64,
}

impl Figures<Setup<'_>> for FirstBytes {
    const NAME: &'static str = "first-byte";
    const TITLE: &'static str = "The first byte of a new flow";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut cells = Vec::new();
        for delay_ms in DELAYS_MS {
            let over = OverLink::start(&link(MBIT, delay_ms), http::origin(|_| ANSWER.to_vec()))?;
            let pair = over.pair(setup.refrain, &[], &[])?;
            let direct = over.direct("cubic")?;
            let mut times = [const { Vec::new() }; 2];
            for _ in 0..setup.runs {
                for (address, times) in [direct, pair.address].into_iter().zip(&mut times) {
                    let took = over.client(|| http::get(address, 0, ANSWER))?;
                    times.push(took.first_byte.as_secs_f64() * 1e3);
                }
            }
            let [direct_ms, pair_ms] = times.map(median);
            eprintln!("{delay_ms} ms each way: direct {direct_ms:.1} ms, pair {pair_ms:.1} ms");
            cells.push(Cell {
                delay_ms,
                direct_ms,
                pair_ms,
            });
        }
        let runs = setup.runs;
        Ok(Self { runs, cells })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "Figures are times from the call of `connect` to the first byte of a small response. They are\n\
             {}. Link: {MBIT} Mbit/s. A direct connection needs a handshake first. A flow of a pair\n\
             does not.\n\n\
             | delay | direct | pair |\n\
             |--:|--:|--:|",
            medians_of(self.runs)
        )?;
        for cell in &self.cells {
            let Cell {
                delay_ms,
                direct_ms,
                pair_ms,
            } = cell;
            writeln!(
                page,
                "| {delay_ms} ms | {direct_ms:.1} ms | {pair_ms:.1} ms |"
            )?;
        }
        Ok(())
    }
}
