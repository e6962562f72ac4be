//! Small writes that are echoed, beside a bulk download.

use std::{
    fmt::Write,
    io::{Read, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    client::Path,
    origin::{Content, Request},
    table::{ms, quantile},
};
use crate::{
    chapters::Figures,
    over_link::OverLink,
    seeded::{Kind, Seeded},
    targets::{Target, at_most},
};

const PATH: Path = Path {
    mbit: 10,
    delay_ms: 25,
};

/// Beside the link's round trip.
const LATE_MAX_S: f64 = 0.06;

/// Typists at once, since flows share lanes by chance; keystrokes of each, and the time between two.
const TYPISTS: u64 = 4;
const KEYSTROKES: u32 = 250;
const INTERVAL: Duration = Duration::from_millis(100);
const KEYSTROKE_BYTES: usize = 36;

/// How long a bulk download runs before.
const BULK_LEAD: Duration = Duration::from_secs(3);

const CONGESTIONS: [&str; 2] = ["bbr", "cubic"];

/// What runs beside.
const BULKS: [(&str, Option<Kind>); 3] = [
    ("nothing", None),
    ("noise", Some(Kind::Noise)),
    ("text", Some(Kind::Text)),
];

#[derive(Serialize, Deserialize)]
pub(super) struct Keystrokes {
    /// Of the link alone.
    round_trip_s: f64,
    series: Vec<Series>,
}

/// Keystrokes by one way beside one bulk.
#[derive(Serialize, Deserialize)]
struct Series {
    way: String,
    congestion: String,
    bulk: String,
    /// How long each took, sorted.
    took_s: Vec<f64>,
    /// Application bytes of the bulk download meanwhile.
    bulk_bytes_per_s: f64,
}

impl Figures<Setup> for Keystrokes {
    const NAME: &'static str = "keystrokes";
    const TITLE: &'static str = "Keystrokes during a bulk download";

    fn measure(setup: &Setup) -> anyhow::Result<Self> {
        let content = Arc::new(Content::default());
        let mut figures = Self {
            round_trip_s: f64::INFINITY,
            series: Vec::new(),
        };
        for _ in 0..setup.runs {
            for (bulk, kind) in BULKS {
                for congestion in CONGESTIONS {
                    for build in &setup.builds {
                        let over = OverLink::start(&PATH.config(), content.served())?;
                        let options = ["--congestion", congestion];
                        let pair = over.pair(&build.refrain, &options, &options)?;
                        let way = format!("pair {}", build.name);
                        figures.add(&over, [&way, congestion, bulk], pair.address, kind)?;
                    }
                    let over = OverLink::start(&PATH.config(), content.served())?;
                    let direct = over.direct(congestion)?;
                    figures.add(&over, ["direct", congestion, bulk], direct, kind)?;
                }
            }
        }
        for series in &mut figures.series {
            series.took_s.sort_by(f64::total_cmp);
        }
        Ok(figures)
    }

    fn targets(&self) -> Vec<Target> {
        let late = |bulk: &str| {
            let series = self.find("pair now", "bbr", bulk)?;
            let late = quantile(&series.took_s, 0.99) - self.round_trip_s;
            Some(at_most(late, LATE_MAX_S, format!("+{} ms", ms(late))))
        };
        vec![
            Target {
                what: "keystrokes during a download of noise, 10 Mbit/s, BBR: p99 over the round trip",
                asked: "+60 ms at most",
                measured: late("noise"),
            },
            Target {
                what: "the same during a download of text",
                asked: "+60 ms at most",
                measured: late("text"),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "{TYPISTS} clients at once write {KEYSTROKE_BYTES} bytes every {} ms, {KEYSTROKES} times each run, and\n\
             wait for their echo. A download that began {} s before runs at the same time. Link: {} Mbit/s, {} ms,\n\
             a queue of 100 ms. A round trip takes {:.1} ms. *Direct*: each client has its own TCP connection.\n\n\
             | way | congestion control | download of | median, ms | p99, ms | longest, ms | download, MB/s |\n\
             |---|---|---|--:|--:|--:|--:|",
            INTERVAL.as_millis(),
            BULK_LEAD.as_secs(),
            PATH.mbit,
            PATH.delay_ms,
            1e3 * self.round_trip_s,
        )?;
        for series in &self.series {
            let of = |share| quantile(&series.took_s, share);
            writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {:.2} |",
                series.way,
                series.congestion,
                series.bulk,
                ms(of(0.5)),
                ms(of(0.99)),
                ms(of(1.0)),
                series.bulk_bytes_per_s / 1e6,
            )?;
        }
        self.write_slower(page)
    }
}

impl Keystrokes {
    /// Where the pair is slower than direct connections.
    fn write_slower(&self, page: &mut String) -> anyhow::Result<()> {
        let is_pair = |series: &&Series| series.way == "pair now";
        let slower = self.series.iter().filter(is_pair).filter_map(|pair| {
            let Series {
                congestion, bulk, ..
            } = pair;
            let direct = self.find("direct", congestion, bulk)?;
            let [pair, direct] = [pair, direct].map(|series| quantile(&series.took_s, 0.99));
            let line = || {
                let (pair, direct) = (ms(pair), ms(direct));
                format!("- {congestion}, download of {bulk}: {pair} and {direct} ms")
            };
            (pair > direct).then(line)
        });
        let slower: Vec<String> = slower.collect();
        if !slower.is_empty() {
            writeln!(
                page,
                "\nThe pair is slower than direct connections in these rows (p99 of both):\n\n{}",
                slower.join("\n")
            )?;
        }
        Ok(())
    }

    fn find(&self, way: &str, congestion: &str, bulk: &str) -> Option<&Series> {
        self.series.iter().find(|series| {
            series.way == way && series.congestion == congestion && series.bulk == bulk
        })
    }

    /// Types by a way, and adds the times to those of the runs before.
    fn add(
        &mut self,
        over: &OverLink,
        [way, congestion, bulk]: [&str; 3],
        address: SocketAddr,
        kind: Option<Kind>,
    ) -> anyhow::Result<()> {
        self.round_trip_s = self.round_trip_s.min(over.checked.round_trip.as_secs_f64());
        let (took_s, bulk_bytes_per_s) = over.client(|| typed(address, kind))?;
        let mut sorted = took_s.clone();
        sorted.sort_by(f64::total_cmp);
        eprintln!(
            "{way}, {congestion}, download of {bulk}: median {} ms, p99 {} ms; {:.2} MB/s",
            ms(quantile(&sorted, 0.5)),
            ms(quantile(&sorted, 0.99)),
            bulk_bytes_per_s / 1e6
        );
        let is_same = |series: &&mut Series| {
            series.way == way && series.congestion == congestion && series.bulk == bulk
        };
        match self.series.iter_mut().find(is_same) {
            Some(series) => series.took_s.extend(took_s),
            None => self.series.push(Series {
                way: way.to_owned(),
                congestion: congestion.to_owned(),
                bulk: bulk.to_owned(),
                took_s,
                bulk_bytes_per_s,
            }),
        }
        Ok(())
    }
}

/// All keystrokes' times, and the download's rate meanwhile.
fn typed(address: SocketAddr, kind: Option<Kind>) -> anyhow::Result<(Vec<f64>, f64)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let bulk = kind.map(|kind| {
            let is_over = &is_over;
            scope.spawn(move || download(address, kind, is_over))
        });
        if bulk.is_some() {
            thread::sleep(BULK_LEAD);
        }
        let typists: Vec<_> = (0..TYPISTS)
            .map(|seed| scope.spawn(move || type_alone(address, seed)))
            .collect();
        let mut took = Vec::new();
        let mut result = Ok(());
        for typist in typists {
            match typist.join().expect("typists do not panic") {
                Ok(of_typist) => took.extend(of_typist),
                Err(error) => result = Err(error),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let rate = bulk.map(|bulk| bulk.join().expect("clients do not panic"));
        result?;
        Ok((took, rate.transpose()?.unwrap_or(0.0)))
    })
}

