//! `refrain near --dry-run` and `refrain far --dry-run`: what a configuration means.
//!
//! It was resolved before it comes here, so it is sound in itself. Nothing is listened on: a
//! gateway that runs may hold the ports.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use refrain_gateway::{
    config::{CommonConfig, FarConfig, HistoryOptions, NearConfig},
    history::History,
    keys::{PeerKeys, PublicKey},
    memory::MemoryBudget,
    options::OptionSpec,
};

use refrain_proto::{by_receiver::history::HistoryConfig, effort::EffortMode};
use refrain_store::{DiskStore, StoreError};

use crate::table::bytes;

/// The options that were given, with their values.
type Given = [(&'static OptionSpec, String)];

/// What a near end would do.
pub fn near(config: &NearConfig, given: &Given, out: &mut impl Write) -> anyhow::Result<()> {
    let neighbours = config.history.as_ref().map(History::check).transpose()?;
    if let Some(warning) = config.history.as_ref().and_then(History::unknown_realm) {
        tracing::warn!("{warning}");
    }
    writeln!(out, "refrain near: the configuration is good")?;
    let mut shown = BTreeSet::new();
    let mut line = |key: &str, value: String| {
        shown.insert(key.to_owned());
        writeln!(out, "  {key:<17}{value}")
    };
    let key = config.peer_key.fingerprint();
    let peer = match &config.peer_name {
        Some(name) => format!("{name} at {}, {key}", config.peer),
        None => format!("{}, {key}", config.peer),
    };
    line("peer", peer)?;
    match &config.history {
        Some(history) => {
            let size = bytes(history.size.0);
            let store = history.store.display();
            // Of a gateway that runs it is no fault.
            let in_use = match DiskStore::check_free(&history.store) {
                Err(StoreError::InUse { owner, .. }) => {
                    let owner = owner.map_or_else(String::new, |owner| format!(" {owner}"));
                    format!("; now process{owner} has it open, and would have to stop first")
                }
                _ => String::new(),
            };
            line(
                "store",
                format!("{store}, at most {size}, realm {}{in_use}", history.realm),
            )?;
            for (folder, looked) in history.also.iter().zip(neighbours.into_iter().flatten()) {
                let folder = folder.display();
                let is_there =
                    looked.map_or_else(|error| format!(", not now: {error}"), |()| String::new());
                line("store_also", format!("{folder}{is_there}"))?;
            }
        }
        None => line("store", "none: nothing is predicted".to_owned())?,
    }
    let peers = [config.peer_key].into_iter().collect();
    let engine = config.history.as_ref().map(HistoryOptions::engine);
    common(&config.common, engine, &peers, &mut line)?;
    others(given, &shown, out)?;
    writeln!(
        out,
        "nothing was started; `refrain check` tries the way to the peer"
    )?;
    Ok(())
}

/// What a far end would do.
pub fn far(config: &FarConfig, given: &Given, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "refrain far: the configuration is good")?;
    let mut shown = BTreeSet::new();
    let mut line = |key: &str, value: String| {
        shown.insert(key.to_owned());
        writeln!(out, "  {key:<17}{value}")
    };
    for address in &config.listen {
        line("listen", address.to_string())?;
    }
    for key in config.peers.iter() {
        line("peer_key", named(&config.peers, &key))?;
    }
    common(&config.common, None, &config.peers, &mut line)?;
    others(given, &shown, out)?;
    writeln!(out, "nothing was started")
}

fn common(
    config: &CommonConfig,
    history: Option<HistoryConfig>,
    peers: &PeerKeys,
    line: &mut impl FnMut(&str, String) -> io::Result<()>,
) -> io::Result<()> {
    line("key", format!("{}, its public part", config.key.public()))?;
    for way_in in &config.ways_in {
        let behind = match way_in.peer.filter(|_| peers.len() > 1) {
            None => "the peer".to_owned(),
            Some(peer) => peers.label(&peer),
        };
        let target = way_in.target.as_ref();
        let leads = target.map(|target| format!(" to {target} behind {behind}"));
        let (listen, access) = (way_in.listen, config.access.describe(way_in));
        let leads = leads.unwrap_or_default();
        line(way_in.option.key, format!("{listen}{leads}, {access}"))?;
    }
    if let Some(admin) = &config.admin {
        let token = match admin.token {
            Some(_) => "with a token",
            None => "without a token",
        };
        line("admin", format!("{}, {token}", admin.listen))?;
    }
    line("allow", config.allow.describe())?;
    line("exclude", config.exclude.describe())?;
    let [memory, lanes, flows] = memory_and_lanes(config, history, peers.len());
    line("memory", memory)?;
    line("lanes", lanes)?;
    line("flows_max", flows)?;
    let rate = config.rate.map(|rate| rate.to_string());
    line(
        "rate",
        rate.unwrap_or_else(|| "whatever the links take".to_owned()),
    )?;
    line("mode", config.mode.to_string())?;
    // Without caches an end neither matches nor compresses.
    if !config.mode.keeps_caches() {
        return Ok(());
    }
    let effort = match config.effort {
        EffortMode::Auto => "auto",
        EffortMode::Max => "max",
    };
    line("effort", effort.to_owned())?;
    let matching = &config.matching;
    line(
        "matching",
        format!(
            "{}, {} markers, p = {}, w = {}, kernels for {}",
            matching.algorithm,
            matching.marker,
            matching.sampling_period,
            matching.window.bytes(),
            matching.backend.instruction_set()
        ),
    )
}

/// What a link gets of the memory, as it would when it begins, and how many lanes and flows in it.
fn memory_and_lanes(
    config: &CommonConfig,
    history: Option<HistoryConfig>,
    peers: usize,
) -> [String; 3] {
    let budget = MemoryBudget::new(config.memory.0, peers);
    let whole = bytes(config.memory.0);
    let Some((link, _reserved)) = budget.link(config.key.public(), config, history) else {
        return [
            format!("{whole}, too little for any link"),
            "none".to_owned(),
            "none".to_owned(),
        ];
    };
    let link_bytes = config.memory.0 - budget.free_bytes();
    let links = (config.memory.0 / link_bytes) as usize;
    if links < peers {
        tracing::warn!("memory has room for the links of {links} peers, and there are {peers}");
    }
    let caches = match config.mode.keeps_caches() {
        true => format!(
            ", with caches of {}",
            bytes(link.send_cache.cache_bytes() as u64)
        ),
        false => String::new(),
    };
    let memory = format!(
        "{whole}, of which a link takes at most {}{caches}",
        bytes(link_bytes)
    );
    let fewer = match link.lanes_max < config.lanes_max.into() {
        true => ": the memory has room for no more",
        false => "",
    };
    let lanes = link.lanes_max.min(config.lanes.into());
    let fewer_flows = match link.flows_max < config.flows_max.into() {
        true => ": the memory has room for no more",
        false => "",
    };
    [
        memory,
        format!("{lanes}, at most {}{fewer}", link.lanes_max),
        format!("{} per link{fewer_flows}", link.flows_max),
    ]
}

/// The options that were given and have no line yet.
fn others(given: &Given, shown: &BTreeSet<String>, out: &mut impl Write) -> io::Result<()> {
    let mut others = given.iter().filter(|(spec, _)| !shown.contains(spec.key));
    others.try_for_each(|(spec, value)| writeln!(out, "  {:<17}{value}", spec.key))
}

fn named(peers: &PeerKeys, key: &PublicKey) -> String {
    match peers.name(key) {
        Some(name) => format!("{name}, {}", key.fingerprint()),
        None => key.fingerprint(),
    }
}
