//! `refrain czip serve` behind a link that counts, and may be long.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use refrain_relay::{LinkConfig, Relay, RelayConfig, addresses::free_address};
use tokio::runtime::{Builder, Runtime};

use crate::processes::{Running, wait};

/// A server of archives and of other files, until dropped.
pub(super) struct Origin {
    address: SocketAddr,
    relay: Relay,
    _serving: Running,
    _runtime: Runtime,
}

/// What left an origin since it was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// With the heads of answers.
    pub bytes: u64,
    /// With the heads of requests.
    pub asked_bytes: u64,
    pub requests: u64,
}

impl Origin {
    /// Serves a folder behind a link of that delay each way.
    pub(super) fn start(refrain: &Path, served: &Path, delay: Duration) -> anyhow::Result<Self> {
        let address = free_address();
        let mut command = Command::new(refrain);
        command.args(["czip", "serve"]).arg(served);
        command.args(["--listen", &address.to_string()]);
        let serving = Running::start(command.stderr(Stdio::null()))?;
        wait(|| Ok(TcpStream::connect(address).is_ok()), "the server")?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let mut config = RelayConfig::to(address);
        config.link = LinkConfig {
            delay,
            ..LinkConfig::default()
        };
        let relay = {
            let _inside = runtime.enter();
            Relay::start(config)?
        };
        Ok(Self {
            address,
            relay,
            _serving: serving,
            _runtime: runtime,
        })
    }

    /// Where it is, by way of the link.
    pub(super) fn address(&self) -> SocketAddr {
        self.relay.address()
    }

    /// What went over the link so far.
    pub(super) fn left(&self) -> anyhow::Result<Left> {
        let counts = self.relay.counts();
        Ok(Left {
            bytes: counts.down.delivered_bytes,
            asked_bytes: counts.up.delivered_bytes,
            requests: self.requests()?,
        })
    }

    /// Those that it was asked, but for this one and others like it.
    fn requests(&self) -> anyhow::Result<u64> {
        let mut connection = TcpStream::connect(self.address)?;
        connection.set_read_timeout(Some(Duration::from_secs(60)))?;
        connection.write_all(
            b"GET /.czip/status HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n",
        )?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no status")?;
        let status: serde_json::Value = serde_json::from_str(body)?;
        status["requests"].as_u64().context("no count")
    }
}

impl Left {
    /// What was added since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            asked_bytes: self.asked_bytes - before.asked_bytes,
            // One of them asked for the status.
            requests: (self.requests - before.requests).saturating_sub(1),
        }
    }
}
