//! What flows leave each other.

use std::{
    fmt::Write,
    io::{Read, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use refrain_link::End;
use serde::{Deserialize, Serialize};

use super::{
    Build, Setup,
    client::{Client, Path},
    origin::{Content, Request},
    table::{PAUSE, seconds},
};
use crate::{
    chapters::Figures,
    corpus,
    median::median,
    over_link::OverLink,
    seeded::Seeded,
    targets::{Target, at_least, at_most},
};

/// Connections that were fast and stay open, and what each fetched: the same, so that the link carries it once.
const IDLE: usize = 1000;
const IDLE_BYTES: u64 = 1 << 20;
const IDLE_PATH: Path = Path {
    mbit: 1000,
    delay_ms: 25,
};
/// At a time: as many as a client would open at once, and far fewer than the origin's queue of connections.
const AT_A_TIME: usize = 50;
/// What counts as "as fast as before": the spread of repeated transfers.
const AS_FAST: f64 = 1.1;
const TARS: usize = 5;

/// Connections whose clients never read.
const UNREAD: usize = 900;
const UNREAD_PATH: Path = Path {
    mbit: 100,
    delay_ms: 25,
};
const UNREAD_SHARE: f64 = 0.3;
/// What the flow beside them fetches.
const BESIDE_BYTES: u64 = 20_000_000;
/// They stand still when the link carries less than this share of its rate.
const STILL: f64 = 0.05;

/// One flow alone, on lanes that have carried one before.
const ALONE_PATH: Path = Path {
    mbit: 100,
    delay_ms: 50,
};
const ALONE_BYTES: u64 = 20_000_000;
/// The round trips after its first byte in which it is to have this share of the link.
const ALONE_ROUND_TRIPS: f64 = 4.0;
const ALONE_SHARE: f64 = 0.9;

/// Flows at once, each with other noise, and how long their bytes are counted after the lead.
const SHARERS: usize = 1000;
const SHARERS_PATH: Path = Path {
    mbit: 200,
    delay_ms: 25,
};
const SHARERS_LEAD: Duration = Duration::from_secs(5);
const SHARERS_LAST: Duration = Duration::from_secs(20);
const SHARERS_RATIO: f64 = 0.5;

/// What TCP leaves of a packet of 1500 bytes.
const PAYLOAD: f64 = 1448.0 / 1500.0;

#[derive(Serialize, Deserialize)]
pub(super) struct Fairness {
    /// Of each build, run by run.
    builds: Vec<(String, Vec<Run>)>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Run {
    /// Seconds of a repeated tar before and after the idle connections; medians.
    tar_before_s: f64,
    tar_after_s: f64,
    /// The share of the link that a flow has beside those that never read, and without them.
    unread_share: f64,
    free_share: f64,
    /// The share that one flow has in the first round trips after its first byte: on new lanes, on lanes in use, and by
    /// a direct connection.
    alone_new: f64,
    alone_again: f64,
    alone_direct: f64,
    /// The fewest and the most bytes that one of many flows got, and all of them.
    fewest: u64,
    most: u64,
    all: u64,
}

impl Figures<Setup> for Fairness {
    const NAME: &'static str = "fairness";
    const TITLE: &'static str = "Many flows, and one";

    fn measure(setup: &Setup) -> anyhow::Result<Self> {
        let tar = corpus::linux_releases(&setup.data, 1)?.objects;
        let content = Arc::new(Content::of(tar));
        let mut builds: Vec<_> = setup
            .builds
            .iter()
            .map(|build| (build.name.to_owned(), Vec::new()))
            .collect();
        for _ in 0..setup.runs {
            for (build, (_, runs)) in setup.builds.iter().zip(&mut builds) {
                let run = run(build, &content)?;
                eprintln!("fairness, {}: {}", build.name, serde_json::to_string(&run)?);
                runs.push(run);
            }
        }
        Ok(Self { builds })
    }

    fn targets(&self) -> Vec<Target> {
        let ratio = self.of(0, Run::after_idle);
        let share = |figure, bound| {
            let share = self.of(0, figure);
            Some(at_least(share, bound, format!("{share:.2}")))
        };
        vec![
            Target {
                what: "a repeated tar after 1,000 connections that stay open idle: seconds over those before",
                asked: "1.1 at most",
                measured: Some(at_most(ratio, AS_FAST, format!("{ratio:.2}"))),
            },
            Target {
                what: "a flow next to 900 that never read: its share of the link",
                asked: "0.3 at least",
                measured: share(|run| run.unread_share, UNREAD_SHARE),
            },
            Target {
                what: "one flow on lanes in use: its share of the link in four round trips from its first byte",
                asked: "0.9 at least",
                measured: share(|run| run.alone_again, ALONE_SHARE),
            },
            Target {
                what: "1,000 flows at once: the slowest over the fastest",
                asked: "0.5 at least",
                measured: share(Run::evenness, SHARERS_RATIO),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        write!(page, "| |")?;
        for (name, _) in &self.builds {
            write!(page, " {} |", if name == "now" { "pair" } else { name })?;
        }
        writeln!(page, "\n|---|{}", "--:|".repeat(self.builds.len()))?;
        self.row(page, "a repeated tar, s", |run| run.tar_before_s)?;
        self.row(
            page,
            &format!("after {IDLE} connections that fetched 1 MiB each and stay open, s"),
            |run| run.tar_after_s,
        )?;
        self.row(page, "the ratio of the two", Run::after_idle)?;
        self.row(page, "one flow of noise: share of the link", |run| {
            run.free_share
        })?;
        self.row(page, &format!("next to {UNREAD} that never read"), |run| {
            run.unread_share
        })?;
        self.row(
            page,
            "one flow's share in four round trips from its first byte, new lanes",
            |run| run.alone_new,
        )?;
        self.row(page, "the same, lanes in use", |run| run.alone_again)?;
        self.row(page, "the same, a direct connection (BBR)", |run| {
            run.alone_direct
        })?;
        self.row(
            page,
            &format!("{SHARERS} flows of noise: the slowest over the fastest"),
            Run::evenness,
        )?;
        self.row(page, "the same: all flows' share of the link", |run| {
            run.all as f64 / payload_bytes(SHARERS_PATH, SHARERS_LAST.as_secs_f64())
        })?;
        writeln!(
            page,
            "\nLinks: {} for the tar; {} with clients that never read; {} for one flow; {} for {SHARERS} flows,\n\
             counted for {} s. Shares are of the link's rate without headers. The flows of clients that never\n\
             read have stopped before the flow next to them starts.",
            name(IDLE_PATH),
            name(UNREAD_PATH),
            name(ALONE_PATH),
            name(SHARERS_PATH),
            SHARERS_LAST.as_secs()
        )?;
        Ok(())
    }
}

impl Fairness {
    fn of(&self, build: usize, figure: fn(&Run) -> f64) -> f64 {
        median(self.builds[build].1.iter().map(figure))
    }

    fn row(&self, page: &mut String, what: &str, figure: fn(&Run) -> f64) -> anyhow::Result<()> {
        write!(page, "| {what} |")?;
        for build in 0..self.builds.len() {
            write!(page, " {} |", seconds(self.of(build, figure)))?;
        }
        writeln!(page)?;
        Ok(())
    }
}

impl Run {
    fn after_idle(&self) -> f64 {
        self.tar_after_s / self.tar_before_s
    }

    fn evenness(&self) -> f64 {
        self.fewest as f64 / self.most as f64
    }
}

fn name(path: Path) -> String {
    format!("{} Mbit/s and {} ms", path.mbit, path.delay_ms)
}

fn payload_bytes(path: Path, seconds: f64) -> f64 {
    seconds * 125e3 * f64::from(path.mbit) * PAYLOAD
}

fn run(build: &Build, content: &Arc<Content>) -> anyhow::Result<Run> {
    let (tar_before_s, tar_after_s) = after_idle(build, content)?;
    let (free_share, unread_share) = beside_unread(build, content)?;
    let [alone_new, alone_again, alone_direct] = alone(build, content)?;
    let (fewest, most, all) = sharers(build, content)?;
    Ok(Run {
        tar_before_s,
        tar_after_s,
        unread_share,
        free_share,
        alone_new,
        alone_again,
        alone_direct,
        fewest,
        most,
        all,
    })
}

fn after_idle(build: &Build, content: &Arc<Content>) -> anyhow::Result<(f64, f64)> {
    let over = OverLink::start(&IDLE_PATH.config(), content.served())?;
    let pair = over.pair(&build.refrain, &[], &[])?;
    let mut client = Client::default();
    let mut repeat = || {
        let mut took = Vec::new();
        for _ in 0..TARS {
            thread::sleep(PAUSE);
            let transfer = client.through(&over, &pair, Request::Object(0), &content.objects[0])?;
            took.push(transfer.fetched.seconds);
        }
        anyhow::Ok(median(took))
    };
    repeat()?;
    let before = repeat()?;
    let idle = over.client(|| open_idle(pair.address))?;
    let flows = pair.near()?.flows_open;
    ensure!(flows >= IDLE, "only {flows} of {IDLE} idle flows are open");
    let after = repeat()?;
    drop(idle);
    Ok((before, after))
}

/// Connections that have read all of an object and stay open.
fn open_idle(address: SocketAddr) -> anyhow::Result<Vec<TcpStream>> {
    let seeded = Seeded::noise(1, IDLE_BYTES);
    let fetch = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&Request::AndStay(seeded).to_bytes())?;
        let mut pieces = seeded.pieces();
        let mut came = Vec::new();
        while let Some(piece) = pieces.next() {
            came.resize(piece.len(), 0);
            stream.read_exact(&mut came)?;
            ensure!(came == piece, "an object differs");
        }
        anyhow::Ok(stream)
    };
    let mut open = Vec::new();
    while open.len() < IDLE {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(fetch)).collect();
            for client in clients {
                open.push(client.join().expect("clients do not panic")?);
            }
            anyhow::Ok(())
        })?;
    }
    Ok(open)
}

