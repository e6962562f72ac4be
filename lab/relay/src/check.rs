//! Real transfers through a relay, held against its settings.
//!
//! Each measurement runs over a relay of its own on loopback that has the one setting under
//! test, so that one cannot hide another:
//!
//! - *rate*: four connections at once send to an echo server; what arrives there and what comes
//!   back, over the time from the first arrival to the last;
//! - *delay*: the median of single-byte round trips over one connection, halved;
//! - *stalls*: a stream of segments to a silent server, which counts the gaps. The seed says how
//!   many there must be;
//! - *bytes*: the relay's own counters after the first of these.

mod metered_server;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::metered_server::{Answer, Meter, PIECE_BYTES, Server};
use crate::stall::stalls;
use crate::{Direction, LinkConfig, Rate, Relay, RelayConfig};

/// What [`check`] found, a row a setting and direction.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Whether every row is within its tolerance.
    pub passed: bool,
    /// What was measured.
    pub rows: Vec<Measurement>,
}

/// One setting, as configured and as measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// What was measured, and in which direction.
    pub name: &'static str,
    /// The unit of both numbers.
    pub unit: &'static str,
    /// As the configuration has it.
    pub configured: f64,
    /// As it was.
    pub measured: f64,
    /// By what part of the configured number the measured one may differ.
    pub tolerance: f64,
}

impl Measurement {
    /// By what part of the configured number the measured one differs.
    pub fn deviation(&self) -> f64 {
        if self.configured == self.measured {
            return 0.0;
        }
        (self.measured - self.configured).abs() / self.configured.abs()
    }

    /// Whether the measured number is near enough.
    pub fn passed(&self) -> bool {
        self.deviation() <= self.tolerance
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<18} {:>14} {:>14} {:>8}",
            "", "configured", "measured", "off by"
        )?;
        for row in &self.rows {
            let Measurement {
                name,
                unit,
                configured,
                measured,
                ..
            } = row;
            let digits = if *unit == "bytes" { 0 } else { 3 };
            let deviation = 100.0 * row.deviation();
            let verdict = if row.passed() { "" } else { "  <- too far" };
            writeln!(
                f,
                "{name:<18} {configured:>14.digits$} {measured:>14.digits$} {deviation:>6.1} % {unit}{verdict}",
            )?;
        }
        f.write_str(if self.passed {
            "the relay keeps its settings"
        } else {
            "the relay does not keep its settings"
        })
    }
}

/// Measures a relay with the settings of `link`. Where `link` is ideal, stand-ins are measured:
/// 100 Mbit/s, 20 ms, 1 % of stalls.
///
/// # Errors
///
/// When loopback fails, or a transfer does not bring back the bytes that were sent.
pub async fn check(link: &LinkConfig) -> io::Result<CheckReport> {
    let mut rows = check_rate(link).await?;
    rows.push(check_delay(link).await?);
    rows.extend(check_stalls(link).await?);
    Ok(CheckReport {
        passed: rows.iter().all(Measurement::passed),
        rows,
    })
}

async fn check_rate(link: &LinkConfig) -> io::Result<Vec<Measurement>> {
    let rate = link.rate.unwrap_or(Rate::mbit(100));
    let link = LinkConfig {
        rate: Some(rate),
        delay: Duration::ZERO,
        stall_probability: 0.0,
        ..link.clone()
    };
    let server = Server::start(Answer::Echo).await?;
    let relay = relay(link, &server)?;
    let came_back = Arc::new(Meter::default());
    let bytes_each = rate.bytes_in(RATE_TIME) / CONNECTIONS;
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        clients.spawn(echo_client(
            relay.address(),
            bytes_each,
            Arc::clone(&came_back),
        ));
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    let counts = relay.counts();
    let bytes = (bytes_each * CONNECTIONS) as f64;
    let mbit = rate.bits() as f64 / 1e6;
    Ok(vec![
        row("rate up", "Mbit/s", mbit, server.meter.mbit_per_s()),
        row("rate down", "Mbit/s", mbit, came_back.mbit_per_s()),
        exact_row("bytes up", "bytes", bytes, counts.up.delivered_bytes as f64),
        exact_row(
            "bytes down",
            "bytes",
            bytes,
            counts.down.delivered_bytes as f64,
        ),
    ])
}

async fn check_delay(link: &LinkConfig) -> io::Result<Measurement> {
    let delay = if link.delay.is_zero() {
        Duration::from_millis(20)
    } else {
        link.delay
    };
    let link = LinkConfig {
        rate: None,
        delay,
        stall_probability: 0.0,
        ..link.clone()
    };
    let server = Server::start(Answer::Echo).await?;
    let relay = relay(link, &server)?;
    let mut client = connect(relay.address()).await?;
    let mut round_trips = Vec::new();
    for round in 0..=ROUND_TRIPS {
        let sent = Instant::now();
        client.write_u8(round).await?;
        expect_unchanged(client.read_u8().await? == round)?;
        // The first one includes the handshake.
        if round > 0 {
            round_trips.push(sent.elapsed());
        }
    }
    round_trips.sort();
    let measured = round_trips[round_trips.len() / 2] / 2;
    Ok(row(
        "delay",
        "ms",
        milliseconds(delay),
        milliseconds(measured),
    ))
}

