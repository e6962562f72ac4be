//! The configuration file, and what this machine has of that which it asks for.

use std::{
    collections::BTreeSet,
    fs, io,
    net::{SocketAddr, UdpSocket},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User};
use refrain_gateway::{
    arguments::{Far, Near},
    config::Config,
    history::History,
    keys::KeyError,
    memory::smaller_caches,
    options::Role,
    settings::ConfigError,
};
use refrain_store::{DiskStore, StoreError};

use super::{
    Finding,
    context::{self, Context},
};
use crate::{
    gateways::options_of,
    in_words,
    intercept::SERVICE_USER,
    local::{AskError, Found, Place},
    table::bytes,
};

/// Whether it is valid, with the files that it names.
pub(super) fn file(context: &Context) -> Vec<Finding> {
    let (Some(path), Some(read)) = (&context.file, context.read_config()) else {
        return vec![
            Finding::skipped("no configuration is checked")
                .advise("give --config FILE, such as /etc/refrain/near.toml"),
        ];
    };
    let file = path.display();
    let finding = match read {
        Ok(config) => Finding::ok(format!(
            "\"{file}\" is valid for a {} end, with public key {}",
            config.role.name(),
            config.key.public()
        )),
        Err(error) if !context.is_root && is_denied(error) => {
            let user = Uid::effective();
            Finding::skipped(in_words(error)).advise(format!(
                "run this as root or as the gateway's user, unless user {user} is to run it"
            ))
        }
        Err(_) if !path.exists() => Finding::problem(
            format!("--config: \"{file}\" does not exist"),
            "give the path of the gateway's file, such as /etc/refrain/near.toml",
        ),
        Err(error) => Finding::problem(
            in_words(error),
            format!(
                "correct it, and test it with `refrain {} --dry-run --config {file}`",
                context::role_of(path).name()
            ),
        ),
    };
    vec![finding]
}

/// Whether this user may not read a file.
fn is_denied(error: &anyhow::Error) -> bool {
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match error.downcast_ref() {
        Some(ConfigError::Read { source, .. }) => is_denied(source),
        Some(ConfigError::Value { reason, .. }) => match reason.downcast_ref() {
            Some(KeyError::Denied { .. }) => true,
            Some(KeyError::Io { source, .. }) => is_denied(source),
            _ => false,
        },
        _ => false,
    }
}

/// What a start would warn of.
pub(super) fn options(context: &Context) -> Vec<Finding> {
    let Some(config) = context.config() else {
        return Vec::new();
    };
    let warnings = config.warnings().into_iter().chain(smaller_caches(config));
    let no_listener = config.role == Role::Near && config.ways_in.is_empty();
    let no_listener = no_listener.then(|| {
        Finding::note("no listener for applications: `refrain near` does not start with this file, `refrain run` does")
            .advise("for `refrain near`, add socks5, http_proxy, forward or transparent")
    });
    warnings.map(Finding::note).chain(no_listener).collect()
}

/// Whether the service could read the key. Whether others can is an error of the file.
pub(super) fn key(context: &Context) -> Vec<Finding> {
    let (Some(config), Some(file)) = (context.config(), &context.file) else {
        return Vec::new();
    };
    let service = User::from_name(SERVICE_USER).ok().flatten();
    let Some((path, service)) = key_file(file, config.role).zip(service) else {
        return Vec::new();
    };
    let Ok(metadata) = fs::metadata(&path) else {
        return Vec::new();
    };
    let is_running = running(context, config).is_some();
    if is_running || metadata.uid() == service.uid.as_raw() {
        return Vec::new();
    }
    let path = path.display();
    vec![
        Finding::note(format!(
            "\"{path}\" belongs to user {}, and the services run as {SERVICE_USER}",
            metadata.uid()
        ))
        .advise(format!(
            "if a service is to use it: chown {SERVICE_USER} {path}"
        )),
    ]
}

fn key_file(file: &Path, role: Role) -> Option<PathBuf> {
    let given = match role {
        Role::Far => options_of::<Far>(file, &[]).ok()?.given(),
        _ => options_of::<Near>(file, &[]).ok()?.given(),
    };
    let mut given = given.ok()?.into_iter();
    let key = given.find_map(|(option, value)| (option.key == "key").then_some(value));
    key.map(PathBuf::from)
}

/// The store's directory and its disk.
pub(super) fn store(context: &Context) -> Vec<Finding> {
    let history = context.config().and_then(|config| config.history.as_ref());
    let Some(history) = history else {
        return Vec::new();
    };
    let path = history.store.display();
    let checked = match History::check(history) {
        Ok(neighbours) => neighbours,
        Err(error) => {
            let error = in_words(&error.into());
            return vec![Finding::problem(error, "correct the directory or `store`")];
        }
    };
    let in_use = match DiskStore::check_free(&history.store) {
        Err(StoreError::InUse { owner, .. }) => {
            let owner = owner.map(|owner| format!(" {owner}"));
            format!(", in use by process{}", owner.unwrap_or_default())
        }
        _ => String::new(),
    };
    let size = bytes(history.size.0);
    let own = match history.lack_of_room() {
        Some(lack) => Finding::problem(
            format!("\"{path}\": {lack}"),
            "lower store_size, or use another disk",
        ),
        None => Finding::ok(format!("\"{path}\" is writable, at most {size}{in_use}")),
    };
    let others = checked.into_iter().filter_map(Result::err);
    let others = others.map(|error| Finding::note(format!("not available now: {error}")));
    let loss = history.loss().map(Finding::note);
    [own].into_iter().chain(loss).chain(others).collect()
}

