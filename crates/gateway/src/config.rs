//! What a gateway was told to do, in valid types: options in, configuration out.
//!
//! [`Options::resolve`] merges flags, the environment, the file and the defaults, in this order,
//! reads the keys and tables that they name, and checks what only shows when options meet. What
//! it returns is trusted from then on.

mod access;
mod admin;
mod changes;
mod history;
mod listeners;
mod mismatch;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use refrain_codec::chunk::hash::ChunkHasher;
use refrain_codec::marker::{MarkerAlgorithm, SampleByteTable, SamplingPeriod, WindowBytes};
use refrain_codec::matching::MatchingAlgorithm;
use refrain_codec::simd::{Backend, BackendChoice};
use refrain_proto::{Mode, limits};
use tracing::level_filters::LevelFilter;

use crate::access::Access;
use crate::address;
use crate::keys::{PeerKeys, PrivateKey, PublicKey};
use crate::machine;
use crate::memory::MEMORY_BYTES_MIN;
use crate::options::{
    ADMIN, ALLOW, CACHE, CHUNK_HASH, CONNECT_TIMEOUT, Check, DEAD_AFTER, DRAIN_TIMEOUT, EFFORT,
    EXCLUDE, FLOWS_MAX, FORWARD, Far, HTTP_PROXY, IDLE_TIMEOUT, KEEP_LINK, KEY, LANES, LANES_MAX,
    LISTEN, LOG, MARKER, MARKER_TABLE, MATCHING, MEMORY, MODE, Near, OptionSpec, Options, PEER,
    PEER_KEY, Program, RATE, SAMPLING_PERIOD, SIMD, SOCKS5, WINDOW_BYTES,
};
use crate::rules::{AllowRules, ExcludeRules};
use crate::settings::{ConfigError, Settings, read_text};
use crate::target::{LANES_PORT, Target};
use crate::units::{BitRate, ByteSize, TimeSpan};
pub use admin::{AdminConfig, AdminToken};
pub use history::HistoryOptions;
pub use mismatch::Mismatch;

/// What `refrain near` is to do.
#[derive(Debug, Clone)]
pub struct NearConfig {
    /// The far end's address.
    pub peer: Target,
    /// The far end's key.
    pub peer_key: PublicKey,
    /// The far end's name, if it was given one.
    pub peer_name: Option<String>,
    /// Where to serve SOCKS5.
    pub socks5: Option<SocketAddr>,
    /// Where to serve as an HTTP proxy.
    pub http_proxy: Option<SocketAddr>,
    /// Where to keep what comes, and how to predict from it.
    pub history: Option<HistoryOptions>,
    /// What both ends are told.
    pub common: CommonConfig,
}

/// What `refrain far` is to do.
#[derive(Debug, Clone)]
pub struct FarConfig {
    /// Where to take lanes, at least one address.
    pub listen: Vec<SocketAddr>,
    /// The peers, at least one.
    pub peers: PeerKeys,
    /// What both ends are told.
    pub common: CommonConfig,
}

/// What `refrain check` is to check.
#[derive(Debug, Clone)]
pub struct CheckConfig {
    /// The far end's address.
    pub peer: Target,
    /// The far end's key.
    pub peer_key: PublicKey,
    /// This end's key.
    pub key: PrivateKey,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How much to log.
    pub log: LevelFilter,
}

/// What both ends are told.
#[derive(Debug, Clone)]
pub struct CommonConfig {
    /// This end's key.
    pub key: PrivateKey,
    /// Listeners whose connections go to one target behind a peer.
    pub forwards: Vec<Forward>,
    /// The targets that this end connects to for its peer.
    pub allow: AllowRules,
    /// The flows that are sent as they are.
    pub exclude: ExcludeRules,
    /// Who may use the listeners for applications.
    pub access: Access,
    /// Where to serve health, metrics and status.
    pub admin: Option<AdminConfig>,
    /// The most that this end sends.
    pub rate: Option<BitRate>,
    /// Which end finds what repeats.
    pub mode: Mode,
    /// How hard to look for repeats.
    pub effort: Effort,
    /// One direction's cache: 1 MiB to 4 GiB, at most half of `memory`.
    pub cache: ByteSize,
    /// The bound for all links together.
    pub memory: ByteSize,
    /// The lanes that a link keeps open: 1 to `lanes_max`.
    pub lanes: u8,
    /// The most lanes of a link: up to 16.
    pub lanes_max: u8,
    /// The most open flows of a link: 1 to 10,000, fewer with little memory.
    pub flows_max: u16,
    /// How repeats are found.
    pub matching: MatchingConfig,
    /// The times after which the gateway gives up on something.
    pub timeouts: Timeouts,
    /// How much to log.
    pub log: LevelFilter,
}