async fn check_stalls(link: &LinkConfig) -> io::Result<Vec<Measurement>> {
    let probability = if link.stall_probability > 0.0 {
        link.stall_probability
    } else {
        0.01
    };
    let link = LinkConfig {
        rate: None,
        delay: Duration::ZERO,
        stall_probability: probability,
        ..link.clone()
    };
    // As many segments as it takes to see enough stalls on connection 0, the only one.
    let is_stalled = |segment: &u64| stalls(link.seed, 0, Direction::Up, *segment, probability);
    let segment_bytes = link.segment_bytes as u64;
    let segments_max = (STALLED_BYTES_MAX / segment_bytes).max(1);
    let segments = (0..segments_max)
        .filter(is_stalled)
        .nth(STALLS - 1)
        .map_or(segments_max, |last| last + 1);
    let expected = (0..segments).filter(is_stalled).count();
    let stall = link.stall;

    let server = Server::start(Answer::Nothing).await?;
    let relay = relay(link, &server)?;
    let mut client = connect(relay.address()).await?;
    server.meter.arrived(0);
    let bytes = segments.saturating_mul(segment_bytes);
    tokio::io::copy(&mut tokio::io::repeat(0).take(bytes), &mut client).await?;
    client.shutdown().await?;
    // The server closes once it has read the end.
    let _ = client.read(&mut [0]).await?;

    let gaps = server.meter.gaps_from(stall / 2);
    let mean = gaps.iter().sum::<Duration>().as_secs_f64() * 1e3 / gaps.len().max(1) as f64;
    let percent = |stalls: usize| 100.0 * stalls as f64 / segments as f64;
    let mut rows = vec![row(
        "stalled by seed",
        "%",
        percent(expected),
        percent(gaps.len()),
    )];
    if expected > 0 {
        rows.push(row("stall", "ms", milliseconds(stall), mean));
    }
    Ok(rows)
}

/// Sends `bytes` to an echo server and tests what comes back.
async fn echo_client(relay: SocketAddr, bytes: u64, meter: Arc<Meter>) -> io::Result<()> {
    let (mut read, mut write) = connect(relay).await?.into_split();
    let sender = tokio::spawn(async move {
        let mut sent = 0;
        while sent < bytes {
            let piece = pattern(sent, bytes);
            write.write_all(&piece).await?;
            sent += piece.len() as u64;
        }
        write.shutdown().await
    });
    let mut buffer = vec![0; PIECE_BYTES];
    let mut received = 0;
    loop {
        let count = read.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        meter.arrived(count);
        let expected = pattern(received, received + count as u64);
        expect_unchanged(buffer[..count] == expected)?;
        received += count as u64;
    }
    expect_unchanged(received == bytes)?;
    sender.await?
}

/// A piece of a stream in which no two near places look the same, from `start` on and before
/// `end`.
fn pattern(start: u64, end: u64) -> Vec<u8> {
    (start..end.min(start + PIECE_BYTES as u64))
        .map(|place| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn relay(link: LinkConfig, server: &Server) -> io::Result<Relay> {
    Relay::start(RelayConfig {
        link,
        ..RelayConfig::to(server.address)
    })
}

async fn connect(relay: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(relay).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn expect_unchanged(unchanged: bool) -> io::Result<()> {
    if unchanged {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "the relay changed the data",
    ))
}

fn row(name: &'static str, unit: &'static str, configured: f64, measured: f64) -> Measurement {
    Measurement {
        name,
        unit,
        configured,
        measured,
        tolerance: 0.10,
    }
}

fn exact_row(
    name: &'static str,
    unit: &'static str,
    configured: f64,
    measured: f64,
) -> Measurement {
    Measurement {
        tolerance: 0.0,
        ..row(name, unit, configured, measured)
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

const CONNECTIONS: u64 = 4;
const RATE_TIME: Duration = Duration::from_secs(2);
const ROUND_TRIPS: u8 = 21;
const STALLS: usize = 10;
/// With segments of 1460 bytes enough for ten stalls at one in a hundred thousand.
const STALLED_BYTES_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_passes_within_its_tolerance() {
        assert!(row("delay", "ms", 20.0, 21.9).passed());
        assert!(row("delay", "ms", 20.0, 18.1).passed());
        assert!(!row("delay", "ms", 20.0, 22.1).passed());
        assert!(!row("delay", "ms", 20.0, f64::NAN).passed());
        assert!(!exact_row("bytes up", "bytes", 1000.0, 999.0).passed());
        assert!(exact_row("bytes up", "bytes", 1000.0, 1000.0).passed());
        assert!(!exact_row("bytes up", "bytes", 0.0, 1.0).passed());
    }

    #[test]
    fn the_table_marks_what_is_off() {
        let rows = vec![
            row("rate up", "Mbit/s", 100.0, 97.0),
            row("delay", "ms", 20.0, 30.0),
        ];
        let table = CheckReport {
            passed: false,
            rows,
        }
        .to_string();
        let lines: Vec<_> = table.lines().collect();
        assert!(
            lines[1].starts_with("rate up") && !lines[1].contains("too far"),
            "{table}"
        );
        assert!(
            lines[2].contains("50.0 %") && lines[2].ends_with("too far"),
            "{table}"
        );
    }
}
