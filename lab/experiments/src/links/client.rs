//! Transfers as their clients see them, and their costs.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use nix::{time::clock_getcpuclockid, unistd::Pid};
use refrain_gateway::status::LimitedBy;
use refrain_link::{End, LinkConfig};
use refrain_relay::Rate;
use serde::{Deserialize, Serialize};

use super::origin::Request;
use crate::{over_link::OverLink, processes::Gateways};

/// A link of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Path {
    pub mbit: u32,
    /// One way.
    pub delay_ms: u64,
}

impl Path {
    pub(super) fn config(self) -> LinkConfig {
        LinkConfig {
            rate: Some(Rate::mbit(self.mbit)),
            delay: Duration::from_millis(self.delay_ms),
            ..LinkConfig::default()
        }
    }

    pub(super) fn round_trip_s(self) -> f64 {
        2e-3 * self.delay_ms as f64
    }

    /// How long bytes take on it.
    pub(super) fn seconds_for(self, bytes: u64) -> f64 {
        8e-6 * bytes as f64 / f64::from(self.mbit)
    }
}

/// A transfer as its client saw it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Fetched {
    /// From the connect to the end of the stream.
    pub seconds: f64,
    pub first_byte_s: f64,
}

/// A transfer through a pair, and its costs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Transfer {
    pub fetched: Fetched,
    /// Bytes on the gateways' connections towards the client, and from it.
    pub link_bytes: u64,
    pub link_bytes_back: u64,
    /// The same on the wire, with headers.
    pub wire_bytes: u64,
    /// Processor time of both gateways, user and system.
    pub near_cpu_s: f64,
    pub far_cpu_s: f64,
    /// The same of this process: client, origin and link.
    #[serde(default)]
    pub lab_cpu_s: f64,
    /// Blocks towards the client, and those of them that went outside of the cache.
    pub blocks: u64,
    pub bypassed_blocks: u64,
    /// How long the far end's lanes had bytes in flight, added up.
    pub lanes_busy_s: f64,
    /// What the far end's sending waited for.
    #[serde(default)]
    pub waits: LimitedBy,
    /// zstd's level at the far end after it.
    pub zstd_level: i32,
}

/// A client that knows what is to come.
#[derive(Default)]
pub(super) struct Client {
    /// Memory that was written before, so that reading costs no page faults.
    buffer: Vec<u8>,
}

impl Client {
    /// Fetches an object and compares it with `expected`. Must run at the near end.
    pub(super) fn fetch(
        &mut self,
        address: SocketAddr,
        request: Request,
        expected: &[u8],
    ) -> anyhow::Result<Fetched> {
        self.reserve(expected.len());
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&request.to_bytes())?;
        let mut first_byte_s = None;
        let mut filled = 0;
        loop {
            let read = stream.read(&mut self.buffer[filled..])?;
            first_byte_s.get_or_insert(began.elapsed().as_secs_f64());
            filled += read;
            if read == 0 {
                break;
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        ensure!(
            self.buffer[..filled] == *expected,
            "{request:?}: the response differs: {filled} bytes, expected {}",
            expected.len()
        );
        Ok(Fetched {
            seconds,
            first_byte_s: first_byte_s.context("no response")?,
        })
    }

    /// Fetches an object through a pair.
    pub(super) fn through(
        &mut self,
        over: &OverLink,
        pair: &Gateways,
        request: Request,
        expected: &[u8],
    ) -> anyhow::Result<Transfer> {
        self.reserve(expected.len());
        let before = Costs::of(over, pair)?;
        let fetched = over.client(|| self.fetch(pair.address, request, expected))?;
        let after = Costs::of(over, pair)?;
        Ok(Transfer {
            fetched,
            link_bytes: after.link_bytes - before.link_bytes,
            link_bytes_back: after.link_bytes_back - before.link_bytes_back,
            wire_bytes: after.wire_bytes - before.wire_bytes,
            near_cpu_s: (after.near_cpu - before.near_cpu).as_secs_f64(),
            far_cpu_s: (after.far_cpu - before.far_cpu).as_secs_f64(),
            lab_cpu_s: (after.lab_cpu - before.lab_cpu).as_secs_f64(),
            blocks: after.blocks - before.blocks,
            bypassed_blocks: after.bypassed_blocks - before.bypassed_blocks,
            lanes_busy_s: after.lanes_busy_s - before.lanes_busy_s,
            waits: LimitedBy {
                reader_s: after.waits.reader_s - before.waits.reader_s,
                credit_s: after.waits.credit_s - before.waits.credit_s,
                link_s: after.waits.link_s - before.waits.link_s,
                processor_s: after.waits.processor_s - before.waits.processor_s,
            },
            zstd_level: after.zstd_level,
        })
    }

    /// One byte more than is expected, so that too many are noticed.
    fn reserve(&mut self, bytes: usize) {
        self.buffer.resize(bytes + 1, 0);
    }
}

/// What was counted so far.
struct Costs {
    link_bytes: u64,
    link_bytes_back: u64,
    wire_bytes: u64,
    near_cpu: Duration,
    far_cpu: Duration,
    lab_cpu: Duration,
    blocks: u64,
    bypassed_blocks: u64,
    lanes_busy_s: f64,
    waits: LimitedBy,
    zstd_level: i32,
}

impl Costs {
    fn of(over: &OverLink, pair: &Gateways) -> anyhow::Result<Self> {
        let (near, far) = (pair.near()?, pair.far()?);
        Ok(Self {
            link_bytes: near.received.link_bytes,
            link_bytes_back: near.sent.link_bytes,
            wire_bytes: over.link().counts(End::Far).bytes(),
            near_cpu: cpu_time(pair.near_process())?,
            far_cpu: cpu_time(pair.far_process())?,
            lab_cpu: cpu_time(nix::unistd::getpid())?,
            blocks: near.received.blocks,
            bypassed_blocks: near.received.bypassed_blocks,
            lanes_busy_s: lanes_busy_s(over)?,
            waits: far.limited_by,
            zstd_level: far.effort.context("no link")?.zstd_level,
        })
    }
}

fn cpu_time(process: Pid) -> anyhow::Result<Duration> {
    Ok(clock_getcpuclockid(process)?.now()?.into())
}

/// How long the far end's connections to the near one had bytes in flight, as its kernel counts.
fn lanes_busy_s(over: &OverLink) -> anyhow::Result<f64> {
    let near = over.link().address(End::Near).to_string();
    let output = over
        .link()
        .command(End::Far, "ss")
        .args(["-tinH", "state", "established", "dst", &near])
        .output()
        .context("cannot run ss (package iproute2)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let busy = text.split_whitespace().filter_map(|word| {
        let ms = word.strip_prefix("busy:")?.strip_suffix("ms")?;
        ms.parse::<f64>().ok()
    });
    Ok(busy.sum::<f64>() / 1e3)
}
