//! Captures that are made here: a large one with real clients and servers, and two that no network would carry.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use refrain_capture::{
    Direction, Flow, FlowNumber, Fragments, Layer, Limits, Sink, Streams, Time, read_packets,
};
use refrain_plot::Words;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Setup;
use crate::{
    chapters::{Figures, Plot},
    median::median,
    processes::ok,
    targets::{Target, at_least, at_most},
};

const SCRIPT: &str = include_str!("made.sh");

const READINGS: usize = 3;

/// Of it, the caches of 1 GiB of four clients have their part.
const MEMORY: &str = "20GiB";

/// Columns of the made capture that the page shows.
const SHOWN: [&str; 8] = [
    "zstd",
    "samplebyte-32",
    "samplebyte-1g",
    "endre-dot",
    "middlebox",
    "pack",
    "pack-100mb",
    "refrain",
];

const SYNS: u64 = 1_000_000;
const LONG_FLOW_BYTES: u64 = 10_000_000_000;

/// Bytes of a segment of the made packets.
const SEGMENT: usize = 32_768;

#[derive(Serialize, Deserialize)]
pub(super) struct Made {
    file_bytes: u64,
    /// GB of the file per second, in one thread.
    reading: Vec<f64>,
    default: Run,
    all: Run,
    /// A million first packets, and a connection of 10 GB.
    syns: Run,
    long_flow: Run,
}

/// A run of `refrain analyze`.
#[derive(Serialize, Deserialize)]
struct Run {
    seconds: f64,
    packets: u64,
    tcp_flows: u64,
    payload_bytes: u64,
    missed_bytes: u64,
    peak_memory_bytes: u64,
    cpu_seconds: f64,
    /// Name, title and saved percent.
    columns: Vec<(String, String, f64)>,
    cache_sizes: Vec<u64>,
    cache_saved: Vec<u64>,
    recommended_bytes: u64,
    same_pair_bytes: u64,
    other_pair_bytes: u64,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

impl Run {
    fn of(report: &Value) -> Self {
        let numbers = |value: &Value| value.as_array().into_iter().flatten().map(number).collect();
        let columns = report["columns"].as_object().into_iter().flatten();
        let cpu = |column: &Value| column["cpu_seconds"].as_f64().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            seconds: report["seconds"].as_f64().unwrap_or_default(),
            packets: number(&report["packets"]["tcp"]),
            tcp_flows: number(&report["tcp_flows"]),
            payload_bytes: number(&report["payload_bytes"]),
            missed_bytes: number(&report["missed_bytes"]),
            peak_memory_bytes: number(&report["peak_memory_bytes"]),
            cpu_seconds: columns.clone().map(|(_, column)| cpu(column)).sum(),
            columns: columns
                .map(|(name, column)| {
                    let saved = column["saved_percent"].as_f64().unwrap_or_default();
                    (name.clone(), text(&column["title"]), saved)
                })
                .collect(),
            cache_sizes: numbers(&report["cache"]["sizes"]),
            cache_saved: numbers(&report["cache"]["saved_bytes"]),
            recommended_bytes: number(&report["cache"]["recommended_bytes"]),
            same_pair_bytes: number(&report["matches"]["same_pair_bytes"]),
            other_pair_bytes: number(&report["matches"]["other_pair_bytes"]),
        }
    }

    fn mb_per_cpu_second(&self) -> f64 {
        self.payload_bytes as f64 / 1e6 / self.cpu_seconds.max(1e-9)
    }
}

fn analyze(setup: &Setup<'_>, arguments: &[&str]) -> Command {
    let mut command = Command::new(setup.refrain);
    command.args(["analyze", "--json"]).args(arguments);
    command
}

