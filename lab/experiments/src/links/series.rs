//! A series of releases predicted by real gateways, beside the same by the engines in virtual time.
//!
//! Each known byte is predicted, predicted too late, or never offered: the three add up, on both sides. Differences are
//! explained, not bounded.

use std::{fmt::Write, sync::Arc, thread, time::Duration};

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    client::{Client, Path},
    origin::{Content, Request},
    table::seconds,
};
use crate::{
    chapters::Figures,
    corpus,
    machine::cores,
    over_link::OverLink,
    predictions::trial::{Outcome, Trial, USUAL},
};
use refrain_proto::Mode;

const RELEASES: usize = 40;
/// The slowest leaves the processors time.
const MBIT: [u32; 3] = [5, 100, 1000];

/// Round trips of 10 and 50 ms.
const DELAYS_MS: [u64; 2] = [5, 25];

const MODES: [(&str, Mode); 2] = [("receiver", Mode::Receiver), ("auto", Mode::Auto)];

/// A difference between both that is explained, in points of the application's bytes.
const EXPLAINED: f64 = 0.5;

/// A status shows the store as it was at most two seconds ago.
const STORE_SHOWN: Duration = Duration::from_secs(4);

#[derive(Serialize, Deserialize)]
pub(super) struct ReleaseSeries {
    bytes: u64,
    cells: Vec<Cell>,
}

/// A mode on a link.
#[derive(Serialize, Deserialize)]
struct Cell {
    mode: String,
    path: Path,
    gateways: Predicted,
    /// The share of all cores that gateways, client, origin and link took.
    busy: f64,
    /// The far end's, after the last release.
    zstd_level: i32,
    engines: Predicted,
}

/// Bytes of the series.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Predicted {
    /// Cut into chunks, and among them those in known chunks.
    learnt: u64,
    known: u64,
    confirmed: u64,
    /// Right, but the bytes themselves came first.
    late: u64,
    offered: u64,
    wasted: u64,
    /// Of the link, to the receiver and back.
    down: u64,
    up: u64,
    seconds: f64,
}

impl Predicted {
    fn never_offered(&self) -> i64 {
        self.known.cast_signed() - (self.confirmed + self.late).cast_signed()
    }

    /// Fails where offers are left that were neither confirmed nor late nor wasted.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.offered == self.confirmed + self.late + self.wasted,
            "{} bytes were offered, {} of them predicted, {} late and {} wasted",
            self.offered,
            self.confirmed,
            self.late,
            self.wasted
        );
        Ok(())
    }

    fn of_engines(outcome: &Outcome) -> Self {
        Self {
            learnt: outcome.learnt_bytes,
            known: outcome.known_bytes,
            confirmed: outcome.confirmed_bytes,
            late: outcome.overtaken_bytes,
            offered: outcome.offered_bytes,
            wasted: outcome.wasted_bytes,
            down: outcome.down_bytes,
            up: outcome.up_bytes,
            seconds: outcome.took_s,
        }
    }
}

impl Figures<Setup> for ReleaseSeries {
    const NAME: &'static str = "series";
    const TITLE: &'static str = "Forty releases, predicted";

    fn measure(setup: &Setup) -> anyhow::Result<Self> {
        let objects = corpus::linux_releases(&setup.data, RELEASES)?.objects;
        let content = Arc::new(Content::of(objects));
        let mut cells = Vec::new();
        for (name, mode) in MODES {
            for mbit in MBIT {
                for delay_ms in DELAYS_MS {
                    let path = Path { mbit, delay_ms };
                    let trial = Trial {
                        mode,
                        mbit,
                        round_trip_ms: 2 * delay_ms as u32,
                        ..USUAL
                    };
                    let engines = Predicted::of_engines(&trial.run(&content.objects)?);
                    let cell = through_gateways(setup, name, path, &content, engines)?;
                    cell.gateways.check()?;
                    cell.engines.check()?;
                    eprintln!(
                        "{name}, {mbit} Mbit/s, {delay_ms} ms: {} bytes predicted in {:.1} s, engines {}",
                        cell.gateways.confirmed, cell.gateways.seconds, cell.engines.confirmed
                    );
                    cells.push(cell);
                }
            }
        }
        let bytes = content.objects.iter().map(|object| object.len() as u64);
        Ok(Self {
            bytes: bytes.sum(),
            cells,
        })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "The tars of Linux 2.0.1 to 2.0.{RELEASES}, {:.0} MB in all, are fetched one after the other. They go through\n\
             one pair whose near end has a store. Below each row of the gateways is a row of both ends' engines.\n\
             These run over the same link in virtual time, with a history in memory. Their computing takes no time.\n\
             Shares are of all bytes. *Known*: bytes in chunks that the near end had when they came. Each known byte\n\
             is *predicted*, *late* or *never offered*. *Late*: predicted, but the byte came first. *Never offered*:\n\
             its predecessor was found too late. *Wasted*: offered, but something else came. In each row, the offered\n\
             bytes are exactly the predicted, late and wasted bytes together.\n\n\
             | mode | Mbit/s | round trip, ms | | known | predicted | late | never offered | wasted | link, down | \
             link, up | s | cores busy |\n\
             |---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
            self.bytes as f64 / 1e6
        )?;
        for cell in &self.cells {
            let Path { mbit, delay_ms } = cell.path;
            write!(page, "| {} | {mbit} | {} ", cell.mode, 2 * delay_ms)?;
            self.row(page, "gateways", &cell.gateways)?;
            writeln!(page, " {:.0} % |", 100.0 * cell.busy)?;
            write!(page, "| | | ")?;
            self.row(page, "engines", &cell.engines)?;
            writeln!(page, " |")?;
        }
        writeln!(
            page,
            "\nThe work of the engines takes no time. The work of the gateways and of the store takes time. So\n\
             offers come late, or not at all, where bytes come faster than they are looked up. zstd's level falls\n\
             where cores are busy. The cores' time includes the lab's own work before and after a transfer. So it\n\
             may exceed the seconds of the transfer.\n\n\
             Differences of more than {EXPLAINED} points:\n"
        )?;
        for cell in &self.cells {
            self.explain(page, cell)?;
        }
        Ok(())
    }
}

