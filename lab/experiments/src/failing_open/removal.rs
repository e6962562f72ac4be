//! Interception that is removed on purpose, while clients connect.

use std::{fs, thread::sleep, time::Duration};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};

use super::{
    clients::Outcome,
    crowd::Crowd,
    observation::Outcomes,
    world::{Way, World},
};
use crate::processes::{ok, wait};

/// Connections that begin during each, and those of them before it.
const CONNECTIONS: usize = 1_000;
const BEFORE: usize = 300;
const INTERVAL: Duration = Duration::from_millis(3);

#[derive(Clone, Copy)]
pub(super) enum Removal {
    Off,
    Reload,
    EndOfOn,
    End,
    Restart,
    Upgrade,
    Purge,
}

pub(super) const REMOVALS: [Removal; 7] = [
    Removal::Off,
    Removal::Reload,
    Removal::EndOfOn,
    Removal::End,
    Removal::Restart,
    Removal::Upgrade,
    Removal::Purge,
];

impl Removal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Removal::Off => "`refrain intercept off`",
            Removal::Reload => "SIGHUP for `refrain intercept on`",
            Removal::EndOfOn => "SIGTERM for `refrain intercept on`",
            Removal::End => "SIGTERM for the near end",
            Removal::Restart => "SIGTERM for the near end, and a start of the next one",
            Removal::Upgrade => "upgrade of the package",
            Removal::Purge => "purge of the package",
        }
    }

    pub(super) fn is_quick(self) -> bool {
        matches!(self, Removal::Off | Removal::Restart)
    }

    /// The outcomes of the connections meanwhile.
    pub(super) fn observe(self, world: &mut World, way: Way) -> anyhow::Result<Outcomes> {
        world.divert(way)?;
        let crowd = Crowd::start(world.place(way)?, INTERVAL);
        wait(|| Ok(crowd.begun() >= BEFORE), "clients")?;
        self.act(world)?;
        wait(|| Ok(crowd.begun() >= CONNECTIONS), "clients")?;
        // For those that meet the end of it.
        sleep(Duration::from_millis(300));
        let mut outcomes = Outcomes::default();
        for one in crowd.finish()? {
            outcomes.add(one.outcome, one.ended - one.began);
        }
        let (expected, is_removed) = match self {
            Removal::Reload | Removal::Restart | Removal::Upgrade => (Outcome::Carried, false),
            Removal::End => (Outcome::Direct, false),
            Removal::Off | Removal::EndOfOn | Removal::Purge => (Outcome::Direct, true),
        };
        world.wait_for(way, expected)?;
        if !is_removed {
            world.release(way)?;
        }
        world.check_rules()?;
        world.install()?;
        world.start_gateways(false)?;
        Ok(outcomes)
    }

    fn act(self, world: &mut World) -> anyhow::Result<()> {
        match self {
            Removal::Off => {
                ok(&mut world.refrain(&["intercept", "off"]))?;
                // It has ended.
                world.kept = None;
                Ok(())
            }
            Removal::Reload => {
                let kept = world.kept.as_ref().context("it does not run")?;
                Ok(kill(kept.pid(), Signal::SIGHUP)?)
            }
            Removal::EndOfOn => end_kept(world),
            Removal::End => end_near(world),
            Removal::Restart => {
                end_near(world)?;
                world.start_gateways(false)
            }
            // Units stop in the reverse of the order in which they start.
            Removal::Upgrade => {
                world.install()?;
                end_kept(world)?;
                end_near(world)?;
                world.start_gateways(false)?;
                world.keep()
            }
            Removal::Purge => {
                end_kept(world)?;
                end_near(world)?;
                ok(&mut world.refrain(&["intercept", "off"]))?;
                Ok(fs::remove_file(world.program_file())?)
            }
        }
    }
}

fn end_kept(world: &mut World) -> anyhow::Result<()> {
    world.kept.take().context("it does not run")?.end()
}

fn end_near(world: &mut World) -> anyhow::Result<()> {
    let mut near = world.near.take().context("it does not run")?;
    kill(near.process.pid(), Signal::SIGTERM)?;
    wait(|| near.process.has_ended(), "the end of the near end")
}