/// How repeats are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchingConfig {
    /// Max-Match or Chunk-Match.
    pub algorithm: MatchingAlgorithm,
    /// How positions are chosen.
    pub marker: MarkerAlgorithm,
    /// The bytes that SAMPLEBYTE samples.
    pub marker_table: SampleByteTable,
    /// How many positions are chosen.
    pub sampling_period: SamplingPeriod,
    /// The shortest repeat.
    pub window: WindowBytes,
    /// The kernels to look for repeats with.
    pub backend: Backend,
    /// What names chunks.
    pub chunk_hash: ChunkHasher,
}

/// The times after which the gateway gives up on something; none is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// On a connection that does not open.
    pub connect: Duration,
    /// On a flow on which nothing moves.
    pub idle: Duration,
    /// On a lane whose peer is silent.
    pub dead_after: Duration,
    /// On a link without lanes: its caches go.
    pub keep_link: Duration,
    /// On the flows that are open at SIGTERM.
    pub drain: Duration,
}

/// A listener whose connections go to one target behind a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the peer connects to.
    pub target: Target,
    /// The peer.
    pub peer: PublicKey,
}

/// How hard an encoder looks for repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As the balance of CPU and link suggests.
    Auto,
    /// Always as hard as possible.
    Max,
}

impl Options<Near> {
    /// The near end's configuration.
    pub fn resolve(&self) -> Result<NearConfig, ConfigError> {
        NearConfig::resolve(&self.settings()?)
    }
}

impl NearConfig {
    /// The far end, as logs and tables call it: by its name, else by its address.
    pub(crate) fn labels(&self) -> PeerKeys {
        let name = self.peer_name.clone();
        let name = name.unwrap_or_else(|| self.peer.to_string());
        PeerKeys::of_one(self.peer_key, Some(name))
    }

    fn resolve(settings: &Settings) -> Result<NearConfig, ConfigError> {
        let key = load_key(settings)?;
        let peers = load_peers(settings, &key)?;
        let peer_key = only_peer(settings, &peers)?;
        let find_peer = |name: &str| match name {
            "" => Ok(peer_key),
            name => peers.find(name).ok_or(Mismatch::UnknownPeer),
        };
        let config = NearConfig {
            peer: settings.one_with(&PEER, |text| Target::with_default_port(text, LANES_PORT))?,
            peer_key,
            peer_name: peers.name(&peer_key).map(str::to_owned),
            socks5: settings.optional_listener(&SOCKS5)?,
            http_proxy: settings.optional_listener(&HTTP_PROXY)?,
            history: HistoryOptions::resolve(settings, &peer_key)?,
            common: CommonConfig::resolve(settings, key, AllowRules::new(Vec::new()), find_peer)?,
        };
        listeners::check_distinct(&config.listeners(), settings)?;
        config.check_users_are_asked(settings)?;
        config.common.check_access(&config.ways_in(), settings)?;
        Ok(config)
    }

    /// What is allowed, and hardly meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.common.access_warnings(&self.ways_in());
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
        let ways_in: Vec<_> = self.common.ways_in().collect();
        self.common.access_warnings(&ways_in)
    }
}

impl Options<Far> {
    /// The far end's configuration.
    pub fn resolve(&self) -> Result<FarConfig, ConfigError> {
        let settings = self.settings()?;
        let key = load_key(&settings)?;
        let peers = load_peers(&settings, &key)?;
        let find_peer = |name: &str| match (name, peers.len()) {
            ("", 1) => Ok(peers.iter().next().expect("a set of one")),
            ("", _) => Err(Mismatch::WhichPeer),
            (name, _) => peers.find(name).ok_or(Mismatch::UnknownPeer),
        };
        let common = CommonConfig::resolve(&settings, key, AllowRules::loopback(), find_peer)?;
        let listen = settings.many_with(&LISTEN, address::parse_lanes)?;
        if listen.is_empty() {
            return Err(settings.wrong(&LISTEN, Mismatch::NoListener));
        }
        let config = FarConfig {
            listen,
            peers,
            common,
        };
        listeners::check_distinct(&config.listeners(), &settings)?;
        let ways_in: Vec<_> = config.common.ways_in().collect();
        config.common.check_access(&ways_in, &settings)?;
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
        T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        self.given.optional(&ADMIN)
    }

    /// What to check. A value that the near end would not start with is an error here as well,
    /// whether a check uses it or not; a way in for applications is not asked for.
    pub fn resolve(&self) -> Result<CheckConfig, ConfigError> {
        let near = NearConfig::resolve(&self.settings()?)?;
        Ok(CheckConfig {
            peer: near.peer,
            peer_key: near.peer_key,
            key: near.common.key,
            connect_timeout: near.common.timeouts.connect,
            log: near.common.log,
        })
    }
}

