//! What is hit, and by which event.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::MetadataExt,
    process::Command,
    time::Instant,
};

use anyhow::{Context, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use refrain_link::End;

use super::{
    clients::HANGS_AFTER,
    memory::{MemoryGroup, free_bytes, touch},
    world::{SOCKS5_PORT, Way, World, as_user},
};
use crate::processes::{Running, ok, wait};

/// Connections that use descriptors and send nothing.
const IDLE: usize = 40;

/// What a machine must have free for it.
const FREE_BYTES: u64 = 6 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Near,
    Far,
    Watchdog,
    /// `refrain intercept on`.
    Keeper,
    /// The same at the far end.
    FarKeeper,
    Run,
    /// All between the gateways.
    Link,
    /// The site's firewall.
    Rules,
    /// The far end's, with the rules for answers to clients' addresses.
    FarRules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Kill,
    /// It has touched 4 GiB.
    KillLarge,
    OutOfMemory,
    Stop,
    FullDisk,
    OutOfFiles,
    /// It was told to end, and nothing starts it again.
    End,
    Cut,
    Flush,
    /// Another program removes the table.
    Delete,
}

/// A row of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub way: Way,
    pub victim: Victim,
    pub event: Event,
}

/// All rows, by their way.
pub(super) fn cases(way: Way) -> Vec<Case> {
    use Event::*;
    use Victim::*;
    let gateway = [Kill, KillLarge, OutOfMemory, Stop, FullDisk, OutOfFiles];
    let near = gateway.map(|event| (Near, event));
    let far = gateway.map(|event| (Far, event));
    let own: &[_] = match way {
        Way::Redirect | Way::Forwarded => &[(Keeper, Kill), (Keeper, Stop), (Rules, Flush)],
        Way::Keep => &[
            (Keeper, Kill),
            (Keeper, Stop),
            (Rules, Flush),
            (FarKeeper, Kill),
            (FarKeeper, Stop),
            (FarRules, Delete),
        ],
        Way::Run => &[(Run, Kill), (Run, Stop), (Run, OutOfFiles)],
    };
    let others = [(Far, End), (Watchdog, Kill), (Watchdog, Stop), (Link, Cut)];
    let all = near.iter().chain(&far).chain(&others).chain(own);
    all.map(|&(victim, event)| Case { way, victim, event })
        .collect()
}

