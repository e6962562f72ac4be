//! One transfer, and what its sender's process took for it.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use anyhow::ensure;
use refrain_gateway::status::Predictions;
use refrain_relay::addresses::free_address;
use serde::Serialize;

use super::{DELAY_MS, MBIT, STORE_SIZE, bare_tls::BareTls};
use crate::{
    processes::{Gateways, Setup, clocked},
    seeded::{self, Seeded},
    slow_link::SlowLink,
};

/// What makes the transfers.
pub(super) struct Trials<'a> {
    refrain: &'a Path,
    origin: SocketAddr,
    /// Outlives the gateways, which every transfer has anew.
    store: tempfile::TempDir,
    bare_tls: BareTls,
}

/// A transfer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sent {
    pub bytes: u64,
    /// From the request to the last byte.
    pub took_s: f64,
    /// The sender's, user and system.
    pub cpu_s: f64,
    /// What its receiver offered, and what came of it.
    pub predictions: Predictions,
}

impl Sent {
    /// Application bytes a CPU second.
    pub(super) fn bytes_per_cpu_s(&self) -> f64 {
        self.bytes as f64 / self.cpu_s
    }
}

impl<'a> Trials<'a> {
    /// With an empty store.
    pub(super) fn new(refrain: &'a Path) -> anyhow::Result<Trials<'a>> {
        let origin = seeded::serve()?;
        Ok(Trials {
            refrain,
            origin,
            store: tempfile::tempdir()?,
            bare_tls: BareTls::start(origin)?,
        })
    }

    /// By new gateways with nothing between them.
    pub(super) fn by_gateways(&self, mode: &str, noise: Seeded) -> anyhow::Result<Sent> {
        self.between(mode, None, None, noise)
    }

    /// By new gateways over the slow link.
    pub(super) fn by_gateways_on_slow_link(
        &self,
        mode: &str,
        noise: Seeded,
    ) -> anyhow::Result<Sent> {
        let listen = free_address();
        let link = SlowLink::before(listen, MBIT, Duration::from_millis(DELAY_MS))?;
        self.between(mode, Some(listen), Some(link.address()), noise)
    }

    /// Copied into TLS.
    pub(super) fn by_bare_tls(&self, noise: Seeded) -> anyhow::Result<Sent> {
        self.copied(self.bare_tls.address, noise)
    }

    /// Copied into TLS over the slow link.
    pub(super) fn by_bare_tls_on_slow_link(&self, noise: Seeded) -> anyhow::Result<Sent> {
        let link = SlowLink::before(self.bare_tls.address, MBIT, Duration::from_millis(DELAY_MS))?;
        self.copied(link.address(), noise)
    }

    fn between(
        &self,
        mode: &str,
        listen: Option<SocketAddr>,
        dial: Option<SocketAddr>,
        noise: Seeded,
    ) -> anyhow::Result<Sent> {
        let store = self.store.path().display().to_string();
        let gateways = Gateways::start(&Setup {
            refrain: self.refrain,
            target: self.origin,
            listen,
            dial,
            far: &["--mode", mode],
            link: None,
            // Every far end has another key, and so another realm, unless there is a name.
            near: &[
                "--store",
                &store,
                "--store-size",
                STORE_SIZE,
                "--realm",
                "noise",
            ],
        })?;
        let (took, cpu) = clocked(gateways.far_process(), || {
            let mut stream = TcpStream::connect(gateways.address)?;
            stream.write_all(&noise.request())?;
            compare(stream, noise)
        })?;
        let sent = gateways.far()?.sent;
        gateways.end()?;
        Ok(say(mode, noise, took, cpu, sent.predictions))
    }

    fn copied(&self, address: SocketAddr, noise: Seeded) -> anyhow::Result<Sent> {
        let (took, cpu) = clocked(self.bare_tls.process.pid(), || {
            compare(self.bare_tls.ask(address, &noise.request())?, noise)
        })?;
        let predictions = Predictions::default();
        Ok(say("bare TLS", noise, took, cpu, predictions))
    }
}

fn compare(stream: impl std::io::Read, noise: Seeded) -> anyhow::Result<()> {
    ensure!(seeded::is_equal(stream, noise)?, "{noise:?} differs");
    Ok(())
}

fn say(what: &str, noise: Seeded, took: Duration, cpu: Duration, predictions: Predictions) -> Sent {
    let sent = Sent {
        bytes: noise.bytes,
        took_s: took.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        predictions,
    };
    eprintln!(
        "{what}, object {}: {:.3} s CPU, {:.2} s, {} offers, {} confirmed",
        noise.seed, sent.cpu_s, sent.took_s, predictions.offers, predictions.confirmed
    );
    sent
}