impl ReleaseSeries {
    fn share(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.bytes as f64
    }

    /// By how much `a` is more than `b`.
    fn points(&self, a: u64, b: u64) -> f64 {
        self.share(a) - self.share(b)
    }

    fn row(&self, page: &mut String, name: &str, predicted: &Predicted) -> std::fmt::Result {
        let never = 100.0 * predicted.never_offered() as f64 / self.bytes as f64;
        write!(page, "| {name} | {:.2} % ", self.share(predicted.known))?;
        write!(page, "| {:.2} % ", self.share(predicted.confirmed))?;
        write!(
            page,
            "| {:.2} % | {never:.2} % ",
            self.share(predicted.late)
        )?;
        write!(page, "| {:.2} % ", self.share(predicted.wasted))?;
        write!(page, "| {:.2} % ", self.share(predicted.down))?;
        write!(page, "| {:.2} % ", self.share(predicted.up))?;
        write!(page, "| {} |", seconds(predicted.seconds))
    }

    /// Says what the bytes are that gateways predict less, or send more, and why.
    fn explain(&self, page: &mut String, cell: &Cell) -> std::fmt::Result {
        let (ours, theirs) = (&cell.gateways, &cell.engines);
        let less = self.points(theirs.confirmed, ours.confirmed);
        let more = self.points(ours.down, theirs.down);
        if less.abs() <= EXPLAINED && more.abs() <= EXPLAINED {
            return Ok(());
        }
        let never = |of: &Predicted| 100.0 * of.never_offered() as f64 / self.bytes as f64;
        let speed = |of: &Predicted| self.bytes as f64 / 1e6 / of.seconds;
        writeln!(
            page,
            "- {}, {} Mbit/s, {} ms: {less:+.2} points less predicted ({:+.2} not known, {:+.2} late, {:+.2} never offered). \
             {more:+.2} points more on the link, where zstd's level was {} at the end. {:.0} MB/s, engines {:.0}.",
            cell.mode,
            cell.path.mbit,
            2 * cell.path.delay_ms,
            self.points(theirs.known, ours.known),
            self.points(ours.late, theirs.late),
            never(ours) - never(theirs),
            cell.zstd_level,
            speed(ours),
            speed(theirs),
        )
    }
}

/// All releases through a new pair with an empty store.
fn through_gateways(
    setup: &Setup,
    mode: &str,
    path: Path,
    content: &Arc<Content>,
    engines: Predicted,
) -> anyhow::Result<Cell> {
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("store").display().to_string();
    let over = OverLink::start(&path.config(), content.served())?;
    let options = ["--mode", mode];
    let near = [&options[..], &["--store", &store]].concat();
    let pair = over.pair(&setup.builds[0].refrain, &near, &options)?;
    let mut client = Client::default();
    let (mut took, mut cpu_s, mut zstd_level) = (0.0, 0.0, 0);
    for (index, object) in content.objects.iter().enumerate() {
        let transfer = client.through(&over, &pair, Request::Object(index), object)?;
        took += transfer.fetched.seconds;
        cpu_s += transfer.near_cpu_s + transfer.far_cpu_s + transfer.lab_cpu_s;
        zstd_level = transfer.zstd_level;
    }
    thread::sleep(STORE_SHOWN);
    let (status, far) = (pair.near_status()?, pair.far()?);
    let store = status.store.as_ref().expect("it has one");
    let received = &status.peers[0].received;
    let gateways = Predicted {
        learnt: store.received_bytes,
        known: store.received_bytes - store.stored_bytes,
        confirmed: received.prediction_saved_bytes,
        late: received.predictions.overtaken_bytes,
        offered: received.predictions.offered_bytes,
        wasted: received.predictions.wasted_bytes,
        down: received.link_bytes,
        up: far.received.link_bytes,
        seconds: took,
    };
    Ok(Cell {
        mode: mode.to_owned(),
        path,
        gateways,
        busy: cpu_s / took / f64::from(cores()),
        zstd_level,
        engines,
    })
}
