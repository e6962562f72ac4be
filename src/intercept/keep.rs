//! Keeps the rules loaded: as a service that starts with the machine.

use std::time::Duration;

use anyhow::Context;
use tokio::{
    runtime::Builder,
    select,
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use super::{ControlGroups, OnArguments, remove, replace, rules, table};
use crate::stderr;

/// How often control groups are looked at: a service that was restarted goes direct for so long.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How many looks there are for each look at the firewall, which starts a program.
const LOOKS_AT_TABLE: u32 = 5;

/// Loads the rules, keeps them loaded, and removes them after SIGTERM or Ctrl-C.
pub(super) fn run(arguments: &OnArguments) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(keep(arguments))
}

async fn keep(arguments: &OnArguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (mut of, mut gateway) = rules(arguments)?;
    let mut loaded = ControlGroups::of(&of)?;
    replace(&of, &loaded.script(&of, &gateway))?;
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0;
    loop {
        let mut is_stale = false;
        select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => match rules(arguments) {
                Ok(read) => {
                    (of, gateway) = read;
                    is_stale = true;
                }
                Err(error) => stderr::warn(&format!("the loaded rules are unchanged: {error:#}")),
            },
            _ = looks.tick() => {
                count += 1;
                is_stale = count % LOOKS_AT_TABLE == 0 && table()?.is_none();
            }
        }
        let present = ControlGroups::of(&of)?;
        if is_stale || present != loaded {
            match replace(&of, &present.script(&of, &gateway)) {
                Ok(()) => loaded = present,
                // A group may have gone meanwhile: the next look shows it.
                Err(error) => stderr::warn(&format!("{error:#}")),
            }
        }
    }
    match table().context("cannot remove the rules")? {
        Some(_) => remove(),
        None => Ok(()),
    }
}
