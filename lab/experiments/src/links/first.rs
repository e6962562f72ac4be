//! First transfers of successive releases, beside `zstd --patch-from` with both files at hand.

use std::{
    fmt::Write,
    io::Read,
    net::TcpStream,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{
    Setup,
    client::{Client, Path},
    origin::{Content, Request, write_files},
    table::seconds,
};
use crate::{
    chapters::Figures,
    corpus,
    median::median,
    over_link::OverLink,
    targets::{Target, at_most},
};
use std::io::Write as _;

/// Linux 2.0.30 to 2.0.35, of the series from 2.0.1.
const FIRST: usize = 29;
const RELEASES: usize = 6;

const PATH: Path = Path {
    mbit: 20,
    delay_ms: 50,
};

/// Of zstd's seconds and bytes, at most.
const OF_SECONDS: f64 = 1.12;
const OF_BYTES: f64 = 1.05;

#[derive(Serialize, Deserialize)]
pub(super) struct FirstTransfers {
    plain_bytes: Vec<u64>,
    zstd: Vec<Series>,
    /// Of each build, run by run.
    builds: Vec<(String, Vec<Series>)>,
}

/// All releases, one after the other.
#[derive(Serialize, Deserialize)]
struct Series {
    seconds: Vec<f64>,
    /// On the TCP connections, both ways.
    bytes: Vec<u64>,
}

impl Series {
    fn seconds(&self) -> f64 {
        self.seconds.iter().sum()
    }

    fn bytes(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64
    }
}

impl Figures<Setup> for FirstTransfers {
    const NAME: &'static str = "first";
    const TITLE: &'static str = "First transfers of successive releases";

    fn measure(setup: &Setup) -> anyhow::Result<Self> {
        let mut objects = corpus::linux_releases(&setup.data, FIRST + RELEASES)?.objects;
        let objects = objects.split_off(FIRST);
        let folder = tempfile::tempdir()?;
        let content = Arc::new(Content {
            files: write_files(&objects, &folder)?,
            ..Content::of(objects)
        });
        let mut figures = Self {
            plain_bytes: content
                .objects
                .iter()
                .map(|object| object.len() as u64)
                .collect(),
            zstd: Vec::new(),
            builds: setup
                .builds
                .iter()
                .map(|build| (build.name.to_owned(), Vec::new()))
                .collect(),
        };
        for _ in 0..setup.runs {
            let over = OverLink::start(&PATH.config(), content.served())?;
            let address = over.direct(CONGESTION)?;
            figures
                .zstd
                .push(over.client(|| patches(address, &content))?);
            for (build, (_, runs)) in setup.builds.iter().zip(&mut figures.builds) {
                runs.push(pair(&build.refrain, &content)?);
            }
        }
        Ok(figures)
    }

    fn targets(&self) -> Vec<Target> {
        let ratio = |of, bound| {
            let ratio = self.over_zstd(of);
            Some(at_most(ratio, bound, format!("{ratio:.3}")))
        };
        vec![
            Target {
                what: "six releases for the first time, 20 Mbit/s, 50 ms: seconds over `zstd -3 --patch-from`",
                asked: "1.12 at most",
                measured: ratio(Series::seconds, OF_SECONDS),
            },
            Target {
                what: "the same: link bytes over its bytes",
                asked: "1.05 at most",
                measured: ratio(Series::bytes, OF_BYTES),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        write!(
            page,
            "The tars of Linux 2.0.30 to 2.0.35 are fetched one after the other at {} Mbit/s and {} ms. They go through\n\
             one pair. It is compared with `zstd -3 --patch-from` of the release before, piped into a TCP connection\n\
             ({CONGESTION}) for each release. The other end also has the release before, and unpacks. The first\n\
             release is packed with `zstd -3` only. Bytes are those of the TCP connections in both directions.\n\n\
             | | MB | zstd, s | zstd, kB |",
            PATH.mbit, PATH.delay_ms
        )?;
        for (name, _) in &self.builds {
            let name = if name == "now" { "pair" } else { name };
            write!(page, " {name}, s | {name}, kB |")?;
        }
        writeln!(
            page,
            "\n|---|--:|--:|--:|{}",
            "--:|--:|".repeat(self.builds.len())
        )?;
        let ways = || {
            [&self.zstd]
                .into_iter()
                .chain(self.builds.iter().map(|(_, runs)| runs))
        };
        for (index, bytes) in self.plain_bytes.iter().enumerate() {
            write!(
                page,
                "| 2.0.{} | {:.1}",
                FIRST + 1 + index,
                *bytes as f64 / 1e6
            )?;
            for runs in ways() {
                write!(
                    page,
                    " | {} | {:.0}",
                    seconds(median(runs.iter().map(|run| run.seconds[index]))),
                    median(runs.iter().map(|run| run.bytes[index] as f64)) / 1e3
                )?;
            }
            writeln!(page, " |")?;
        }
        let sum = self.plain_bytes.iter().sum::<u64>() as f64 / 1e6;
        write!(page, "| all | {sum:.1}")?;
        for runs in ways() {
            let (took, bytes) = (
                median(runs.iter().map(Series::seconds)),
                median(runs.iter().map(Series::bytes)),
            );
            write!(page, " | {} | {:.0}", seconds(took), bytes / 1e3)?;
        }
        writeln!(
            page,
            " |\n\nRuns: {}. The pair over zstd: seconds {:.3}, bytes {:.3}.",
            self.zstd.len(),
            self.over_zstd(Series::seconds),
            self.over_zstd(Series::bytes)
        )?;
        let bytes =
            |runs: &[Series], index: usize| median(runs.iter().map(|run| run.bytes[index] as f64));
        let larger: Vec<String> = (0..self.plain_bytes.len())
            .filter(|&index| bytes(&self.builds[0].1, index) > bytes(&self.zstd, index))
            .map(|index| format!("2.0.{}", FIRST + 1 + index))
            .collect();
        if !larger.is_empty() {
            let larger = larger.join(", ");
            writeln!(page, "The pair sends more bytes than zstd for {larger}.")?;
        }
        Ok(())
    }
}

impl FirstTransfers {
    /// All releases through the pair, over all by zstd.
    fn over_zstd(&self, of: fn(&Series) -> f64) -> f64 {
        let all = |runs: &[Series]| median(runs.iter().map(of));
        all(&self.builds[0].1) / all(&self.zstd)
    }
}

/// Of zstd's connections: that of the lanes.
const CONGESTION: &str = "bbr";

/// All releases as patches, each on a connection of its own.
fn patches(address: std::net::SocketAddr, content: &Content) -> anyhow::Result<Series> {
    let mut series = Series {
        seconds: Vec::new(),
        bytes: Vec::new(),
    };
    for (index, object) in content.objects.iter().enumerate() {
        let before = content.patch_bytes.load(Ordering::Relaxed);
        let request = Request::Patch(index).to_bytes();
        let mut unpacked = Vec::with_capacity(object.len());
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&request)?;
        let mut zstd = content
            .unpatch(index, OwnedFd::from(stream))
            .spawn()
            .context("cannot run zstd")?;
        zstd.stdout
            .take()
            .context("no pipe")?
            .read_to_end(&mut unpacked)?;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(
            zstd.wait()?.success() && unpacked == *object,
            "zstd: release {index} differs"
        );
        let bytes = content.patch_bytes.load(Ordering::Relaxed) - before + request.len() as u64;
        eprintln!("zstd, release {index}: {seconds:.3} s, {bytes} bytes");
        series.seconds.push(seconds);
        series.bytes.push(bytes);
    }
    Ok(series)
}

/// All releases through a new pair.
fn pair(refrain: &std::path::Path, content: &Arc<Content>) -> anyhow::Result<Series> {
    let over = OverLink::start(&PATH.config(), content.served())?;
    let pair = over.pair(refrain, &[], &[])?;
    let mut client = Client::default();
    let mut series = Series {
        seconds: Vec::new(),
        bytes: Vec::new(),
    };
    for (index, object) in content.objects.iter().enumerate() {
        let transfer = client.through(&over, &pair, Request::Object(index), object)?;
        let bytes = transfer.link_bytes + transfer.link_bytes_back;
        eprintln!(
            "pair, release {index}: {:.3} s, {bytes} bytes, zstd {}, far CPU {:.3} s",
            transfer.fetched.seconds, transfer.zstd_level, transfer.far_cpu_s
        );
        series.seconds.push(transfer.fetched.seconds);
        series.bytes.push(bytes);
    }
    Ok(series)
}