/// A flow's share of the link, alone and beside those that never read.
fn beside_unread(build: &Build, content: &Arc<Content>) -> anyhow::Result<(f64, f64)> {
    let over = OverLink::start(&UNREAD_PATH.config(), content.served())?;
    let pair = over.pair(&build.refrain, &[], &[])?;
    let mut client = Client::default();
    let mut share = |seed| {
        let seeded = Seeded::noise(seed, BESIDE_BYTES);
        let mut expected = Vec::new();
        seeded.write_to(&mut expected)?;
        let transfer = client.through(&over, &pair, Request::Seeded(seeded), &expected)?;
        let bytes = payload_bytes(UNREAD_PATH, transfer.fetched.seconds);
        anyhow::Ok(BESIDE_BYTES as f64 / bytes)
    };
    share(2)?;
    let free = share(3)?;
    let unread = over.client(|| {
        let open = |_| {
            let mut stream = TcpStream::connect(pair.address)?;
            // The link carries their bytes once.
            let request = Request::Seeded(Seeded::noise(4, u64::MAX));
            stream.write_all(&request.to_bytes())?;
            anyhow::Ok(stream)
        };
        (0..UNREAD).map(open).collect::<Result<Vec<_>, _>>()
    })?;
    wait_until_still(&over)?;
    let flows = pair.near()?.flows_open;
    ensure!(flows >= UNREAD, "only {flows} of {UNREAD} flows are open");
    let beside = share(5)?;
    drop(unread);
    Ok((free, beside))
}