impl<P: Program> Options<P> {
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
    fn resolve(
        settings: &Settings,
        key: PrivateKey,
        default_allow: AllowRules,
        find_peer: impl Fn(&str) -> Result<PublicKey, Mismatch>,
    ) -> Result<CommonConfig, ConfigError> {
        let memory = resolve_memory(settings)?;
        let lanes_max = settings.count(&LANES_MAX, 1..=16)?;
        let lanes = settings.count(&LANES, 1..=16)?;
        if lanes > lanes_max {
            return Err(settings.wrong(&LANES, Mismatch::LanesAboveMax(lanes_max)));
        }
        let allow = match settings.is_given(&ALLOW) {
            true => AllowRules::new(settings.many(&ALLOW)?),
            false => default_allow,
        };
        Ok(CommonConfig {
            key,
            forwards: settings.many_with(&FORWARD, |text| parse_forward(text, &find_peer))?,
            allow,
            exclude: ExcludeRules::new(settings.many(&EXCLUDE)?),
            access: Access::resolve(settings)?,
            admin: admin::resolve_admin(settings)?,
            rate: settings.optional_with(&RATE, parse_rate)?,
            mode: settings.one(&MODE)?,
            effort: settings.one(&EFFORT)?,
            cache: resolve_cache(settings, memory)?,
            memory,
            lanes,
            lanes_max,
            flows_max: settings.count(&FLOWS_MAX, 1..=limits::FLOWS_MAX as u16)?,
            matching: MatchingConfig::resolve(settings)?,
            timeouts: Timeouts::resolve(settings)?,
            log: settings.one(&LOG)?,
        })
    }
}

impl MatchingConfig {
    fn resolve(settings: &Settings) -> Result<MatchingConfig, ConfigError> {
        let table = settings.optional_with(&MARKER_TABLE, |path| {
            let text = read_text(Path::new(path))?;
            Ok::<_, BoxedError>(SampleByteTable::parse(&text)?)
        })?;
        let marker = settings.one(&MARKER)?;
        if table.is_some() && marker != MarkerAlgorithm::SampleByte {
            return Err(settings.wrong(&MARKER_TABLE, Mismatch::TableUnused));
        }
        Ok(MatchingConfig {
            algorithm: settings.one(&MATCHING)?,
            marker,
            marker_table: table.unwrap_or_default(),
            sampling_period: settings.one_with(&SAMPLING_PERIOD, |text| {
                Ok::<_, BoxedError>(SamplingPeriod::new(text.parse()?)?)
            })?,
            window: settings.one_with(&WINDOW_BYTES, |text| {
                Ok::<_, BoxedError>(WindowBytes::new(text.parse()?)?)
            })?,
            backend: settings.one::<BackendChoice>(&SIMD)?.backend(),
            chunk_hash: settings.one(&CHUNK_HASH)?,
        })
    }
}

impl Timeouts {
    fn resolve(settings: &Settings) -> Result<Timeouts, ConfigError> {
        Ok(Timeouts {
            connect: settings.timeout(&CONNECT_TIMEOUT)?,
            idle: settings.timeout(&IDLE_TIMEOUT)?,
            dead_after: settings.timeout(&DEAD_AFTER)?,
            keep_link: settings.timeout(&KEEP_LINK)?,
            drain: settings.timeout(&DRAIN_TIMEOUT)?,
        })
    }
}

impl FromStr for Effort {
    type Err = Mismatch;

    fn from_str(text: &str) -> Result<Effort, Mismatch> {
        match text {
            "auto" => Ok(Effort::Auto),
            "max" => Ok(Effort::Max),
            _ => Err(Mismatch::Effort),
        }
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Effort::Auto => "auto",
            Effort::Max => "max",
        })
    }
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

const CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=4 << 30;

/// For a machine that does not say how much memory it has.
const MEMORY_BYTES_FALLBACK: u64 = 1 << 30;

impl Settings {
    fn optional_listener(
        &self,
        spec: &'static OptionSpec,
    ) -> Result<Option<SocketAddr>, ConfigError> {
        self.optional_with(spec, address::parse_listen)
    }

    fn count<T>(
        &self,
        spec: &'static OptionSpec,
        range: RangeInclusive<T>,
    ) -> Result<T, ConfigError>
    where
        T: FromStr + PartialOrd + Into<u16> + Copy,
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
    // Each alone at first, so that an error is about the value that it names.
    let values = settings.many_with(&PEER_KEY, |value| {
        match PeerKeys::load(&[value])?.contains(&own.public()) {
            true => Err(BoxedError::from(Mismatch::OwnKey)),
            false => Ok(value.to_owned()),
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

pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn parse_rate(text: &str) -> Result<BitRate, BoxedError> {
    match text.parse()? {
        BitRate(0) => Err(Mismatch::Zero.into()),
        rate => Ok(rate),
    }
}

/// `LISTEN=TARGET` or, as ssh has it, `LISTEN:TARGET`; with `@PEER` or without.
fn parse_forward(
    text: &str,
    find_peer: impl Fn(&str) -> Result<PublicKey, Mismatch>,
) -> Result<Forward, BoxedError> {
    // First, for a key has equals signs.
    let (ends, peer) = text.split_once('@').unwrap_or((text, ""));
    let ends = ends.split_once('=').or_else(|| split_at_target(ends));
    let (listen, target) = ends.ok_or(Mismatch::Forward)?;
    Ok(Forward {
        listen: address::parse_listen(listen)?,
        target: target.parse()?,
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
