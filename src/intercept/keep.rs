//! Loads the rules, and keeps them loaded.

use std::time::Duration;

use anyhow::Context;
use refrain_gateway::intercept::removed::{Clients, Removals};
use serde_json::Value;
use tokio::{
    runtime::Builder,
    select,
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use super::{
    ANSWERS, ControlGroups, Lock, NOT_ASKED, OnArguments, Ruleset, TABLE, check, nft, remove,
    replace, routes, table, warn_of_what_is_missing,
};
use crate::{in_words, stderr};

/// How often control groups are looked at: a service that was restarted goes direct for so long.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How many looks there are for each look at the firewall, which starts a program. The removal of the table is noticed
/// at once. The removal of its rules alone is not.
const LOOKS_AT_TABLE: u32 = 5;

/// How often clients are asked after others removed the rules: packets of the moment may still end a connection of the
/// near end after the first time.
const QUESTIONS: u32 = 2;

/// The message once the rules are loaded.
const LOADED: &str = "the rules are loaded: Ctrl-C or `refrain intercept off` removes them";

/// What is kept loaded.
struct Kept {
    ruleset: Ruleset,
    /// The control groups of the script that is loaded; none if another script is to be loaded.
    loaded: Option<ControlGroups>,
    /// The rules that the firewall made of it, once they were counted.
    rules_loaded: Option<usize>,
    /// How often clients of open connections are still to be asked whether they are open.
    questions: u32,
}

/// Loads the rules, keeps them loaded, and removes them after SIGTERM or Ctrl-C.
pub(super) fn run(arguments: &OnArguments) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(keep(arguments))
}

async fn keep(arguments: &OnArguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut kept = Kept::read(arguments)?;
    let _lock = Lock::take()?;
    let removals = Removals::watch().context("cannot watch the firewall")?;
    kept.look(false)?;
    kept.ruleset.warn_of_loops();
    stderr::warn(LOADED);
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0;
    let mut has_noticed = false;
    let mut reported = None;
    loop {
        let mut is_removed = false;
        select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                stderr::warn("SIGHUP: loading the rules again");
                match Kept::read(arguments) {
                    Ok(read) => kept = read,
                    Err(error) => stderr::warn(format!("the loaded rules are unchanged: {}", in_words(&error))),
                }
            }
            // Once in each interval: another program may remove the table each time.
            () = removals.next(), if !has_noticed => {
                has_noticed = true;
                is_removed = true;
            }
            _ = looks.tick() => {
                has_noticed = false;
                count += 1;
            }
        }
        if is_removed {
            is_removed = !kept.restore();
        }
        // What fails now may succeed at the next look: a group that went meanwhile, or rules that others are loading.
        let looks_at_table = is_removed || count % LOOKS_AT_TABLE == 0;
        let was_loaded = kept.loaded.is_some();
        let failed = kept.look(looks_at_table).err();
        if !was_loaded && failed.is_none() {
            stderr::warn(LOADED);
        }
        let failed = failed.map(|error| in_words(&error));
        if let Some(error) = failed.as_ref().filter(|_| failed != reported) {
            stderr::warn(error);
        }
        if failed.is_some() || looks_at_table {
            reported = failed;
        }
    }
    match table().context("cannot remove the rules")? {
        Some(_) => remove()?,
        None => routes::remove(),
    }
    stderr::warn("the rules are removed");
    Ok(())
}

impl Kept {
    /// Reads the rules, and lets the firewall check them.
    fn read(arguments: &OnArguments) -> anyhow::Result<Kept> {
        let ruleset = Ruleset::read(arguments)?;
        let present = ControlGroups::of(&ruleset.rules)?;
        warn_of_what_is_missing(&ruleset.rules, &present);
        check(&ruleset.rules, &ruleset.script(&present))?;
        Ok(Kept {
            ruleset,
            loaded: None,
            rules_loaded: None,
            questions: 0,
        })
    }

    /// Loads the rules if there is no table, by one program and nothing else: until then, the packets of open connections
    /// get lost. Returns whether it did. The table is there after a change of its own.
    fn restore(&mut self) -> bool {
        let Ok(present) = ControlGroups::of(&self.ruleset.rules) else {
            return false;
        };
        let script = self.ruleset.script(&present);
        let script = format!("create table {TABLE}\ndelete table {TABLE}\n{script}");
        let is_restored = self.loaded.is_some() && nft(&["-f", "-"], &script).is_ok();
        if is_restored {
            self.loaded = Some(present);
            self.rules_loaded = None;
            self.note_removal();
        }
        is_restored
    }

    fn note_removal(&mut self) {
        stderr::warn("another program removed the rules: they are loaded again");
        self.questions = QUESTIONS;
    }

    /// Loads the rules if others removed them, which is looked at if `looks_at_table`, or if a control group was made.
    fn look(&mut self, looks_at_table: bool) -> anyhow::Result<()> {
        let present = ControlGroups::of(&self.ruleset.rules)?;
        let is_gone = looks_at_table && {
            let now = table()?.as_ref().map_or(0, count_rules);
            let expected = *self.rules_loaded.get_or_insert(now);
            now == 0 || now != expected
        };
        let is_stale = |loaded| present.has_news(loaded);
        if is_gone && self.loaded.is_some() {
            self.note_removal();
        } else if self.loaded.as_ref().is_some_and(is_stale) {
            stderr::warn("a control group of a rule was made: loading the rules again");
        }
        if is_gone || self.loaded.as_ref().is_none_or(is_stale) {
            // What fails is tried again.
            self.loaded = None;
            self.rules_loaded = None;
            replace(&self.ruleset.rules, &self.ruleset.script(&present))?;
            self.loaded = Some(present);
        } else if looks_at_table && self.ruleset.script(&present).contains(ANSWERS) {
            // A program that configures networks may have removed them.
            routes::add()?;
        }
        if self.questions > 0 {
            self.questions -= 1;
            Clients::list()
                .and_then(|clients| clients.ask_for_near_end())
                .context(NOT_ASKED)?;
        }
        Ok(())
    }
}

/// The rules of all chains: another program may have removed some.
fn count_rules(table: &Value) -> usize {
    let entries = table["nftables"].as_array().into_iter().flatten();
    entries.filter(|entry| entry.get("rule").is_some()).count()
}