fn wait_until_still(over: &OverLink) -> anyhow::Result<()> {
    let carried = || over.link().counts(End::Far).bytes();
    let still = STILL * payload_bytes(UNREAD_PATH, PAUSE.as_secs_f64());
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let before = carried();
        thread::sleep(PAUSE);
        if ((carried() - before) as f64) < still {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "clients that never read still get bytes after 120 s"
        );
    }
}

/// The share of one flow in the first round trips after its first byte: new lanes, lanes in use, directly.
fn alone(build: &Build, content: &Arc<Content>) -> anyhow::Result<[f64; 3]> {
    let over = OverLink::start(&ALONE_PATH.config(), content.served())?;
    let pair = over.pair(&build.refrain, &[], &[])?;
    let direct = over.direct("bbr")?;
    let share = |address, seed| {
        thread::sleep(PAUSE);
        over.client(|| share_at_first(address, Seeded::noise(seed, ALONE_BYTES)))
    };
    Ok([
        share(pair.address, 6)?,
        share(pair.address, 7)?,
        share(direct, 8)?,
    ])
}

fn share_at_first(address: SocketAddr, seeded: Seeded) -> anyhow::Result<f64> {
    let mut expected = Vec::new();
    seeded.write_to(&mut expected)?;
    let mut came = vec![0; expected.len()];
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&Request::Seeded(seeded).to_bytes())?;
    let (mut filled, mut first, mut counted) = (0, None, None);
    while filled < came.len() {
        let read = stream.read(&mut came[filled..])?;
        ensure!(read > 0, "an object is truncated");
        let first = *first.get_or_insert_with(Instant::now);
        let over = first.elapsed().as_secs_f64();
        if over >= ALONE_ROUND_TRIPS * ALONE_PATH.round_trip_s() && counted.is_none() {
            counted = Some(filled as f64 / payload_bytes(ALONE_PATH, over));
        }
        filled += read;
    }
    ensure!(came == expected, "an object differs");
    counted.context("the transfer took less than four round trips")
}

