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
        $($(#[$doc:meta])* pub $field:ident: $type:ty = $read:expr;)*
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
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
mod mismatch;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use refrain_codec::chunk::hash::ChunkHasher;
use refrain_codec::geometry::CacheGeometry;
use refrain_codec::marker::{
    MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes,
};
use refrain_codec::matching::MatchingAlgorithm;
use refrain_codec::simd::{Backend, BackendChoice};
use refrain_proto::effort::EffortMode;
use refrain_proto::{LinkConfig, Mode, limits};
use tracing::level_filters::LevelFilter;

use crate::access::Access;
use crate::address::{self, ListenError};
use crate::arguments::*;
use crate::keys::{PeerKeys, PrivateKey, PublicKey};
use crate::machine;
use crate::options::*;
use crate::pace;
use crate::rules::{AllowRules, ExcludeRules};
use crate::settings::{ConfigError, OptionValue, Readings, Settings, read_text};
use crate::target::{LANES_PORT, Target};
use crate::units::{BitRate, ByteSize, TimeSpan};
use crate::way_in::WayIn;
pub use admin::{AdminConfig, AdminToken};
pub use history::HistoryOptions;
pub use mismatch::Mismatch;

/// The least that `--memory` may be: one link with the smallest caches and one lane.
pub(crate) const MEMORY_BYTES_MIN: u64 = 40 << 20;

/// Finds the peer that a forward names.
type FindPeer<'a> = &'a dyn Fn(&str) -> Result<Option<PublicKey>, Mismatch>;

config! {
    /// What `refrain near` is to do.
    #[derive(Debug, Clone)]
    pub struct NearConfig(settings, peers: &PeerKeys, key: PrivateKey, find_peer: FindPeer<'_>) {
        /// The far end's address.
        pub peer: Target = settings.one_with(&PEER, |text| Target::with_default_port(text, LANES_PORT))?;
        /// The far end's key.
        pub peer_key: PublicKey = only_peer(settings, peers)?;
        /// The far end's name, if it was given one.
        pub peer_name: Option<String> = peers.name(&peer_key).map(str::to_owned);
        /// Where to keep received data, and how to predict from it.
        pub history: Option<HistoryOptions> = HistoryOptions::resolve(settings, &peer_key)?;
        /// The configuration that both ends have.
        pub common: CommonConfig = CommonConfig::read(settings, key, AllowRules::new(Vec::new()), find_peer)?;
    }
}

config! {
    /// What `refrain far` is to do.
    #[derive(Debug, Clone)]
    pub struct FarConfig(settings, peers: PeerKeys, key: PrivateKey, find_peer: FindPeer<'_>) {
        /// The configuration that both ends have.
        pub common: CommonConfig = CommonConfig::read(settings, key, AllowRules::loopback(), find_peer)?;
        /// Where to take lanes, at least one address.
        pub listen: Vec<SocketAddr> = match settings.many_with(&LISTEN, address::parse_lanes)? {
            none if none.is_empty() => return Err(settings.wrong(&LISTEN, Mismatch::NoListener)),
            addresses => addresses,
        };
        /// The peers, at least one.
        pub peers: PeerKeys = peers;
    }
}

config! {
    /// The configuration that both ends have.
    #[derive(Debug, Clone)]
    pub struct CommonConfig(settings, key: PrivateKey, default_allow: AllowRules, find_peer: FindPeer<'_>) {
        /// This end's key.
        pub key: PrivateKey = key;
        /// The bound for all links together.
        pub memory: ByteSize = resolve_memory(settings)?;
        /// The most lanes of a link: up to 16.
        pub lanes_max: u8 = settings.count(&LANES_MAX, 1..=16)?;
        /// The lanes that a link keeps open: 1 to `lanes_max`.
        pub lanes: u8 = match settings.count(&LANES, 1..=16)? {
            lanes if lanes > lanes_max => return Err(settings.wrong(&LANES, Mismatch::LanesAboveMax(lanes_max))),
            lanes => lanes,
        };
        /// Listeners for applications, in the order of their options.
        pub ways_in: Vec<WayIn> = read_ways_in(settings, find_peer)?;
        /// The targets that this end connects to for its peer.
        pub allow: AllowRules = match settings.many(&ALLOW)? {
            _ if !settings.is_given(&ALLOW) => default_allow,
            rules => AllowRules::new(rules),
        };
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
        /// How hard to look for repeats.
        pub effort: EffortMode = settings.one_with(&EFFORT, |text| match text {
            "auto" => Ok(EffortMode::Auto),
            "max" => Ok(EffortMode::Max),
            _ => Err(Mismatch::Effort),
        })?;
        /// One direction's cache: 1 MiB to 4 GiB, at most half of `memory`.
        pub cache: ByteSize = resolve_cache(settings, memory)?;
        /// The most open flows of a link: 1 to 10,000, fewer with little memory.
        pub flows_max: u16 = settings.count(&FLOWS_MAX, 1..=limits::FLOWS_MAX as u16)?;
        /// How repeats are found.
        pub matching: MatchingConfig = MatchingConfig::read(settings)?;
        /// The times after which the gateway gives up on something.
        pub timeouts: Timeouts = Timeouts::read(settings)?;
        /// How much to log.
        pub log: LevelFilter = settings.one(&LOG)?;
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
        /// How positions are chosen.
        pub marker: MarkerAlgorithm = settings.one(&MARKER)?;
        /// The bytes that SAMPLEBYTE samples.
        pub marker_table: SampleByteTable = resolve_marker_table(settings, marker)?;
        /// How many positions are chosen.
        pub sampling_period: SamplingPeriod = settings.one_with(&SAMPLING_PERIOD, |text| {
            Ok::<_, BoxedError>(SamplingPeriod::new(text.parse()?)?)
        })?;
        /// The shortest repeat.
        pub window: WindowBytes = settings.one_with(&WINDOW_BYTES, |text| {
            Ok::<_, BoxedError>(WindowBytes::new(text.parse()?)?)
        })?;
        /// The kernels to look for repeats with.
        pub backend: Backend = settings.one_with(&SIMD, |text| {
            text.parse().map(BackendChoice::backend)
        })?;
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
        pub keep_link: Duration = settings.timeout(&KEEP_LINK)?;
        /// On the flows that are open at SIGTERM.
        pub drain: Duration = settings.timeout(&DRAIN_TIMEOUT)?;
    }
}

impl Options<Near> {
    /// The near end's configuration.
    pub fn resolve(&self) -> Result<NearConfig, ConfigError> {
        NearConfig::resolve(self.settings()?)
    }
}

impl NearConfig {
    fn resolve(settings: Settings) -> Result<NearConfig, ConfigError> {
        let key = load_key(&settings)?;
        let peers = load_peers(&settings, &key)?;
        let find_peer = |name: &str| match name {
            "" => Ok(None),
            name => peers.find(name).map(Some).ok_or(Mismatch::UnknownPeer),
        };
        let mut config = NearConfig::read(&settings, &peers, key, &find_peer)?;
        listeners::check_distinct(&config.listeners(), &settings)?;
        config.common.check_access(&settings)?;
        config.common.readings = settings.into_readings();
        Ok(config)
    }

    /// The far end, as logs and tables call it: by its name, else by its address.
    pub(crate) fn labels(&self) -> PeerKeys {
        let name = self.peer_name.clone();
        let name = name.unwrap_or_else(|| self.peer.to_string());
        PeerKeys::of_one(self.peer_key, Some(name))
    }

    /// What is allowed, and hardly meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.common.access_warnings();
        let mode = self.common.mode;
        let idle = match self.history.is_some() {
            true if !mode.predicts() => format!(
                "with --mode {mode} the store is not used: nothing is predicted, and nothing learnt; \
                 modes auto and receiver use it"
            ),
            false if mode == Mode::Receiver => format!(
                "with --mode {mode} and no --store nothing is saved: bytes are carried as they are; give \
                 it a --store, or use mode auto"
            ),
            _ => return warnings,
        };
        warnings.push(idle);
        warnings
    }
}

impl FarConfig {
    /// What is allowed, and hardly meant.
    pub fn warnings(&self) -> Vec<String> {
        self.common.access_warnings()
    }
}

impl Options<Far> {
    /// The far end's configuration.
    pub fn resolve(&self) -> Result<FarConfig, ConfigError> {
        let settings = self.settings()?;
        let key = load_key(&settings)?;
        let peers = load_peers(&settings, &key)?;
        let find_peer = |name: &str| match (name, peers.len()) {
            ("", 1) => Ok(peers.iter().next()),
            ("", _) => Err(Mismatch::WhichPeer),
            (name, _) => peers.find(name).map(Some).ok_or(Mismatch::UnknownPeer),
        };
        let mut config = FarConfig::read(&settings, peers.clone(), key, &find_peer)?;
        listeners::check_distinct(&config.listeners(), &settings)?;
        config.common.check_access(&settings)?;
        config.common.readings = settings.into_readings();
        Ok(config)
    }
}

impl Options<Check> {
    /// Whether any option says what to check; else the gateway that runs here is asked.
    pub fn names_a_pair(&self) -> bool {
        self.file.is_some() || self.given.has_others_than(&[&ADMIN, &LOG])
    }

    /// The gateway that is asked then, if `--admin` names one.
    pub fn admin<T>(&self) -> Result<Option<T>, ConfigError>
    where
        T: OptionValue + FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        self.given.optional(&ADMIN)
    }

    /// What to check, of which a check uses little. A value that the near end would not start with is
    /// an error here as well; a way in for applications is not asked for.
    pub fn resolve(&self) -> Result<NearConfig, ConfigError> {
        NearConfig::resolve(self.settings()?)
    }
}

