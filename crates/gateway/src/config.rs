//! What a gateway was told to do, in valid types: options in, configuration out.
//!
//! [`Options::resolve`] merges flags, the environment, the file and the defaults, in this order,
//! reads the keys and tables that they name, and checks what only shows when options meet. What
//! it returns is trusted from then on.

/// Defines a part of the configuration: each field with the options that it is read from.
///
/// Fields are read in their order, so that one may depend on those before it.
macro_rules! config {
    ($(#[$meta:meta])* pub struct $name:ident($settings:ident $(, $argument:ident: $of:ty)*) {
        $($(#[$doc:meta])* $visible:vis $field:ident: $type:ty = $read:expr;)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* $visible $field: $type,)*
        }

        impl $name {
            pub(super) fn read($settings: &Settings $(, $argument: $of)*) -> Result<Self, ConfigError> {
                $(let $field: $type = $read;)*
                Ok(Self { $($field),* })
            }
        }
    };
}

mod access;
mod admin;
mod history;
mod listeners;

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use refrain_codec::chunk::hash::ChunkHasher;
use refrain_codec::geometry::CacheGeometry;
use refrain_codec::marker::{
    MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes,
};
use refrain_codec::matching::MatchingAlgorithm;
use refrain_codec::simd::Backend;
use refrain_proto::effort::EffortMode;
use refrain_proto::{LinkConfig, Mode, SecondStage, limits};
use tracing::level_filters::LevelFilter;

use crate::access::{Access, parse_client};
use crate::address;
use crate::arguments::{Check, Options, Program};
use crate::http_proxy::{AcceptEncoding, secrets::PrivateAnswers};
use crate::intercept::{self, queue, rule::InterceptRule};
use crate::keys::{PeerKeys, PrivateKey, PublicKey};
use crate::machine;
use crate::opening::Opening;
use crate::options::*;
use crate::origin_tls::OriginTrust;
use crate::pace;
use crate::rules::{AllowRules, ExcludeRules, Route};
use crate::settings::{BoxedError, ConfigError, OptionValue, Readings, Settings, read_text};
use crate::socket::Congestion;
use crate::target::{LANES_PORT, Target, TargetError};
use crate::text_file;
use crate::units::{BitRate, ByteSize, TimeSpan, decimal_bytes};
use crate::via_proxy::ViaProxy;
use crate::way_in::WayIn;
pub use admin::{AdminConfig, AdminToken};
pub use history::{HistoryOptions, parse_folder, parse_realm};
use listeners::{read_intercept_rules, read_ways_in};

/// The least that `--memory` may be: one link with the smallest caches and one lane.
pub(crate) const MEMORY_BYTES_MIN: u64 = 40 << 20;

/// What the pings of 16 lanes may need while flows are open.
const RATE_OF_PINGS: BitRate = BitRate(10_000);

/// What is wrong with a name that no peer has.
const UNKNOWN_PEER: &str = "unknown peer: --peer-key does not have this name or key";

/// Finds the peer that a forward names.
type FindPeer<'a> = &'a dyn Fn(&str) -> Result<Option<PublicKey>, &'static str>;

config! {
    /// What a gateway is to do.
    #[derive(Debug, Clone)]
    pub struct Config(settings, role: Role, key: PrivateKey, peers: PeerKeys, dials: Vec<Dial>, find_peer: FindPeer<'_>) {
        /// Which end it is.
        pub role: Role = role;
        /// This end's key.
        pub key: PrivateKey = key;
        /// The peers' keys and what they are called, at least one.
        pub peers: PeerKeys = peers;
        /// The peers to open lanes to, in the order in which new flows go to them; none at a far end.
        pub dials: Vec<Dial> = dials;
        /// The proxy that lanes to the peers go through.
        pub via_proxy: Option<ViaProxy> = settings.optional(&VIA_PROXY)?;
        /// Where to take lanes: at least one address at a far end, none at a near end.
        pub listen: Vec<SocketAddr> = match role {
            Role::Far => settings.many_with(&LISTEN, address::parse_lanes)?,
            _ => Vec::new(),
        };
        /// Where to keep received data, and how to predict from it.
        pub history: Option<HistoryOptions> = HistoryOptions::resolve(settings, &dials)?;
        /// The bound for all links together.
        pub memory: ByteSize = resolve_memory(settings)?;
        /// The most lanes of a link: up to 16.
        pub lanes_max: u8 = settings.count(&LANES_MAX, 1..=16)?;
        /// The lanes that a near end keeps open per link: 1 to `lanes_max`.
        pub lanes: u8 = match role {
            // Only near ends open lanes.
            Role::Far => settings.count(&LANES, 1..=16)?,
            _ => settings.at_most(&LANES, settings.count(&LANES, 1..=16)?, &LANES_MAX, lanes_max)?,
        };
        /// Listeners for applications, in the order of their options.
        pub ways_in: Vec<WayIn> = read_ways_in(settings, find_peer)?;
        /// The connections that the firewall redirects to the listener for them.
        pub intercept: Vec<InterceptRule> = read_intercept_rules(settings, &ways_in)?;
        /// The peers that flows to some targets go to.
        pub(crate) routes: Vec<Route> = settings.many_with(&ROUTE, |text| parse_route(text, find_peer))?;
        /// The targets that this end connects to for its peer.
        pub allow: AllowRules = match settings.many(&ALLOW)? {
            _ if !settings.is_given(&ALLOW) && role == Role::Far => AllowRules::loopback(),
            rules => AllowRules::new(rules),
        };
        /// The addresses of clients that this end connects from for its peer.
        pub client_addresses: Vec<IpNet> = settings.many_with(&CLIENT_ADDRESSES, parse_client)?;
        /// The certificates of HTTPS origins that this end accepts.
        pub(crate) origin_trust: OriginTrust = match role {
            Role::Far => OriginTrust::resolve(settings)?,
            _ => OriginTrust::of_system(),
        };
        /// The names whose TLS is opened.
        pub(crate) opening: Opening = Opening::resolve(settings)?;
        /// The flows that are sent as they are.
        pub exclude: ExcludeRules = ExcludeRules::new(settings.many(&EXCLUDE)?);
        /// Who may use the listeners for applications.
        pub access: Access = Access::resolve(settings)?;
        /// Where to serve health, metrics and status.
        pub admin: Option<AdminConfig> = admin::resolve_admin(settings)?;
        /// The most that this end sends.
        pub rate: Option<BitRate> = settings.optional_with(&RATE, parse_rate)?;
        /// Which end finds what repeats.
        pub mode: Mode = settings.one(&MODE)?;
        /// What the HTTP proxy asks origins for.
        pub(crate) accept_encoding: AcceptEncoding = settings.one(&ACCEPT_ENCODING)?;
        /// How this end sends the bodies of answers that shared caches must not keep.
        pub(crate) private_answers: PrivateAnswers = settings.one(&PRIVATE_ANSWERS)?;
        /// Whether requests to HTTPS sites, and their answers, are secret unless they are for all clients.
        pub(crate) is_secret_safe: bool = settings.is_on(&SECRET_SAFE)?;
        /// How hard to look for repeats.
        pub effort: EffortMode = settings.one(&EFFORT)?;
        /// The congestion control of lanes.
        pub congestion: Congestion = settings.one_with(&CONGESTION, Congestion::of)?;
        /// One direction's cache: 1 MiB to 4 GiB, at most half of `memory`.
        pub cache: ByteSize = resolve_cache(settings, memory)?;
        /// Whether an option gives it.
        pub(crate) is_cache_given: bool = settings.is_given(&CACHE_SIZE);
        /// The most open flows of a link: 1 to 10,000, fewer with little memory.
        pub flows_max: u16 = settings.count(&FLOWS_MAX, 1..=limits::FLOWS_MAX as u16)?;
        /// How repeats are found.
        pub matching: MatchingConfig = MatchingConfig::read(settings)?;
        /// The times after which the gateway gives up on something.
        pub timeouts: Timeouts = Timeouts::read(settings)?;
        /// How much to log.
        pub log: LevelFilter = settings.one_with(&LOG, parse_level)?;
        /// What all options were read as, once they are.
        pub readings: Readings = Readings::default();
    }
}

config! {
    /// How repeats are found.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MatchingConfig(settings) {
        /// Max-Match or Chunk-Match.
        pub algorithm: MatchingAlgorithm = settings.one(&MATCHING)?;
        /// How the rest is compressed.
        pub second_stage: SecondStage = settings.one(&SECOND_STAGE)?;
        /// How positions are chosen.
        pub marker: MarkerAlgorithm = settings.one(&MARKER)?;
        /// The bytes that SAMPLEBYTE samples.
        pub marker_table: SampleByteTable = resolve_marker_table(settings, marker)?;
        /// How many positions are chosen.
        pub sampling_period: SamplingPeriod = settings.one_with(&SAMPLING_PERIOD, |text| {
            Ok::<_, BoxedError>(SamplingPeriod::new(whole_number(text)?)?)
        })?;
        /// The shortest repeat.
        pub window: WindowBytes = settings.one_with(&WINDOW_BYTES, |text| {
            Ok::<_, BoxedError>(WindowBytes::new(whole_number(text)?)?)
        })?;
        /// The kernels to look for repeats with.
        pub backend: Backend = settings.one(&SIMD)?;
        /// What names chunks.
        pub chunk_hash: ChunkHasher = settings.one(&CHUNK_HASH)?;
    }
}

config! {
    /// The times after which the gateway gives up on something; none is zero.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Timeouts(settings) {
        /// On a connection that does not open.
        pub connect: Duration = settings.timeout(&CONNECT_TIMEOUT)?;
        /// On a flow on which nothing moves.
        pub idle: Duration = settings.timeout(&IDLE_TIMEOUT)?;
        /// On a lane whose peer is silent.
        pub dead_after: Duration = settings.timeout(&DEAD_AFTER)?;
        /// On a link without lanes: its caches go.
        pub(crate) keep_link: Duration = settings.timeout(&KEEP_LINK)?;
        /// On the flows that are open at SIGTERM.
        pub drain: Duration = settings.timeout(&DRAIN_TIMEOUT)?;
    }
}