/// A capture that `write` makes, through standard input.
fn through_pipe(
    setup: &Setup<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<Run> {
    let mut child = analyze(setup, &["--columns", "zstd", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = BufWriter::with_capacity(1 << 20, child.stdin.take().context("a pipe")?);
    write(&mut input)?;
    input.flush()?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "`refrain analyze -` failed");
    Ok(Run::of(&serde_json::from_slice(&output.stdout)?))
}

/// Counts nothing but bytes.
#[derive(Default)]
struct Bytes(u64);

impl Sink for Bytes {
    fn opened(&mut self, _: FlowNumber, _: &Flow) {}
    fn round_trip(&mut self, _: FlowNumber, _: Duration) {}
    fn came(&mut self, _: FlowNumber, _: Direction, _: Time, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
    fn missed(&mut self, _: FlowNumber, _: Direction, _: u64) {}
    fn closed(&mut self, _: FlowNumber) {}
}

/// The header of a pcap file of Ethernet frames.
fn begin(out: &mut dyn Write) -> io::Result<()> {
    let fields: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 1 << 18, 1];
    fields
        .iter()
        .try_for_each(|field| out.write_all(&field.to_le_bytes()))
}

/// A packet from one of many clients, or from the server with data.
fn packet(
    out: &mut dyn Write,
    micros: u64,
    client: u32,
    port: u16,
    (from_client, flags): (bool, u8),
    sequence: u32,
    bytes: &[u8],
) -> io::Result<()> {
    let length = 14 + 20 + 20 + bytes.len() as u32;
    for field in [
        (micros / 1_000_000) as u32,
        (micros % 1_000_000) as u32,
        length,
        length,
    ] {
        out.write_all(&field.to_le_bytes())?;
    }
    out.write_all(&[0; 12])?;
    out.write_all(&[8, 0])?;
    let total = (length - 14) as u16;
    let server = u32::from_be_bytes([10, 255, 255, 1]);
    let (source, target) = if from_client {
        (client, server)
    } else {
        (server, client)
    };
    let (from, to) = if from_client { (port, 80) } else { (80, port) };
    let mut head = [0; 40];
    head[0] = 0x45;
    head[2..4].copy_from_slice(&total.to_be_bytes());
    head[8] = 64;
    head[9] = 6;
    head[12..16].copy_from_slice(&source.to_be_bytes());
    head[16..20].copy_from_slice(&target.to_be_bytes());
    head[20..22].copy_from_slice(&from.to_be_bytes());
    head[22..24].copy_from_slice(&to.to_be_bytes());
    head[24..28].copy_from_slice(&sequence.to_be_bytes());
    head[32] = 0x50;
    head[33] = flags;
    out.write_all(&head)?;
    out.write_all(bytes)
}

const SYN: u8 = 2;
const ACK: u8 = 16;

fn syns(out: &mut dyn Write) -> io::Result<()> {
    begin(out)?;
    (0..SYNS).try_for_each(|nth| {
        let client = 0x0a00_0000 + (nth / 1_000) as u32;
        let port = 1024 + (nth % 1_000) as u16;
        packet(out, nth * 10, client, port, (true, SYN), nth as u32, b"")
    })
}

/// Its sequence numbers wrap around twice.
fn long_flow(out: &mut dyn Write) -> io::Result<()> {
    let client = 0x0a00_0001;
    let mut noise = vec![0; 64 * SEGMENT];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    begin(out)?;
    packet(out, 0, client, 40_000, (true, SYN), 0, b"")?;
    packet(out, 1_000, client, 40_000, (false, SYN | ACK), 0, b"")?;
    packet(
        out,
        2_000,
        client,
        40_000,
        (true, ACK),
        1,
        b"GET / HTTP/1.1\r\n\r\n",
    )?;
    let mut sent = 0;
    let mut parts = noise.chunks(SEGMENT).cycle();
    while sent < LONG_FLOW_BYTES {
        let left = usize::try_from(LONG_FLOW_BYTES - sent).unwrap_or(usize::MAX);
        let part = parts.next().unwrap_or_default();
        let part = &part[..part.len().min(left)];
        // 1 Gbit/s.
        let micros = 3_000 + sent / 125;
        packet(
            out,
            micros,
            client,
            40_000,
            (false, ACK),
            (sent as u32).wrapping_add(1),
            part,
        )?;
        sent += part.len() as u64;
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<f64> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let began = Instant::now();
    let mut streams = Streams::new(Limits::default());
    let mut fragments = Fragments::default();
    let mut sink = Bytes::default();
    read_packets(file, |packet| {
        if let Layer::Tcp(segment) = Layer::of(&packet, &mut fragments) {
            streams.segment(packet.at, &segment, &mut sink);
        }
        ControlFlow::Continue(())
    })?;
    streams.finish(&mut sink);
    ensure!(sink.0 > bytes / 2, "the capture has no data");
    Ok(bytes as f64 / 1e9 / began.elapsed().as_secs_f64())
}

impl Figures<Setup<'_>> for Made {
    const NAME: &'static str = "made";
    const TITLE: &'static str = "Captures that are made";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(setup.figures)?;
        let capture = folder.path().canonicalize()?.join("made.pcapng");
        let path = capture.to_str().context("a path that is not UTF-8")?;
        let data = setup.data.canonicalize()?;
        std::fs::write(folder.path().join("made.sh"), SCRIPT)?;
        let printed = ok(Command::new("bash")
            .arg("made.sh")
            .arg(&data)
            .arg(&capture)
            .current_dir(folder.path()))?;
        eprintln!("{printed}");
        let reading = (0..READINGS).map(|_| read(&capture));
        let reading = reading.collect::<anyhow::Result<_>>()?;
        let run = |arguments: &[&str]| {
            let output = ok(&mut analyze(setup, arguments))?;
            anyhow::Ok(Run::of(&serde_json::from_str(&output)?))
        };
        Ok(Self {
            file_bytes: capture.metadata()?.len(),
            reading,
            default: run(&["--memory", MEMORY, path])?,
            all: run(&["--columns", "all", "--memory", MEMORY, path])?,
            syns: through_pipe(setup, syns)?,
            long_flow: through_pipe(setup, long_flow)?,
        })
    }

    fn targets(&self) -> Vec<Target> {
        let reading = median(self.reading.iter().copied());
        let (default, all) = (
            self.default.mb_per_cpu_second(),
            self.all.mb_per_cpu_second(),
        );
        let memory = self
            .syns
            .peak_memory_bytes
            .max(self.long_flow.peak_memory_bytes) as f64
            / 1e6;
        vec![
            Target {
                what: "reading and reassembly in one thread",
                asked: "at least 1 GB/s",
                measured: Some(at_least(reading, 1.0, format!("{reading:.2} GB/s"))),
            },
            Target {
                what: "the default columns",
                asked: "at least 60 MB per CPU second",
                measured: Some(at_least(default, 60.0, format!("{default:.0}"))),
            },
            Target {
                what: "all columns",
                asked: "at least 10 MB per CPU second",
                measured: Some(at_least(all, 10.0, format!("{all:.1}"))),
            },
            Target {
                what: "peak memory with a million first packets, and with a connection of 10 GB",
                asked: "at most 1 GB",
                measured: Some(at_most(memory, 1_000.0, format!("{memory:.0} MB"))),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(
            page,
            "The captures at hand are short. This one was made: four clients fetch the forty releases of Linux 2.0 from nginx with\n\
             curl. Then they fetch 800 revisions of pages. Mails and two releases follow from Samba, with smbclient. `dumpcap`\n\
             captures at the server. The file has {:.2} GB, with {:.1} million packets, {} connections and {:.2} GB of data. It lacks\n\
             {:.1} MB of this data.\n\n",
            self.file_bytes as f64 / 1e9,
            self.all.packets as f64 / 1e6,
            self.all.tcp_flows,
            mb(self.all.payload_bytes) / 1e3,
            mb(self.all.missed_bytes)
        )?;
        writeln!(page, "| column | saved % |\n|---|--:|")?;
        for name in SHOWN {
            if let Some((_, title, saved)) = self.all.columns.iter().find(|column| column.0 == name)
            {
                writeln!(page, "| {title} | {saved:.1} |")?;
            }
        }
        let all = self.all.same_pair_bytes + self.all.other_pair_bytes;
        write!(
            page,
            "\n{:.1} % of the repeats were exchanged before by the same pair of machines, the rest by another pair.\n\n\
             ### Cache of a pair, and its knee (EndRE, Figures 8 and 9)\n\n\
             ![Savings by cache size](plots/analyze-made-cache.svg)\n\n\
             A release repeats most of the release before, which is 25 MB back. The recommended cache has {} MiB.\n\n\
             ### Speed and memory\n\n\
             | | | asked |\n|---|--:|--:|\n\
             | reading and reassembly, one thread, median of {READINGS} | {:.2} GB/s | 1 GB/s |\n\
             | default columns | {:.0} MB per CPU second | 60 |\n\
             | all columns | {:.1} MB per CPU second | 10 |\n\
             | default columns with `--memory {MEMORY}`, whole run | {:.1} s, at most {:.0} MB of memory | |\n\
             | all columns with `--memory {MEMORY}`, whole run | {:.1} s, at most {:.0} MB of memory | |\n\
             | {SYNS} first packets of connections, column zstd | {:.1} s, at most {:.0} MB of memory | |\n\
             | a connection of {:.0} GB, column zstd | {:.1} s, at most {:.0} MB of memory | |\n",
            100.0 * self.all.same_pair_bytes as f64 / all.max(1) as f64,
            self.all.recommended_bytes >> 20,
            median(self.reading.iter().copied()),
            self.default.mb_per_cpu_second(),
            self.all.mb_per_cpu_second(),
            self.default.seconds,
            mb(self.default.peak_memory_bytes),
            self.all.seconds,
            mb(self.all.peak_memory_bytes),
            self.syns.seconds,
            mb(self.syns.peak_memory_bytes),
            mb(self.long_flow.payload_bytes) / 1e3,
            self.long_flow.seconds,
            mb(self.long_flow.peak_memory_bytes),
        )?;
        Ok(())
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let all = self.all.payload_bytes.max(1) as f64;
        let sizes = self.all.cache_sizes.iter().map(|size| match size >> 20 {
            0 => format!("{} KiB", size >> 10),
            mib => format!("{mib} MiB"),
        });
        let saved = self.all.cache_saved.iter();
        let saved = saved.map(|saved| 100.0 * *saved as f64 / all).collect();
        let words = Words {
            title: "Saved of the made capture, by the cache of a pair and direction",
            across: "cache",
            up: "% of application bytes",
        };
        let sizes: Vec<String> = sizes.collect();
        let svg = refrain_plot::lines(&words, &sizes, &[("all".to_owned(), saved)])?;
        Ok(vec![Plot {
            name: "analyze-made-cache.svg",
            svg,
        }])
    }
}
