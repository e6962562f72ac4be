//! Slow start, and slow start after idle, on a link that loses nothing.

use std::{
    fmt::Write,
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use refrain_link::LinkConfig;
use refrain_relay::Rate;
use serde::{Deserialize, Serialize};

use super::{DIRECT, PAIRS, Setup, flows};
use crate::{
    chapters::Figures,
    median::{median, medians_of},
    over_link::OverLink,
    seeded::Seeded,
};
use flows::{Expected, Times};

const MBIT: u32 = 100;
const DELAY_MS: u64 = 50;
const ANSWER_BYTES: u64 = 1_000_000;
/// What a connection, or a pair, carries before it falls silent.
const BEFORE_BYTES: u64 = 10_000_000;
const IDLE: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
pub(super) struct SlowStarts {
    runs: usize,
    ways: Vec<Way>,
}

/// Milliseconds from the request to the first and to the last byte.
#[derive(Serialize, Deserialize)]
struct Way {
    name: String,
    new_ms: [f64; 2],
    at_once_ms: [f64; 2],
    after_idle_ms: [f64; 2],
}

/// By [`Way`]'s fields.
#[derive(Default)]
struct Samples([[Vec<f64>; 2]; 3]);

impl Figures<Setup<'_>> for SlowStarts {
    const NAME: &'static str = "slow-start";
    const TITLE: &'static str = "Slow start, and slow start after idle";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let link = LinkConfig {
            rate: Some(Rate::mbit(MBIT)),
            delay: Duration::from_millis(DELAY_MS),
            ..LinkConfig::default()
        };
        let over = OverLink::start(&link, flows::origin())?;
        eprintln!("slow start: {}", over.checked);
        let mut samples: Vec<Samples> = (0..DIRECT.len() + PAIRS.len())
            .map(|_| Samples::default())
            .collect();
        let (direct, pairs) = samples.split_at_mut(DIRECT.len());
        for run in 0..setup.runs {
            eprintln!("slow start, run {} of {}", run + 1, setup.runs);
            for (congestion, samples) in DIRECT.iter().zip(&mut *direct) {
                let address = over.direct(congestion)?;
                samples.push(over.client(|| in_turn(address))?);
            }
            for (congestion, samples) in PAIRS.iter().zip(&mut *pairs) {
                let options = ["--congestion", congestion];
                let pair = over.pair(setup.refrain, &options, &options)?;
                samples.push(over.client(|| in_turn(pair.address))?);
            }
        }
        let names = DIRECT.map(|name| format!("direct, {name}")).into_iter();
        let names = names.chain(PAIRS.map(|name| format!("pair, {name}")));
        Ok(Self {
            runs: setup.runs,
            ways: names.zip(samples).map(Way::of).collect(),
        })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "Milliseconds from the request to the first and last byte of {} kB of noise, on an open\n\
             connection. They are {}; the ways took turns. Link: {MBIT} Mbit/s, {DELAY_MS} ms one way, no\n\
             loss. The response needs a round trip of {} ms and {} ms of the link. *New*: the first response of a\n\
             connection, or of a new pair. *At once*: the same connection has just carried {} MB. *After idle*: the\n\
             same after {} s of silence.\n\n\
             | | new: first byte | last | at once: first byte | last | after idle: first byte | last |\n\
             |---|--:|--:|--:|--:|--:|--:|",
            ANSWER_BYTES / 1000,
            medians_of(self.runs),
            2 * DELAY_MS,
            8 * ANSWER_BYTES / 1000 / u64::from(MBIT),
            BEFORE_BYTES / 1_000_000,
            IDLE.as_secs(),
        )?;
        for way in &self.ways {
            write!(page, "| {} ", way.name)?;
            for ms in [way.new_ms, way.at_once_ms, way.after_idle_ms].concat() {
                write!(page, "| {ms:.0} ")?;
            }
            writeln!(page, "|")?;
        }
        Ok(())
    }
}

impl Way {
    fn of((name, samples): (String, Samples)) -> Self {
        let [new_ms, at_once_ms, after_idle_ms] = samples.0.map(|times| times.map(median));
        Self {
            name,
            new_ms,
            at_once_ms,
            after_idle_ms,
        }
    }
}

impl Samples {
    fn push(&mut self, times: [Times; 3]) {
        for (samples, times) in self.0.iter_mut().zip(times) {
            samples[0].push(1e3 * times.first_byte.as_secs_f64());
            samples[1].push(1e3 * times.last_byte.as_secs_f64());
        }
    }
}

/// Answers over one connection: at its beginning, after much else, and after silence.
fn in_turn(address: SocketAddr) -> anyhow::Result<[Times; 3]> {
    let answer = |seed| Expected::new(Seeded::noise(seed, ANSWER_BYTES));
    let [new, at_once, after_idle] = [1, 2, 3].map(answer);
    let before = Expected::new(Seeded::noise(4, BEFORE_BYTES));
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let new = new.fetch(&stream)?;
    before.fetch(&stream)?;
    let at_once = at_once.fetch(&stream)?;
    thread::sleep(IDLE);
    let after_idle = after_idle.fetch(&stream)?;
    Ok([new, at_once, after_idle])
}