/// A peer to open lanes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Dial {
    /// Its key.
    pub key: PublicKey,
    /// Where it listens.
    pub address: Target,
}

impl Config {
    /// The names whose TLS this end opens, for people.
    pub fn opens(&self) -> Option<String> {
        self.opening.describe()
    }

    /// What is allowed, and hardly meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.access_warnings();
        warnings.extend(self.ways_in.iter().flat_map(WayIn::warnings));
        warnings.extend(self.origin_trust.warning());
        if let Some(rate) = self.rate.filter(|&rate| rate < RATE_OF_PINGS) {
            warnings.push(format!(
                "--rate {rate} is less than {RATE_OF_PINGS}: the pings of 16 lanes may need that much, so lanes may \
                 time out (units: kbit, Mbit, Gbit)"
            ));
        }
        if let Some(bytes) = machine::memory_bytes().filter(|&bytes| bytes < self.memory.0) {
            warnings.push(format!(
                "--memory {} is more than this machine or container has ({})",
                self.memory,
                decimal_bytes(bytes)
            ));
        }
        if self.uses_clients_addresses() && !intercept::may_use_clients_addresses() {
            warnings.push(
                "this end cannot connect from clients' addresses, so it refuses their connections: grant CAP_NET_RAW \
                 (with systemd: AmbientCapabilities=CAP_NET_RAW)"
                    .to_owned(),
            );
        }
        if self.intercept.iter().any(InterceptRule::is_exact) && !queue::is_permitted() {
            warnings.push(
                "refusal=exact has no effect: clients see a reset, and not a refusal (grant CAP_NET_ADMIN; with systemd: \
                 AmbientCapabilities=CAP_NET_ADMIN)"
                    .to_owned(),
            );
        }
        let mode = self.mode;
        let idle = match self.history.is_some() {
            _ if self.role == Role::Far => return warnings,
            true if !mode.predicts() => format!(
                "with --mode {mode} the store is not used: nothing is predicted or learnt (modes auto and \
                 receiver use it)"
            ),
            false if mode == Mode::Receiver => format!(
                "with --mode {mode} and no --store nothing is predicted: data is only compressed (pass \
                 --store, or use --mode auto)"
            ),
            _ => return warnings,
        };
        warnings.push(idle);
        warnings
    }

    /// What a link's engine is to do, with a cache of this size.
    pub(crate) fn engine(&self, cache: CacheGeometry) -> LinkConfig {
        let matching = &self.matching;
        LinkConfig {
            mode: self.mode,
            matching: matching.algorithm,
            second_stage: matching.second_stage,
            markers: MarkerFinder::new(
                matching.marker,
                matching.sampling_period,
                matching.window,
                matching.marker_table.clone(),
            ),
            chunk_hasher: matching.chunk_hash,
            backend: matching.backend,
            effort: self.effort,
            block_bytes_max: self.rate.map_or(limits::BLOCK_BYTES_MAX, pace::block_bytes),
            dead_after: self.timeouts.dead_after,
            ..LinkConfig::with_cache(cache)
        }
    }
}

