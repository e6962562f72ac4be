//! Clients, the origin, and the clocks of the processes between them.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use nix::{
    time::clock_getcpuclockid,
    unistd::{Pid, Uid, setfsuid},
};
use refrain_link::{End, LinkConfig};
use serde::Serialize;

use super::{
    StartRow,
    ways::{Caches, Intercepted, Ready},
};
use crate::{
    over_link::{Origin, OverLink},
    processes::ok,
    seeded::{self, REQUEST_BYTES, Seeded},
};

/// A user that is not the near end's: rules are not about that one.
const USER: u32 = 64_998;

/// Exchanges of a turn, and bytes of an answer.
pub(super) const EXCHANGES: usize = 500;
const ANSWER_BYTES: u64 = 64;

/// What HTTP clients get: the same bytes this many times.
pub(super) const OBJECT_BYTES: u64 = 32 << 20;
pub(super) const COPIES: u64 = 64;

/// How often a program is started for the time that this takes.
const STARTS: usize = 20;

/// Requests and small answers on a connection, in seconds.
#[derive(Debug, Serialize)]
pub(super) struct Exchanges {
    /// From the connect to the first answer.
    pub first: f64,
    pub median: f64,
    /// Of a hundred, the last but one.
    pub p99: f64,
}

/// A download of noise.
#[derive(Debug, Serialize)]
pub(super) struct Transfer {
    pub seconds: f64,
    /// CPU time of the processes at the near and the far end.
    pub cpu_s: Option<[f64; 2]>,
}

/// Programs of users.
#[derive(Debug, Serialize)]
pub(super) struct Started {
    /// The median time of a program that does nothing.
    pub start_s: f64,
    /// Of a download by curl.
    pub bytes_per_s: f64,
}

/// Answers each request for an object; those by HTTP with repeated bytes.
pub(super) fn origin() -> Origin {
    let mut object = Vec::new();
    let seeded = Seeded::noise(0, OBJECT_BYTES);
    seeded.write_to(&mut object).expect("memory");
    Arc::new(move |stream| answer(stream, &object))
}

fn answer(mut stream: TcpStream, object: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_BYTES];
    loop {
        stream.read_exact(&mut request)?;
        if request.starts_with(b"GET ") {
            let mut last = request[REQUEST_BYTES - 4..].to_vec();
            while last != *b"\r\n\r\n" {
                last.remove(0);
                last.push(0);
                stream.read_exact(&mut last[3..])?;
            }
            let bytes = COPIES * OBJECT_BYTES;
            write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {bytes}\r\n\r\n")?;
            return (0..COPIES).try_for_each(|_| stream.write_all(object));
        }
        let seeded = Seeded::of_request(request).ok_or(io::ErrorKind::InvalidData)?;
        seeded.write_to(&mut stream)?;
    }
}

/// A turn: exchanges on a connection, then a transfer on another one.
pub(super) fn measure(
    over: &OverLink,
    ready: &Ready<'_>,
    [first_bytes, bytes]: [u64; 2],
) -> anyhow::Result<(Exchanges, Transfer)> {
    over.client(|| {
        setfsuid(Uid::from_raw(USER));
        let exchanges = exchange(ready)?;
        Ok((exchanges, transfer(ready, first_bytes, bytes)?))
    })
}