/// The fewest and the most bytes that one of many flows got, and those of all.
fn sharers(build: &Build, content: &Arc<Content>) -> anyhow::Result<(u64, u64, u64)> {
    let over = OverLink::start(&SHARERS_PATH.config(), content.served())?;
    let pair = over.pair(&build.refrain, &[], &[])?;
    let is_over = AtomicBool::new(false);
    let bytes: Vec<AtomicU64> = (0..SHARERS).map(|_| AtomicU64::new(0)).collect();
    let counted: Vec<u64> = over.client(|| {
        thread::scope(|scope| {
            let clients: Vec<_> = bytes
                .iter()
                .zip(1000..)
                .map(|(bytes, seed)| {
                    let is_over = &is_over;
                    scope.spawn(move || read_until(pair.address, seed, bytes, is_over))
                })
                .collect();
            let now = || {
                bytes
                    .iter()
                    .map(|bytes| bytes.load(Ordering::Relaxed))
                    .collect::<Vec<_>>()
            };
            thread::sleep(SHARERS_LEAD);
            let before = now();
            thread::sleep(SHARERS_LAST);
            let after = now();
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().expect("clients do not panic")?;
            }
            let counted = after
                .into_iter()
                .zip(before)
                .map(|(after, before)| after - before);
            Ok(counted.collect())
        })
    })?;
    let fewest = counted.iter().min().copied().unwrap_or_default();
    let most = counted.iter().max().copied().unwrap_or_default();
    Ok((fewest, most, counted.iter().sum()))
}

/// Reads and compares until it is over.
fn read_until(
    address: SocketAddr,
    seed: u64,
    bytes: &AtomicU64,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let seeded = Seeded::noise(seed, u64::MAX);
    let mut stream = TcpStream::connect(address)?;
    // Clients whose flow gets nothing end too.
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(&Request::Seeded(seeded).to_bytes())?;
    let mut pieces = seeded.pieces();
    let mut came = Vec::new();
    while let Some(piece) = pieces.next() {
        came.resize(piece.len(), 0);
        let mut filled = 0;
        while filled < piece.len() {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            match stream.read(&mut came[filled..]) {
                Ok(0) => anyhow::bail!("a flow is truncated"),
                Ok(read) => {
                    filled += read;
                    bytes.fetch_add(read as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(came == piece, "a flow differs");
    }
    Ok(())
}