impl Options<Check> {
    /// Whether any option says what to check; else the gateway that runs here is asked.
    pub fn names_a_pair(&self) -> bool {
        let of_gateway = [&ADMIN, &ADMIN_TOKEN_FILE, &LOG];
        self.file.is_some() || self.given.has_others_than(&of_gateway)
    }

    /// The gateway that is asked then, if `--admin` names one.
    pub fn admin<T>(&self) -> Result<Option<T>, ConfigError>
    where
        T: OptionValue + FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        self.given.optional(&ADMIN)
    }

    /// The file of that gateway's token.
    pub fn admin_token_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        self.given.optional(&ADMIN_TOKEN_FILE)
    }
}

impl<P: Program> Options<P> {
    /// The configuration. That of a check is its near end's, of which a check uses little: a value
    /// that the near end would not start with is an error here as well; a way in for applications
    /// is not asked for.
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        let settings = self.settings()?;
        let key = load_key(&settings)?;
        let peers = load_peers(&settings, &key)?;
        let role = match P::ROLE {
            Role::Check => Role::Near,
            role => role,
        };
        let dials = match role {
            Role::Far => Vec::new(),
            _ => resolve_dials(&settings, &peers)?,
        };
        let find_peer = |name: &str| match name {
            "" if role == Role::Near => Ok(None),
            "" if peers.len() == 1 => Ok(peers.iter().next()),
            "" => {
                Err("there are several peers: name one at the end, such as 8080:intranet:80@PEER")
            }
            name => peers.find(name).map(Some).ok_or(UNKNOWN_PEER),
        };
        // Logs and tables call a far end by its name, else by its address.
        let called = dials.iter().map(|dial| {
            let name = peers.name(&dial.key).map(str::to_owned);
            (dial.key, name.or_else(|| Some(dial.address.to_string())))
        });
        let called = match role {
            Role::Far => peers.clone(),
            _ => called.collect(),
        };
        let mut config = Config::read(&settings, role, key, called, dials, &find_peer)?;
        if role == Role::Far && config.listen.is_empty() {
            return Err(settings.wrong(&LISTEN, "lists no address, so no peer could connect"));
        }
        listeners::check_distinct(&config.listeners(), &settings)?;
        config.check_access(&settings)?;
        config.readings = settings.into_readings();
        Ok(config)
    }

    /// Each option that was given, with its value as it was written; a secret one is not shown.
    pub fn given(&self) -> Result<Vec<(&'static OptionSpec, String)>, ConfigError> {
        let settings = self.settings()?;
        let given = P::ROLE.options().filter(|spec| settings.is_given(spec));
        Ok(given.map(|spec| (spec, settings.shown(spec))).collect())
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let mut settings = self.given.clone();
        if let Some(path) = &self.file {
            settings = settings.over(Settings::read_file(self.file_option, path, P::ROLE)?);
        }
        settings.check_complete(P::ROLE)?;
        Ok(settings)
    }
}

const CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=4 << 30;

/// For a machine that does not say how much memory it has.
const MEMORY_BYTES_FALLBACK: u64 = 1 << 30;

impl Settings {
    fn count<T>(
        &self,
        spec: &'static OptionSpec,
        range: RangeInclusive<T>,
    ) -> Result<T, ConfigError>
    where
        T: OptionValue + FromStr + PartialOrd + fmt::Display,
    {
        self.one_with(spec, |text| match text.parse() {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => {
                let (start, end) = (range.start(), range.end());
                Err(format!("expected a number from {start} to {end}"))
            }
        })
    }

    /// The value of an option that must not be more than that of another. An error is about one that was given.
    fn at_most<T: PartialOrd + fmt::Display>(
        &self,
        spec: &'static OptionSpec,
        value: T,
        most: &'static OptionSpec,
        bound: T,
    ) -> Result<T, ConfigError> {
        if value <= bound {
            return Ok(value);
        }
        let by_default = |spec| match self.is_given(spec) {
            true => "",
            false => " by default",
        };
        Err(match self.is_given(spec) {
            true => {
                let bound = format!("{}, which is {bound}{}", most.flag(), by_default(most));
                self.wrong(spec, format!("must not be more than {bound}"))
            }
            false => {
                let value = format!("{}, which is {value}{}", spec.flag(), by_default(spec));
                self.wrong(most, format!("must not be less than {value}"))
            }
        })
    }

