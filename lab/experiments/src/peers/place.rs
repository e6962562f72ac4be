//! Where programs run: at the ends of a link, or all on this machine's loopback.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context;
use refrain_link::{End, Link, LinkConfig};
use refrain_relay::{Rate, addresses::free_address};

use crate::processes::{Running, wait};

/// How long the last packets of a transfer may take, beside their way over the link.
const SETTLING: Duration = Duration::from_millis(300);

/// The congestion control of connections that set none: Debian's default.
pub(super) const CONGESTION: &str = "cubic";

/// A kind of place.
pub(super) struct Kind {
    /// For `--only`.
    pub name: &'static str,
    pub title: &'static str,
    /// Mbit/s, and the delay each way in ms.
    link: Option<(u32, u64)>,
}

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "20mbit",
        title: "20 Mbit/s and 50 ms each way",
        link: Some((20, 50)),
    },
    Kind {
        name: "100mbit",
        title: "100 Mbit/s and 10 ms each way",
        link: Some((100, 10)),
    },
    Kind {
        name: "loopback",
        title: "Loopback",
        link: None,
    },
];

/// A place of its own for each turn: no packet, and nothing that the kernel knows of a path, is of the turn before.
pub(super) struct Place {
    /// Without one, both ends are on this machine's own network.
    pub link: Option<Arc<Link>>,
    /// How long the last packets of a transfer take.
    settling: Duration,
}

impl Kind {
    pub(super) fn start(&self) -> anyhow::Result<Place> {
        let config = self.link.map(|(mbit, delay_ms)| LinkConfig {
            rate: Some(Rate::mbit(mbit)),
            delay: Duration::from_millis(delay_ms),
            ..LinkConfig::default()
        });
        let delay = config.as_ref().map(|config| config.delay);
        let link = config.map(Link::start).transpose();
        let link = link.context("cannot create the link")?.map(Arc::new);
        if let Some(link) = &link {
            link.set_congestion(CONGESTION)?;
        }
        Ok(Place {
            link,
            settling: SETTLING + 4 * delay.unwrap_or_default(),
        })
    }
}

impl Place {
    #[cfg(test)]
    pub(super) fn on_loopback() -> Self {
        Self {
            link: None,
            settling: SETTLING,
        }
    }

    /// A program at an end, not yet run. Servers live in sbin, which is not on every user's path.
    pub(super) fn command(&self, end: End, program: &str) -> Command {
        let mut command = match &self.link {
            Some(link) => link.command(end, program),
            None => Command::new(program),
        };
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command
    }

    /// Runs `call` at an end: connections that it makes begin there.
    pub(super) fn at<R: Send>(
        &self,
        end: End,
        call: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        match &self.link {
            Some(link) => link.at(end, call),
            None => call(),
        }
    }

    /// An address at an end that nobody listens on. Both ends reach one at the far end.
    pub(super) fn address(&self, end: End) -> SocketAddr {
        let mut address = free_address();
        if let (Some(link), End::Far) = (&self.link, end) {
            address.set_ip(IpAddr::V4(link.address(end)));
        }
        address
    }

    /// Starts a server at an end, and waits until it takes connections.
    pub(super) fn serve(
        &self,
        end: End,
        command: &mut Command,
        address: SocketAddr,
    ) -> anyhow::Result<Running> {
        let running = Running::start(command)?;
        let connects = || self.at(end, || Ok(TcpStream::connect(address).is_ok()));
        let arguments: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        wait(connects, &arguments.join(" "))?;
        Ok(running)
    }

    /// Waits until the last packets of a transfer have come.
    pub(super) fn settle(&self) {
        thread::sleep(self.settling);
    }

    /// Bytes that crossed the link so far, both ways, with headers; none where there is no link.
    pub(super) fn link_bytes(&self) -> u64 {
        let ends = [End::Near, End::Far];
        let of_link = |link: &Arc<Link>| ends.map(|from| link.counts(from).bytes()).iter().sum();
        self.link.as_ref().map_or(0, of_link)
    }
}
