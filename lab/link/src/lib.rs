//! A link between two network namespaces, over which programs speak real TCP.
//!
//! ```text
//! near namespace ── TUN ─▶ wire: rate, queue, loss, delay ─▶ TUN ── far namespace
//! ```
//!
//! A *wire* carries one direction. Its packets are those of the kernels' TCP, with their headers; what the kernels
//! hand over as one large packet is cut into segments first, so that loss and a full queue take segments. Its two
//! threads have real-time priority (`SCHED_FIFO`): at a load of 10 a link of 10 ms had 35 without.
//!
//! It needs root, `/dev/net/tun` and `ip`. [`Link::check`] measures a link against its own settings: call it
//! before each use, since a machine that is busy makes another link than the one that was asked for.
//!
//! ```no_run
//! use std::{process::Stdio, time::Duration};
//! use refrain_link::{End, Link, LinkConfig};
//!
//! let link = Link::start(LinkConfig {
//!     rate: Some(refrain_relay::Rate::mbit(100)),
//!     delay: Duration::from_millis(25),
//!     ..LinkConfig::default()
//! })?;
//! link.check()?;
//! let server = link.command(End::Far, "python3").args(["-m", "http.server"]).stdout(Stdio::null()).spawn()?;
//! let url = format!("http://{}:8000/", link.address(End::Far));
//! link.command(End::Near, "curl").arg(url).status()?;
//! # drop(server);
//! # anyhow::Ok(())
//! ```
//!
//! - `namespace`  the two ends: made, entered, removed
//! - `wire`       one direction: the packets' fates and times, without I/O
//! - `carry`      the threads between two TUNs and a wire
//! - `check`      whether a link is as its settings say
//! - `leftovers`  links of processes that ended by a signal: removed
#![forbid(unsafe_code)]

mod carry;
mod check;
mod leftovers;
mod namespace;
mod wire;

use std::{
    env, fmt,
    net::Ipv4Addr,
    process::Command,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
pub use check::Checked;
pub use leftovers::remove_on_signals;
use namespace::Namespace;
use refrain_relay::Rate;
pub use wire::WireCounts;

/// What a link is like, in both directions. The default is as fast as the machine.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Bits a second, headers of IP and TCP included.
    pub rate: Option<Rate>,
    /// One way.
    pub delay: Duration,
    /// How long a packet may wait for those before it: what comes when the queue is longer is dropped.
    pub queue: Duration,
    /// The share of packets that are lost, from 0 to 1.
    pub loss: f64,
    /// The share of packets that are held back behind later ones, by [`REORDERED_BY`].
    pub reorder: f64,
    /// Decides which.
    pub seed: u64,
}

/// A packet that is held back comes so much later.
pub const REORDERED_BY: Duration = Duration::from_millis(3);

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// 10.99.0.1
    Near,
    /// 10.99.0.2
    Far,
}

/// A link that stands until it is dropped. Programs that still run in its namespaces lose their network.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    ends: [Namespace; 2],
    wires: [Arc<WireCounts>; 2],
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            queue: Duration::from_millis(100),
            loss: 0.0,
            reorder: 0.0,
            seed: 1,
        }
    }
}

impl Link {
    /// Makes both namespaces and what joins them, and removes links of processes that have ended.
    ///
    /// # Errors
    /// Root, `/dev/net/tun`, `ip` or real-time priority is missing.
    pub fn start(config: LinkConfig) -> anyhow::Result<Self> {
        leftovers::remove_abandoned();
        let ends = [Namespace::new(End::Near)?, Namespace::new(End::Far)?];
        let devices = [ends[0].open_tun()?, ends[1].open_tun()?];
        let wires = [Arc::<WireCounts>::default(), Arc::default()];
        let is_over = Arc::<AtomicBool>::default();
        let mut link = Self {
            ends,
            wires,
            is_over,
            threads: Vec::new(),
            config,
        };
        for (from, counts) in link.wires.iter().enumerate() {
            let (source, sink) = (Arc::clone(&devices[from]), Arc::clone(&devices[1 - from]));
            let seed = link.config.seed.wrapping_mul(2).wrapping_add(from as u64);
            let wire = wire::Wire::new(&link.config, seed, Arc::clone(counts));
            let threads = carry::start(source, sink, wire, Arc::clone(&link.is_over));
            link.threads
                .extend(threads.context("cannot start the threads of a link")?);
        }
        Ok(link)
    }

    /// A link for a test, which is to return without one: it was skipped, and standard error says why.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// If this system lacks something that links need, and `REFRAIN_REQUIRE_LINK=1`.
    pub fn for_test(config: LinkConfig) -> anyhow::Result<Option<Self>> {
        let Some(missing) = namespace::missing() else {
            return Self::start(config).map(Some);
        };
        let required = env::var("REFRAIN_REQUIRE_LINK").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "a link needs {missing}, and REFRAIN_REQUIRE_LINK=1"
        );
        eprintln!("skipped: a link needs {missing}");
        Ok(None)
    }

    /// The address of an end, for the other one.
    pub fn address(&self, end: End) -> Ipv4Addr {
        end.address()
    }

    /// The network namespace of an end, for `ip netns exec`.
    pub fn name(&self, end: End) -> &str {
        self.ends[end as usize].name()
    }

    /// A program at an end, not yet run.
    pub fn command(&self, end: End, program: &str) -> Command {
        self.ends[end as usize].command(program)
    }

    /// Runs `call` on a thread at an end, which sees that end's network.
    ///
    /// # Errors
    /// The namespace is gone, or `call` fails.
    pub fn at<R: Send>(
        &self,
        end: End,
        call: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        self.ends[end as usize].enter(call)
    }

    /// The congestion control of connections over the link that set none themselves, by the kernel's name.
    ///
    /// It applies to connections made from now on, in both directions.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub fn set_congestion(&self, name: &str) -> anyhow::Result<()> {
        self.ends
            .iter()
            .try_for_each(|end| end.set_congestion(name))
    }

    /// What crossed so far, from an end to the other.
    pub fn counts(&self, from: End) -> &WireCounts {
        &self.wires[from as usize]
    }

    /// Measures the link and compares it with its settings, in two seconds or more. Where it loses or holds back packets, it
    /// takes as long as 8,000 of them. The queue is measured up to 200 Mbit/s,
    /// since programs cannot fill a faster one.
    ///
    /// # Errors
    /// The machine does not keep up with the settings.
    pub fn check(&self) -> anyhow::Result<Checked> {
        check::check(self, &self.config)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.ends.iter().for_each(Namespace::remove_device);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl End {
    fn address(self) -> Ipv4Addr {
        match self {
            Self::Near => Ipv4Addr::new(10, 99, 0, 1),
            Self::Far => Ipv4Addr::new(10, 99, 0, 2),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

impl fmt::Display for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{rate}")?,
            None => f.write_str("any rate")?,
        }
        write!(
            f,
            ", {:?} each way, a queue of {:?}",
            self.delay, self.queue
        )?;
        if self.loss > 0.0 {
            write!(f, ", {} % lost", 100.0 * self.loss)?;
        }
        if self.reorder > 0.0 {
            write!(f, ", {} % late", 100.0 * self.reorder)?;
        }
        Ok(())
    }
}