    fn timeout(&self, spec: &'static OptionSpec) -> Result<Duration, ConfigError> {
        self.one_with(spec, |text| match text.parse()? {
            TimeSpan(Duration::ZERO) => Err(BoxedError::from("must be greater than zero")),
            TimeSpan(timeout) => Ok(timeout),
        })
    }
}

fn load_key(settings: &Settings) -> Result<PrivateKey, ConfigError> {
    settings.one_with(&KEY, |path| PrivateKey::load(Path::new(path)))
}

fn load_peers(settings: &Settings, own: &PrivateKey) -> Result<PeerKeys, ConfigError> {
    let values: Vec<String> = settings.many(&PEER_KEY)?;
    // Each alone at first, so that an error is about the value that it names. A name that changed is
    // no change of the peer.
    settings.many_with(&PEER_KEY, |value| {
        let keys = PeerKeys::load(&[value])?;
        match keys.contains(&own.public()) {
            true => Err(BoxedError::from(
                "this is the public key of this end's own --key, but the peer's public key is needed (at the peer, \
                 `refrain keygen --show FILE` prints it)",
            )),
            false => Ok(keys.iter().collect::<Vec<_>>()),
        }
    })?;
    let peers = PeerKeys::load(&values).map_err(|error| settings.wrong(&PEER_KEY, error))?;
    match peers.is_empty() {
        true => Err(settings.wrong(
            &PEER_KEY,
            "contains no public key (give a FILE.pub of `refrain keygen FILE`)",
        )),
        false => Ok(peers),
    }
}

/// The peers of a near end: each has a key of its own, by its name unless it is the only one.
fn resolve_dials(settings: &Settings, peers: &PeerKeys) -> Result<Vec<Dial>, ConfigError> {
    let given = settings.many_with(&PEER, |text| {
        let (name, address) = match text.rsplit_once('=') {
            Some((name, address)) => (Some(name.to_owned()), address),
            None => (None, text),
        };
        let address = Target::with_default_port(address, LANES_PORT)?.unless_mistyped()?;
        Ok::<_, TargetError>((name, address))
    })?;
    if given.len() != peers.len() {
        let (given, keys) = (given.len(), peers.len());
        let counts = format!(
            "each --peer needs its own key: expected {given}, found {keys} (give one --peer-key per --peer)"
        );
        return Err(settings.wrong(&PEER_KEY, counts));
    }
    let only = peers.iter().next().filter(|_| peers.len() == 1);
    let mut dials: Vec<Dial> = Vec::new();
    for (nth, (name, address)) in given.into_iter().enumerate() {
        let key = match name {
            Some(name) => peers.find(&name).ok_or_else(|| unknown_peer(&name)),
            None => only.ok_or_else(|| {
                "there are several peers: give each the name of its key, such as bonn=far.example"
                    .to_owned()
            }),
        };
        let key = key.map_err(|reason| settings.wrong_nth(&PEER, nth, reason))?;
        if let Some(Dial { address, .. }) = dials.iter().find(|dial| dial.key == key) {
            let reason =
                format!("has the same key as --peer {address}: each far end needs its own key");
            return Err(settings.wrong_nth(&PEER, nth, reason));
        }
        dials.push(Dial { key, address });
    }
    Ok(dials)
}