impl<P: Program> Options<P> {
    /// Each option that was given, with its value as it was written; a secret one is not shown.
    pub fn given(&self) -> Result<Vec<(&'static OptionSpec, String)>, ConfigError> {
        let settings = self.settings()?;
        let given = P::ROLE.options().filter(|spec| settings.is_given(spec));
        Ok(given.map(|spec| (spec, settings.shown(spec))).collect())
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let mut settings = self.given.clone();
        if let Some(path) = &self.file {
            settings = settings.over(Settings::read_file(path, P::ROLE)?);
        }
        settings.check_complete(P::ROLE)?;
        Ok(settings)
    }
}

impl CommonConfig {
    /// What a link's engine is to do, with a cache of this size.
    pub(crate) fn engine(&self, cache: CacheGeometry) -> LinkConfig {
        let matching = &self.matching;
        LinkConfig {
            mode: self.mode,
            matching: matching.algorithm,
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

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

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
        T: OptionValue + FromStr + PartialOrd + Into<u16> + Copy,
    {
        self.one_with(spec, |text| match text.parse() {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => {
                let (start, end) = (*range.start(), *range.end());
                Err(Mismatch::OutOfRange(start.into(), end.into()))
            }
        })
    }

    fn timeout(&self, spec: &'static OptionSpec) -> Result<Duration, ConfigError> {
        self.one_with(spec, |text| match text.parse()? {
            TimeSpan(Duration::ZERO) => Err(BoxedError::from(Mismatch::Zero)),
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
            true => Err(BoxedError::from(Mismatch::OwnKey)),
            false => Ok(keys.iter().collect::<Vec<_>>()),
        }
    })?;
    let peers = PeerKeys::load(&values).map_err(|error| settings.wrong(&PEER_KEY, error))?;
    match peers.is_empty() {
        true => Err(settings.wrong(&PEER_KEY, Mismatch::NoPeers)),
        false => Ok(peers),
    }
}

fn only_peer(settings: &Settings, peers: &PeerKeys) -> Result<PublicKey, ConfigError> {
    let mut keys = peers.iter();
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        _ => Err(settings.wrong(&PEER_KEY, Mismatch::NotOnePeer(peers.len()))),
    }
}

fn resolve_marker_table(
    settings: &Settings,
    marker: MarkerAlgorithm,
) -> Result<SampleByteTable, ConfigError> {
    let table = settings.optional_with(&MARKER_TABLE, |path| {
        let text = read_text(Path::new(path))?;
        Ok::<_, BoxedError>(SampleByteTable::parse(&text)?)
    })?;
    match table.is_some() && marker != MarkerAlgorithm::SampleByte {
        true => Err(settings.wrong(&MARKER_TABLE, Mismatch::TableUnused)),
        false => Ok(table.unwrap_or_default()),
    }
}

fn resolve_memory(settings: &Settings) -> Result<ByteSize, ConfigError> {
    let quarter = || machine::memory_bytes().map_or(MEMORY_BYTES_FALLBACK, |bytes| bytes / 4);
    let memory = settings.optional(&MEMORY)?;
    let memory = memory.unwrap_or_else(|| ByteSize(quarter()));
    match memory.0 {
        MEMORY_BYTES_MIN.. => Ok(memory),
        _ => Err(settings.wrong(&MEMORY, Mismatch::MemoryTooSmall)),
    }
}

fn resolve_cache(settings: &Settings, memory: ByteSize) -> Result<ByteSize, ConfigError> {
    let cache: ByteSize = settings.one(&CACHE)?;
    if !CACHE_BYTES.contains(&cache.0) {
        return Err(settings.wrong(&CACHE, Mismatch::CacheSize));
    }
    if cache.0 <= memory.0 / 2 {
        return Ok(cache);
    }
    match settings.is_given(&CACHE) {
        true => Err(settings.wrong(&CACHE, Mismatch::CacheAboveMemory(cache, memory))),
        false => Ok(ByteSize(memory.0 / 2)),
    }
}

fn parse_rate(text: &str) -> Result<BitRate, BoxedError> {
    match text.parse()? {
        BitRate(0) => Err(Mismatch::Zero.into()),
        rate => Ok(rate),
    }
}

fn read_ways_in(settings: &Settings, find_peer: FindPeer<'_>) -> Result<Vec<WayIn>, ConfigError> {
    let read = |spec: &'static OptionSpec| match spec.entrance {
        Some(Entrance::Forward) => settings.many_with(spec, |text| parse_forward(text, find_peer)),
        _ => settings.many_with(spec, |text| {
            Ok::<_, ListenError>(WayIn::proxy(spec, address::parse_listen(text)?))
        }),
    };
    let ways_in = ways_in().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(ways_in.concat())
}

/// `LISTEN=TARGET` or, as ssh has it, `LISTEN:TARGET`; with `@PEER` or without.
fn parse_forward(
    text: &str,
    find_peer: impl Fn(&str) -> Result<Option<PublicKey>, Mismatch>,
) -> Result<WayIn, BoxedError> {
    // First, for a key has equals signs.
    let (ends, peer) = text.split_once('@').unwrap_or((text, ""));
    let ends = ends.split_once('=').or_else(|| split_at_target(ends));
    let (listen, target) = ends.ok_or(Mismatch::Forward)?;
    Ok(WayIn {
        option: &FORWARD,
        listen: address::parse_listen(listen)?,
        target: Some(target.parse()?),
        peer: find_peer(peer)?,
    })
}

/// Splits at the colon in front of the `HOST:PORT` at the end.
fn split_at_target(text: &str) -> Option<(&str, &str)> {
    let (rest, _port) = text.rsplit_once(':')?;
    let host_at = match rest.ends_with(']') {
        true => rest.rfind('[')?,
        false => rest.rfind(':')? + 1,
    };
    let listen = rest[..host_at].strip_suffix(':')?;
    Some((listen, &text[host_at..]))
}

#[cfg(test)]
mod tests;