fn exchange(ready: &Ready<'_>) -> anyhow::Result<Exchanges> {
    let ask = |stream: &mut TcpStream, number: usize| {
        let seeded = Seeded::noise(number as u64, ANSWER_BYTES);
        stream.write_all(&seeded.request())?;
        fetch(stream, seeded)
    };
    let began = Instant::now();
    let mut stream = TcpStream::connect(ready.address)?;
    stream.set_nodelay(true)?;
    ask(&mut stream, 0)?;
    let first = began.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for number in 1..=EXCHANGES {
        let began = Instant::now();
        ask(&mut stream, number)?;
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(Exchanges {
        first,
        median: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    })
}

fn transfer(ready: &Ready<'_>, first_bytes: u64, bytes: u64) -> anyhow::Result<Transfer> {
    let mut stream = TcpStream::connect(ready.address)?;
    let mut get = |seeded: Seeded| {
        stream.write_all(&seeded.request())?;
        fetch(&mut stream, seeded)
    };
    get(Seeded::noise(fastrand::u64(..), first_bytes))?;
    let before = ready.processes.map(clocks).transpose()?;
    let began = Instant::now();
    get(Seeded::noise(fastrand::u64(..), bytes))?;
    let seconds = began.elapsed().as_secs_f64();
    let after = ready.processes.map(clocks).transpose()?;
    let cpu_s = before.zip(after).map(|(before, after)| {
        [0, 1].map(|end: usize| after[end].saturating_sub(before[end]).as_secs_f64())
    });
    Ok(Transfer { seconds, cpu_s })
}

/// Reads an object, and compares it.
fn fetch(stream: &mut TcpStream, seeded: Seeded) -> anyhow::Result<()> {
    let is_equal = seeded::begins_with(stream, seeded)?;
    ensure!(is_equal, "an object differs");
    Ok(())
}

fn clocks(processes: [Pid; 2]) -> anyhow::Result<[Duration; 2]> {
    let [near, far] = processes.map(|process| anyhow::Ok(clock_getcpuclockid(process)?.now()?));
    Ok([near?.into(), far?.into()])
}

/// Programs that are redirected, and those under `refrain run`.
pub(super) fn measure_programs(refrain: &Path, runs: usize) -> anyhow::Result<Vec<StartRow>> {
    let over = OverLink::start(&LinkConfig::default(), origin())?;
    let address = over.direct("cubic")?;
    let intercepted = Intercepted::start(&over, refrain, address, "optimize", Caches::Filling)?;
    let socks5 = Intercepted::socks5();
    let (program, user) = (refrain.to_string_lossy(), USER.to_string());
    let run: &[&str] = &[&program, "run", "--socks5", &socks5, "--"];
    let of_user: &[&str] = &["setpriv", "--reuid", &user, "--clear-groups"];
    let mut rows = [("redirected", of_user), ("refrain run", run)].map(|(way, _)| StartRow {
        way,
        started: Vec::new(),
    });
    let url = format!("http://{address}/");
    // The cache has it then.
    download(&over, of_user, &url)?;
    for turn in 0..2 * runs {
        let number = (turn + turn / 2) % 2;
        let words = [of_user, run][number];
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            starts.push(time(&over, words, &["true"])?);
        }
        let started = Started {
            start_s: crate::median::median(starts),
            bytes_per_s: download(&over, words, &url)?,
        };
        eprintln!("{}: {started:?}", rows[number].way);
        rows[number].started.push(started);
    }
    drop(intercepted);
    Ok(rows.into())
}

/// Bytes per second of curl, without its start.
fn download(over: &OverLink, words: &[&str], url: &str) -> anyhow::Result<f64> {
    let format = "%{size_download} %{time_total}";
    let curl = [
        "curl",
        "--silent",
        "--fail",
        "-o",
        "/dev/null",
        "-w",
        format,
        url,
    ];
    let printed = ok(&mut program(over, words, &curl))?;
    let (bytes, seconds) = printed.split_once(' ').context("no figures of curl")?;
    ensure!(
        bytes.parse() == Ok(COPIES * OBJECT_BYTES),
        "curl got {bytes} bytes"
    );
    Ok((COPIES * OBJECT_BYTES) as f64 / seconds.trim().parse::<f64>()?)
}

fn time(over: &OverLink, words: &[&str], what: &[&str]) -> anyhow::Result<f64> {
    let mut command = program(over, words, what);
    let began = Instant::now();
    ok(&mut command)?;
    Ok(began.elapsed().as_secs_f64())
}

/// A program at the near end, after these words.
fn program(over: &OverLink, words: &[&str], what: &[&str]) -> Command {
    let mut command = over.link().command(End::Near, words[0]);
    command.args(&words[1..]).args(what).stdin(Stdio::null());
    command
}
