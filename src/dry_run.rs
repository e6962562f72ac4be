//! `refrain near --dry-run` and `refrain far --dry-run`: what a configuration means.
//!
//! It was resolved before it comes here, so it is sound in itself. Nothing is listened on: a
//! gateway that runs may hold the ports.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::SocketAddr,
};

use refrain_gateway::{
    config::{Config, Dial},
    history::History,
    memory::MemoryBudget,
    options::{OptionSpec, Role},
    rules::AllowRules,
    target::Host,
};

use refrain_store::{DiskStore, StoreError};

use crate::table::bytes;

/// Options that the line of another one shows.
const SHOWN_WITH: [(&str, &[&str]); 6] = [
    ("peer", &["peer_key"]),
    ("public key", &["key"]),
    ("store", &["store_size", "realm"]),
    ("memory", &["cache_size"]),
    ("lanes", &["lanes_max"]),
    (
        "matching",
        &[
            "second_stage",
            "marker",
            "sampling_period",
            "window_bytes",
            "simd",
        ],
    ),
];

/// The options that were given, with their values.
type Given = [(&'static OptionSpec, String)];

/// What a gateway would do.
pub(crate) fn run(config: &Config, given: &Given, out: &mut impl Write) -> anyhow::Result<()> {
    let history = config.history.as_ref();
    let neighbours = history.map(History::check).transpose()?;
    if let Some(history) = history {
        let warnings = [history.lack_of_room(), history.loss()];
        let warnings = warnings.into_iter().flatten();
        for warning in warnings.chain(History::unknown_realms(history)) {
            tracing::warn!("{warning}");
        }
    }
    let is_near = config.role != Role::Far;
    let role = config.role.name();
    writeln!(out, "refrain {role}: the configuration is valid")?;
    let mut shown = BTreeSet::new();
    let mut line = |key: &str, value: String| {
        shown.insert(key.to_owned());
        writeln!(out, "  {key:<17}{value}")
    };
    for Dial { key, address } in &config.dials {
        let (called, address) = (config.peers.label(key), address.to_string());
        let at = match called == address {
            true => address,
            false => format!("{called} at {address}"),
        };
        line("peer", format!("{at}, {}", key.fingerprint()))?;
    }
    if let Some(proxy) = &config.via_proxy {
        line("via_proxy", proxy.to_string())?;
    }
    for address in &config.listen {
        line("listen", listener(*address))?;
    }
    if !is_near {
        for key in config.peers.iter() {
            let name = config.peers.name(&key).map(|name| format!("{name}, "));
            let (name, key) = (name.unwrap_or_default(), key.fingerprint());
            line("peer_key", format!("{name}{key}"))?;
        }
    }
    match history {
        Some(history) => {
            let size = bytes(history.size.0);
            let store = history.store.display();
            // Of a gateway that runs it is no fault.
            let in_use = match DiskStore::check_free(&history.store) {
                Err(StoreError::InUse { owner, .. }) => {
                    let owner = owner.map_or_else(
                        || "another process".to_owned(),
                        |owner| format!("process {owner}"),
                    );
                    format!("; {owner} uses it, and must stop first")
                }
                _ => String::new(),
            };
            let realms = Vec::from_iter(history.realm_names()).join(", ");
            line(
                "store",
                format!("{store}, at most {size}, realm {realms}{in_use}"),
            )?;
            for (folder, looked) in history.also.iter().zip(neighbours.into_iter().flatten()) {
                let looked = looked.map_or_else(
                    |error| format!("not available now: {error}"),
                    |()| folder.display().to_string(),
                );
                line("store_also", looked)?;
            }
        }
        None if is_near => line("store", "none: no predictions".to_owned())?,
        None => {}
    }
    common(config, &mut line)?;
    let mut is_shown = shown.clone();
    for (line, with) in SHOWN_WITH {
        if shown.contains(line) {
            is_shown.extend(with.iter().map(|&key| key.to_owned()));
        }
    }
    let mut others = given
        .iter()
        .filter(|(spec, _)| !is_shown.contains(spec.key));
    others.try_for_each(|(spec, value)| writeln!(out, "  {:<17}{value}", spec.key))?;
    match is_near {
        true => writeln!(
            out,
            "nothing was started; `refrain check` tests the connection to the peer"
        )?,
        false => writeln!(out, "nothing was started")?,
    }
    Ok(())
}

fn common(
    config: &Config,
    line: &mut impl FnMut(&str, String) -> io::Result<()>,
) -> io::Result<()> {
    let peers = &config.peers;
    line("public key", config.key.public().to_string())?;
    for way_in in &config.ways_in {
        let behind = match way_in.peer.filter(|_| peers.len() > 1) {
            None => "the peer".to_owned(),
            Some(peer) => peers.label(&peer),
        };
        let target = way_in.target.as_ref();
        let to_target = target.map(|target| {
            let resolver = match target.host {
                Host::Domain(_) => ", which resolves the name",
                _ => "",
            };
            format!(" to {target} through {behind}{resolver}")
        });
        let sites = way_in.sites();
        let to_sites = format!(" for {} through {behind}", sites.join(" "));
        let leads = to_target.or((!sites.is_empty()).then_some(to_sites));
        let (listen, access) = (listener(way_in.listen), config.access.describe(way_in));
        let leads = leads.unwrap_or_default();
        line(way_in.option.key, format!("{listen}{leads}, {access}"))?;
    }
    if let Some(names) = config.opens() {
        line("open", format!("TLS to {names}, by the CA of --ca"))?;
    }
    if let Some(users) = config.access.describe_users() {
        line("proxy_auth", format!("{users} (hashes not shown)"))?;
    }
    if let Some(admin) = &config.admin {
        let token = match admin.token {
            Some(_) => "with a token",
            None => "without a token",
        };
        line("admin", format!("{}, {token}", listener(admin.listen)))?;
    }
    let allowed = config.allow.describe();
    let allowed = match config.role {
        Role::Far => allowed,
        _ if config.allow == AllowRules::new(Vec::new()) => {
            "none: the far end may not connect to targets at this end (only forwards of the far end need it)"
                .to_owned()
        }
        _ => format!("at this end, the far end may connect to {allowed}"),
    };
    line("allow", allowed)?;
    line("exclude", config.exclude.describe())?;
    let [memory, lanes, flows] = memory_and_lanes(config);
    line("memory", memory)?;
    line("lanes", lanes)?;
    line("flows_max", flows)?;
    let rate = config.rate.map(|rate| rate.to_string());
    line("rate", rate.unwrap_or_else(|| "unlimited".to_owned()))?;
    line("congestion", config.congestion.to_string())?;
    line("mode", config.mode.to_string())?;
    if config.mode.compresses() {
        line("effort", config.effort.to_string())?;
    }
    if !config.mode.keeps_caches() {
        return Ok(());
    }
    let matching = &config.matching;
    line(
        "matching",
        format!(
            "{}, second stage {}, {} markers, sampling period {} B, window {} B, SIMD path {}",
            matching.algorithm,
            matching.second_stage,
            matching.marker,
            matching.sampling_period,
            matching.window.bytes(),
            matching.backend.instruction_set()
        ),
    )
}

/// Where it listens. `[::]` is all addresses, those of IPv4 too, as `acceptor::bind` sees to.
fn listener(address: SocketAddr) -> String {
    match address.is_ipv6() && address.ip().is_unspecified() {
        true => format!("*:{} (all addresses)", address.port()),
        false => address.to_string(),
    }
}

/// What a link gets of the memory, as it would when it begins, and how many lanes and flows in it.
fn memory_and_lanes(config: &Config) -> [String; 3] {
    let peers = config.peers.len();
    let budget = MemoryBudget::new(config.memory.0, peers);
    let whole = bytes(config.memory.0);
    let Some((link, _reserved)) = budget.link(config.key.public(), config) else {
        return [
            format!("{whole}, too little for any link"),
            "none".to_owned(),
            "none".to_owned(),
        ];
    };
    let link_bytes = config.memory.0 - budget.free_bytes();
    let links = (config.memory.0 / link_bytes) as usize;
    if links < peers {
        let enough = bytes(link_bytes * peers as u64);
        tracing::warn!(
            "--memory has space for the links of only {links} of {peers} peers: other links are refused (raise it to at \
             least {enough})"
        );
    }
    let caches = match config.mode.keeps_caches() {
        true => format!(
            ", with caches of {}",
            bytes(link.send_cache.cache_bytes() as u64)
        ),
        false => String::new(),
    };
    let memory = format!("{whole}, at most {} per link{caches}", bytes(link_bytes));
    let fewer = |is_fewer| match is_fewer {
        true => ": the memory has no space for more",
        false => "",
    };
    let fewer_lanes = fewer(link.lanes_max < config.lanes_max.into());
    let fewer_flows = fewer(link.flows_max < config.flows_max.into());
    let most_lanes = format!("at most {} per link{fewer_lanes}", link.lanes_max);
    let lanes = match config.role {
        // Only near ends open lanes.
        Role::Far => most_lanes,
        _ => format!("{}, {most_lanes}", link.lanes_max.min(config.lanes.into())),
    };
    [
        memory,
        lanes,
        format!("{} per link{fewer_flows}", link.flows_max),
    ]
}
