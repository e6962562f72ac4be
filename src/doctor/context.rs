//! What several checks need: made once, when the first of them asks.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::Context as _;
use refrain_gateway::{
    arguments::{Check, Far, Near},
    config::Config,
    options::{OPTIONS, Role},
    settings::ConfigError,
    text_file,
};
use rustix::process::geteuid;
use serde_json::Value;

use super::sockets::{self, Listening, Process};
use crate::{
    gateways::config_of,
    in_words, intercept,
    local::{self, AskError, Found, Looked, Place},
};

/// No configuration file is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub(super) struct Context {
    pub file: Option<PathBuf>,
    pub is_root: bool,
    config: OnceLock<Option<anyhow::Result<Config>>>,
    gateways: OnceLock<Result<Looked, String>>,
    table: OnceLock<Result<Option<Value>, String>>,
    listening: OnceLock<Vec<Listening>>,
}

impl Context {
    pub(super) fn new(file: Option<PathBuf>) -> Context {
        Context {
            file,
            is_root: geteuid().is_root(),
            config: OnceLock::new(),
            gateways: OnceLock::new(),
            table: OnceLock::new(),
            listening: OnceLock::new(),
        }
    }

    /// The file in a command that somebody is to run.
    pub(super) fn file_in_command(&self) -> String {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        file.unwrap_or_else(|| "FILE".to_owned())
    }

    /// The configuration of the file, if one is given.
    pub(super) fn read_config(&self) -> Option<&anyhow::Result<Config>> {
        let read = || {
            let file = self.file.as_deref()?;
            Some(match role_of(file) {
                Role::Far => config_of::<Far>(file, &[]),
                _ => config_of::<Near>(file, &[]).or_else(|error| match error.downcast_ref() {
                    // `refrain run` needs none.
                    Some(ConfigError::Missing { required, .. }) if required.is_empty() => {
                        config_of::<Check>(file, &[])
                    }
                    _ => Err(error),
                }),
            })
        };
        self.config.get_or_init(read).as_ref()
    }

    /// The configuration, if one is given and valid.
    pub(super) fn config(&self) -> Option<&Config> {
        self.read_config()?.as_ref().ok()
    }

    /// The gateways on this machine, or why they cannot be looked for.
    pub(super) fn gateways(&self) -> Result<&Looked, &String> {
        let look = || local::look().map_err(|error| in_words(&error));
        self.gateways.get_or_init(look).as_ref()
    }

    /// Those that answered.
    pub(super) fn found(&self) -> &[Found] {
        self.gateways().map_or(&[], |looked| &looked.found)
    }

    /// The near ends among them that take redirected connections.
    pub(super) fn intercepting(&self) -> impl Iterator<Item = &Found> {
        let found = self.found().iter();
        found.filter(|found| found.status.interception.is_some())
    }

    /// Whether a process is a gateway that has no local socket where this command looks.
    pub(super) fn has_no_socket(&self, process: &Process) -> bool {
        let Ok(looked) = self.gateways() else {
            return false;
        };
        let silent = looked.silent.iter().map(AskError::place);
        let mut places = looked.found.iter().map(|found| &found.place).chain(silent);
        // Which process an address is of is not known.
        let may_be_it = |place: &Place| {
            place
                .process()
                .is_none_or(|number| number == process.number)
        };
        process.is_refrain() && !places.any(may_be_it)
    }

    /// Such a process that has a port of the file.
    pub(super) fn without_socket(&self) -> Option<Process> {
        let listeners = self.config()?.listeners();
        let mut held = listeners.iter().filter_map(|(_, address)| {
            let mut listening = self.listening().iter();
            listening.find(|listening| listening.holds(*address))
        });
        held.find_map(|held| {
            let process = held.process(&[]);
            process.filter(|process| self.has_no_socket(process))
        })
    }

    /// The firewall's table of interception, if rules are loaded, or why it cannot be read.
    pub(super) fn table(&self) -> Result<Option<&Value>, &String> {
        let read = || intercept::table().map_err(|error| in_words(&error));
        let table = self.table.get_or_init(read).as_ref();
        table.map(Option::as_ref)
    }

    /// The listening TCP sockets of this network.
    pub(super) fn listening(&self) -> &[Listening] {
        self.listening.get_or_init(sockets::listening)
    }
}

/// The end whose file it is.
pub(super) fn role_of(file: &Path) -> Role {
    let text = text_file::open(file).context("no file");
    let text = text.and_then(|file| Ok(text_file::read(file, FILE_BYTES_MAX, "too large")?));
    role_in(&text.unwrap_or_default())
}

/// The end that has the first option which only one end has. A near end's file has `peer`, so one that only has options
/// of both is a far end's.
fn role_in(text: &str) -> Role {
    let keys = text.lines().filter_map(|line| line.split_once('='));
    let options =
        keys.filter_map(|(key, _)| OPTIONS.iter().find(|option| option.key == key.trim()));
    let mut of_both = None;
    for option in options {
        let has = |role| option.roles.contains(&role);
        match (has(Role::Near), has(Role::Far)) {
            (true, false) => return Role::Near,
            (false, true) => return Role::Far,
            _ => of_both = Some(Role::Far),
        }
    }
    of_both.unwrap_or(Role::Near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_that_of_the_end_that_has_its_options() {
        for (text, role) in [
            ("key = \"a\"\npeer = \"far.example.org\"\n", Role::Near),
            ("# peer = \"b\"\nkey = \"a\"\nlisten=\"*\"\n", Role::Far),
            ("key = \"a\"\npeer_key = \"b\"\n", Role::Far),
            ("", Role::Near),
            ("nonsense = 1\n\u{0}\n=\n", Role::Near),
        ] {
            assert_eq!(role_in(text), role, "{text}");
        }
    }
}