/// What is wrong with the name of a peer, or its key, that no key has.
fn unknown_peer(name: &str) -> String {
    match name.parse::<PublicKey>() {
        Ok(_) => UNKNOWN_PEER.to_owned(),
        Err(_) => format!(
            "no --peer-key has the name \"{name}\" (give --peer-key {name}=KEY or {name}=FILE)"
        ),
    }
}

fn resolve_marker_table(
    settings: &Settings,
    marker: MarkerAlgorithm,
) -> Result<SampleByteTable, ConfigError> {
    let table = settings.optional_with(&MARKER_TABLE, |path| {
        let path = Path::new(path);
        let text = read_text(path);
        let text =
            text.map_err(|error| format!("{}: {error}", text_file::failure(path, &error)))?;
        Ok::<_, BoxedError>(SampleByteTable::parse(&text)?)
    })?;
    match table.is_some() && marker != MarkerAlgorithm::SampleByte {
        true => Err(settings.wrong(&MARKER_TABLE, "needs --marker samplebyte")),
        false => Ok(table.unwrap_or_default()),
    }
}

fn resolve_memory(settings: &Settings) -> Result<ByteSize, ConfigError> {
    let quarter = || machine::memory_bytes().map_or(MEMORY_BYTES_FALLBACK, |bytes| bytes / 4);
    let memory = settings.optional(&MEMORY)?;
    let memory = memory.unwrap_or_else(|| ByteSize(quarter()));
    match memory.0 {
        MEMORY_BYTES_MIN.. => Ok(memory),
        _ => Err(settings.wrong(
            &MEMORY,
            wrong_size(
                "expected 40MiB or more (for the smallest link)",
                MEMORY_BYTES_MIN,
                memory,
            ),
        )),
    }
}

fn resolve_cache(settings: &Settings, memory: ByteSize) -> Result<ByteSize, ConfigError> {
    let cache: ByteSize = settings.one(&CACHE_SIZE)?;
    if !CACHE_BYTES.contains(&cache.0) {
        return Err(settings.wrong(
            &CACHE_SIZE,
            wrong_size(
                "expected a size from 1MiB to 4GiB",
                *CACHE_BYTES.start(),
                cache,
            ),
        ));
    }
    if cache.0 <= memory.0 / 2 {
        return Ok(cache);
    }
    match settings.is_given(&CACHE_SIZE) {
        true => {
            let need = format!("two caches of {cache}, one per direction, need more");
            Err(settings.wrong(
                &CACHE_SIZE,
                format!("{need} than --memory, which is {memory}"),
            ))
        }
        false => Ok(ByteSize(memory.0 / 2)),
    }
}

fn parse_level(text: &str) -> Result<LevelFilter, &'static str> {
    let level = text.parse();
    level.map_err(|_| "expected error, warn, info, debug or trace")
}

fn whole_number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

/// What is wrong with a size that must be at least `min`. A few bytes are most likely a number without its unit.
fn wrong_size(expected: &str, min: u64, found: ByteSize) -> String {
    match found.0 {
        bytes @ 1..1024 => {
            let plural = if bytes == 1 { "" } else { "s" };
            let unit = if bytes << 20 < min { "GiB" } else { "MiB" };
            format!("{expected}, found {bytes} byte{plural} (add a unit, such as {bytes}{unit})")
        }
        _ => format!("{expected}, found {found}"),
    }
}

fn parse_rate(text: &str) -> Result<BitRate, BoxedError> {
    match text.parse()? {
        BitRate(0) => Err("must be greater than zero".into()),
        rate => Ok(rate),
    }
}

/// `HOST:PORT@PEER`.
fn parse_route(text: &str, find_peer: FindPeer<'_>) -> Result<Route, BoxedError> {
    let expected = "expected targets and a peer, such as *.bonn.example:*@bonn";
    let (targets, peer) = text.split_once('@').ok_or(expected)?;
    Ok(Route {
        targets: targets.parse()?,
        peer: find_peer(peer)?.ok_or(expected)?,
    })
}

#[cfg(test)]
mod tests;