impl Case {
    pub(super) fn victim_name(self) -> &'static str {
        match self.victim {
            Victim::Near => "near end",
            Victim::Far => "far end",
            Victim::Watchdog => "watchdog",
            Victim::Keeper => "`refrain intercept on`",
            Victim::FarKeeper => "`refrain intercept on --far`",
            Victim::Run => "`refrain run`",
            Victim::Link => "link",
            Victim::Rules => "firewall",
            Victim::FarRules => "firewall of the far end",
        }
    }

    pub(super) fn event_name(self) -> &'static str {
        match self.event {
            Event::Kill => "`kill -9`",
            Event::KillLarge => "`kill -9`, 4 GiB touched",
            Event::OutOfMemory => "killed by the kernel: out of memory",
            Event::Stop => "`SIGSTOP`",
            Event::FullDisk => "full disk",
            Event::OutOfFiles => "out of file descriptors",
            Event::End => "SIGTERM, and not started again",
            Event::Cut => "cut",
            Event::Flush => "`nft flush ruleset`",
            Event::Delete => "`nft delete table inet refrain`",
        }
    }

    /// Whether the short form of the experiment has it.
    pub(super) fn is_quick(self) -> bool {
        use Event::*;
        use Victim::*;
        match self.way {
            Way::Redirect => matches!(
                (self.victim, self.event),
                (Near, Kill | Stop | OutOfFiles) | (Link, Cut)
            ),
            Way::Forwarded => {
                matches!((self.victim, self.event), (Near, Kill | Stop) | (Far, Kill))
            }
            Way::Keep => matches!((self.victim, self.event), (Near | Far, Kill)),
            Way::Run => matches!((self.victim, self.event), (Near | Run | Far, Kill)),
        }
    }

    /// Whether the pair is to have large caches.
    pub(super) fn is_large(self) -> bool {
        matches!(self.event, Event::KillLarge | Event::OutOfMemory)
    }

    /// Why it cannot be measured on this machine.
    pub(super) fn obstacle(self) -> Option<&'static str> {
        match self.event {
            Event::KillLarge | Event::OutOfMemory if free_bytes() < FREE_BYTES => {
                Some("not measured: this machine has less than 6 GiB free")
            }
            Event::OutOfMemory if MemoryGroup::parent().is_none() => {
                Some("not measured: this machine has no control groups for memory")
            }
            _ => None,
        }
    }

    /// What comes before the clients.
    pub(super) fn prepare(self, world: &World) -> anyhow::Result<()> {
        match self.event {
            Event::KillLarge => touch(self.process(world)?),
            _ => Ok(()),
        }
    }

    /// Lets it happen, and returns when it did.
    pub(super) fn strike(self, world: &mut World) -> anyhow::Result<Instant> {
        let began = Instant::now();
        match self.event {
            Event::Kill | Event::KillLarge => kill(self.process(world)?, Signal::SIGKILL)?,
            Event::Stop => kill(self.process(world)?, Signal::SIGSTOP)?,
            Event::End => kill(self.process(world)?, Signal::SIGTERM)?,
            // Memory has to be used up first.
            Event::OutOfMemory => {
                MemoryGroup::exhaust(self.process(world)?)?;
                return Ok(Instant::now());
            }
            Event::FullDisk => world.fill_disk(self.end()?)?,
            Event::OutOfFiles => {
                let process = self.process(world)?;
                let used = fs::read_dir(format!("/proc/{process}/fd"))?.count();
                limit_files(process, used)?;
                world.idle = self.use_up_files(world)?;
            }
            Event::Cut => world.cut("drop")?,
            Event::Flush => world.nft(&["flush", "ruleset"])?,
            Event::Delete => world.remove_far_rules()?,
        }
        Ok(began)
    }

    /// Undoes it: as an administrator would.
    pub(super) fn heal(self, world: &mut World) -> anyhow::Result<()> {
        if self.event == Event::OutOfMemory {
            MemoryGroup::remove(self.process(world)?)?;
        }
        match (self.event, self.victim) {
            (Event::Kill | Event::Stop, Victim::Run) => {
                world.program = None;
                world.divert(Way::Run)?;
            }
            (Event::Kill | Event::KillLarge | Event::OutOfMemory, Victim::Near)
            | (Event::Stop, Victim::Near) => {
                if let Some(near) = &mut world.near {
                    wait(|| near.process.has_ended(), "the end of the near end")?;
                }
                world.near = None;
                world.start_gateways(self.is_large())?;
            }
            (Event::End, _) => {
                if let Some(far) = &mut world.far {
                    wait(|| far.process.has_ended(), "the end of the far end")?;
                }
                world.far = None;
                world.start_gateways(false)?;
            }
            (Event::Kill | Event::KillLarge | Event::OutOfMemory, Victim::Far) => {
                world.far = None;
                world.start_gateways(self.is_large())?;
            }
            // It has left its rules.
            (Event::Kill, Victim::Keeper) => world.keep()?,
            (Event::Kill, Victim::FarKeeper) => world.keep_at_far_end()?,
            // Another one has been started.
            (Event::Kill, _) => wait(|| Ok(self.process(world).is_ok()), "a watchdog")?,
            (Event::Stop, _) => kill(self.process(world)?, Signal::SIGCONT)?,
            (Event::FullDisk, _) => world.empty_disk(self.end()?)?,
            (Event::OutOfFiles, _) => {
                limit_files(self.process(world)?, 1024)?;
                world.idle.clear();
            }
            (Event::Cut, _) => world.join()?,
            (Event::Flush, _) => world.load_other_rules()?,
            // They are loaded again.
            (Event::Delete, _) => {}
            (Event::KillLarge | Event::OutOfMemory, _) => bail!("not a gateway"),
        }
        Ok(())
    }

    /// Connections that use the descriptors that it frees.
    fn use_up_files(self, world: &World) -> anyhow::Result<Vec<TcpStream>> {
        let connect = |address: SocketAddr| {
            let idle = (0..IDLE).map(|_| TcpStream::connect_timeout(&address, HANGS_AFTER));
            Ok(idle.flatten().collect())
        };
        match self.victim {
            Victim::Far => world.at_far(connect),
            Victim::Run => {
                let place = world.place(Way::Run)?;
                place.within(|| connect(place.origin))
            }
            _ => {
                let place = world.place(Way::Redirect)?;
                place.within(|| connect(SocketAddr::from(([127, 0, 0, 1], SOCKS5_PORT))))
            }
        }
    }

    fn process(self, world: &World) -> anyhow::Result<Pid> {
        let near = || Some(world.near.as_ref()?.process.pid());
        let process = match self.victim {
            Victim::Near => near(),
            Victim::Far => world.far.as_ref().map(|far| far.process.pid()),
            Victim::Watchdog => near().and_then(watchdog_of),
            Victim::Keeper => world.kept.as_ref().map(Running::pid),
            Victim::FarKeeper => world.kept_at_far_end.as_ref().map(Running::pid),
            Victim::Run => world.program.as_ref().map(|program| program.process.pid()),
            Victim::Link | Victim::Rules | Victim::FarRules => None,
        };
        process.with_context(|| format!("no process of the {}", self.victim_name()))
    }

    fn end(self) -> anyhow::Result<End> {
        match self.victim {
            Victim::Near => Ok(End::Near),
            Victim::Far => Ok(End::Far),
            _ => bail!("the {} has no disk", self.victim_name()),
        }
    }
}

/// The process that a near end started.
fn watchdog_of(near: Pid) -> Option<Pid> {
    let threads = fs::read_dir(format!("/proc/{near}/task")).ok()?;
    let children = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<_> = children.collect();
    let mut children = children.iter().flat_map(|line| line.split_whitespace());
    let is_watchdog = |child: &&str| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.starts_with(b"refrain\0watchdog\0")
    };
    children.find(is_watchdog)?.parse().ok().map(Pid::from_raw)
}

/// Sets the limit, as the process's user: root may lack that right in a container.
fn limit_files(process: Pid, count: usize) -> anyhow::Result<()> {
    let user = fs::metadata(format!("/proc/{process}"))?.uid();
    let mut command = Command::new("setpriv");
    command.args(as_user(user)).arg("prlimit");
    command.args(["--pid", &process.to_string()]);
    ok(command.arg(format!("--nofile={count}:"))).map(drop)
}