fn type_alone(address: SocketAddr, seed: u64) -> anyhow::Result<Vec<f64>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(&Request::Echo.to_bytes())?;
    let mut took = Vec::new();
    for _ in 0..KEYSTROKES {
        // Typists are not in step with each other, nor with anything of the gateways.
        thread::sleep(INTERVAL.mul_f64(0.5 + random.f64()));
        let mut keystroke = [0; KEYSTROKE_BYTES];
        random.fill(&mut keystroke);
        let began = Instant::now();
        stream.write_all(&keystroke)?;
        let mut echo = [0; KEYSTROKE_BYTES];
        stream.read_exact(&mut echo).context("no echo")?;
        took.push(began.elapsed().as_secs_f64());
        ensure!(echo == keystroke, "the echo differs");
    }
    Ok(took)
}

/// Downloads until it is over, and compares; gives the bytes a second after the lead.
fn download(address: SocketAddr, kind: Kind, is_over: &AtomicBool) -> anyhow::Result<f64> {
    let seeded = Seeded {
        kind,
        seed: 1,
        bytes: u64::MAX,
    };
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&Request::Seeded(seeded).to_bytes())?;
    let mut pieces = seeded.pieces();
    let (began, mut bytes) = (Instant::now(), 0);
    let mut came = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let piece = pieces.next().context("no more data")?;
        came.resize(piece.len(), 0);
        stream.read_exact(&mut came)?;
        ensure!(came == piece, "a download differs");
        if began.elapsed() >= BULK_LEAD {
            bytes += piece.len();
        }
    }
    let counted = began.elapsed().saturating_sub(BULK_LEAD);
    Ok(bytes as f64 / counted.as_secs_f64())
}