/// Whether its addresses are free, or those of the gateway that runs.
pub(super) fn listeners(context: &Context) -> Vec<Finding> {
    let Some(config) = context.config() else {
        return Vec::new();
    };
    let silent = context.gateways().map_or(&[][..], |looked| &looked.silent);
    let silent = silent.iter().map(AskError::place);
    let found = of_role(context, config).map(|found| &found.place);
    let gateways = found.chain(silent).filter_map(Place::process);
    let gateways: Vec<_> = gateways.collect();
    let listeners = config.listeners().into_iter();
    let findings = listeners.map(|(option, address)| {
        let called = format!("{} {address}", option.key);
        listener(context, &called, address, &gateways)
    });
    findings.collect()
}

fn listener(context: &Context, called: &str, address: SocketAddr, gateways: &[u32]) -> Finding {
    let mut listening = context.listening().iter();
    let Some(held) = listening.find(|listening| listening.holds(address)) else {
        // A port of UDP is nobody's here, and its address must be this machine's too.
        let bound = UdpSocket::bind((address.ip(), 0));
        return match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Finding::problem(
                format!("{called}: this machine does not have that address"),
                "correct the address in the file",
            ),
            _ => Finding::ok(format!("{called} is free")),
        };
    };
    match held.process(gateways) {
        Some(process) if gateways.contains(&process.number) => Finding::ok(format!(
            "{called} is in use by the gateway that runs here, process {}",
            process.number
        )),
        Some(process) => {
            let text = format!(
                "{called} is in use by process {} ({})",
                process.number, process.name
            );
            match context.has_no_socket(&process) {
                true => Finding::note(format!("{text}, which has no local socket here"))
                    .advise("see \"gateways\""),
                false => Finding::problem(text, "stop that process, or choose another port"),
            }
        }
        None => {
            let text = format!("{called} is in use by a process of user {}", held.user);
            match context.is_root {
                true => Finding::problem(
                    format!(
                        "{text}, which cannot be found: it is in another container, or has ended"
                    ),
                    "stop that process, or choose another port",
                ),
                false => Finding::skipped(text).advise("run this as root, which finds the process"),
            }
        }
    }
}

/// Whether the gateway that runs uses this file, by the keys of its peers.
pub(super) fn in_use(context: &Context) -> Vec<Finding> {
    let Some(config) = context.config() else {
        return Vec::new();
    };
    let role = config.role.name();
    if of_role(context, config).count() == 0 {
        return not_running(context, config).into_iter().collect();
    }
    let finding = match running(context, config) {
        Some(found) => match other_address(found, config) {
            None => Finding::ok(format!(
                "the {role} end at {} has the peers of the file",
                found.place
            )),
            Some((running, given)) => Finding::note(format!(
                "the {role} end at {} connects to {running}, and the file has {given}",
                found.place
            ))
            .advise("restart it, or give --config the file that it was started with"),
        },
        None => Finding::note(format!(
            "the {role} end that runs here has other peers than the file"
        ))
        .advise("restart it, or give --config the file that it was started with"),
    };
    vec![finding]
}

/// The address of a far end that a near end connects to, and the one that the file has for it, if they differ.
fn other_address(found: &Found, config: &Config) -> Option<(String, String)> {
    config.dials.iter().find_map(|dial| {
        let (key, given) = (dial.key.to_string(), dial.address.to_string());
        let mut peers = found.status.peers.iter();
        let peer = peers.find(|peer| peer.key == key)?;
        let running = peer.address.clone().filter(|running| *running != given)?;
        Some((running, given))
    })
}

/// Where others run here: that none does is found by their check.
fn not_running(context: &Context, config: &Config) -> Option<Finding> {
    let role = config.role.name();
    let looked = context.gateways().ok()?;
    let may_be_it = !looked.silent.is_empty() || looked.found.is_empty();
    let is_to_run = config.role == Role::Far || !config.ways_in.is_empty();
    (is_to_run && !may_be_it).then(|| {
        Finding::problem(
            format!("no {role} end runs here"),
            format!(
                "start it, such as `systemctl start refrain-{role}`, and read its log if it ends"
            ),
        )
    })
}

/// The gateway that runs with these peers.
fn running<'a>(context: &'a Context, config: &Config) -> Option<&'a Found> {
    let keys = config.peers.iter().map(|key| key.to_string());
    let keys: BTreeSet<_> = keys.collect();
    of_role(context, config).find(|found| {
        let peers = found.status.peers.iter().map(|peer| peer.key.clone());
        peers.collect::<BTreeSet<_>>() == keys
    })
}

/// The gateways that run here of the file's role.
fn of_role<'a>(context: &'a Context, config: &Config) -> impl Iterator<Item = &'a Found> {
    let role = config.role.name();
    let found = context.found().iter();
    found.filter(move |found| found.status.role == role)
}
