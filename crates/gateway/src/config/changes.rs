//! What a running gateway cannot take from a configuration that changed.
//!
//! SIGHUP applies keys, rules and some time-outs; what else differs from the configuration that
//! the gateway started with is named, so that nobody takes it for applied.

use super::{
    AdminConfig, CommonConfig, FarConfig, HistoryOptions, MatchingConfig, NearConfig, Timeouts,
};
use crate::options::{
    ADMIN, ADMIN_HOST, ADMIN_TOKEN, CACHE, CHUNK_HASH, CHUNK_MAX, CHUNK_MIN, CHUNK_SIZE,
    DEAD_AFTER, DRAIN_TIMEOUT, EFFORT, FLOWS_MAX, FORWARD, HTTP_PROXY, KEY, LANES, LANES_MAX,
    LISTEN, LOG, MARKER, MARKER_TABLE, MATCHING, MEMORY, MODE, OptionSpec, PEER, PEER_KEY, PREDICT,
    RATE, REALM, SAMPLING_PERIOD, SIMD, SOCKS5, STORE, STORE_ALSO, STORE_SIZE, WINDOW_BYTES,
};

impl NearConfig {
    /// The options in which `new` differs and which only a restart applies.
    pub fn needs_restart(&self, new: &NearConfig) -> Vec<&'static OptionSpec> {
        // All fields, here and below, so that a new one cannot be forgotten.
        let NearConfig {
            peer,
            peer_key,
            peer_name: _,
            socks5,
            http_proxy,
            history,
            common,
        } = self;
        let of_history = changes_of_history(history.as_ref(), new.history.as_ref());
        // Unless it is named, it is the peer's key, and that is named already.
        let follows_peer = *peer_key != new.peer_key;
        let of_history = of_history.filter(move |spec| !(follows_peer && spec.key == REALM.key));
        let own = named([
            (&PEER, *peer != new.peer),
            (&PEER_KEY, *peer_key != new.peer_key),
            (&SOCKS5, *socks5 != new.socks5),
            (&HTTP_PROXY, *http_proxy != new.http_proxy),
        ]);
        own.chain(of_history)
            .chain(common.needs_restart(&new.common))
            .collect()
    }
}

fn changes_of_history(
    old: Option<&HistoryOptions>,
    new: Option<&HistoryOptions>,
) -> impl Iterator<Item = &'static OptionSpec> {
    fn differ<T: PartialEq>(
        both: Option<(&HistoryOptions, &HistoryOptions)>,
        of: impl Fn(&HistoryOptions) -> T,
    ) -> bool {
        both.is_some_and(|(old, new)| of(old) != of(new))
    }
    let both = old.zip(new);
    named([
        (
            &STORE,
            old.map(|old| &old.store) != new.map(|new| &new.store),
        ),
        (&STORE_SIZE, differ(both, |history| history.size)),
        (&STORE_ALSO, differ(both, |history| history.also.clone())),
        (&REALM, differ(both, |history| history.realm.clone())),
        (&PREDICT, differ(both, |history| history.predict)),
        (&CHUNK_SIZE, differ(both, |history| history.mask)),
        (
            &CHUNK_MIN,
            differ(both, |history| history.bounds.bytes_min()),
        ),
        (
            &CHUNK_MAX,
            differ(both, |history| history.bounds.bytes_max()),
        ),
    ])
}

impl FarConfig {
    /// The options in which `new` differs and which only a restart applies.
    pub fn needs_restart(&self, new: &FarConfig) -> Vec<&'static OptionSpec> {
        let FarConfig {
            listen,
            peers: _,
            common,
        } = self;
        let own = named([(&LISTEN, *listen != new.listen)]);
        own.chain(common.needs_restart(&new.common)).collect()
    }
}

impl CommonConfig {
    fn needs_restart(&self, new: &CommonConfig) -> impl Iterator<Item = &'static OptionSpec> {
        let CommonConfig {
            key,
            forwards,
            allow: _,
            exclude: _,
            access: _,
            admin,
            rate,
            mode,
            effort,
            cache,
            memory,
            lanes,
            lanes_max,
            flows_max,
            matching,
            timeouts,
            log,
        } = self;
        let MatchingConfig {
            algorithm,
            marker,
            marker_table,
            sampling_period,
            window,
            backend,
            chunk_hash,
        } = matching;
        let Timeouts {
            connect: _,
            idle: _,
            dead_after,
            keep_link: _,
            drain,
        } = timeouts;
        named([
            (&KEY, key.public() != new.key.public()),
            (&FORWARD, *forwards != new.forwards),
            (&ADMIN, listen(admin) != listen(&new.admin)),
            (&ADMIN_HOST, hosts(admin) != hosts(&new.admin)),
            (&ADMIN_TOKEN, !same_token(admin, &new.admin)),
            (&RATE, *rate != new.rate),
            (&MODE, *mode != new.mode),
            (&EFFORT, *effort != new.effort),
            (&CACHE, *cache != new.cache),
            (&MEMORY, *memory != new.memory),
            (&LANES, *lanes != new.lanes),
            (&LANES_MAX, *lanes_max != new.lanes_max),
            (&FLOWS_MAX, *flows_max != new.flows_max),
            (&MATCHING, *algorithm != new.matching.algorithm),
            (&MARKER, *marker != new.matching.marker),
            (&MARKER_TABLE, *marker_table != new.matching.marker_table),
            (
                &SAMPLING_PERIOD,
                *sampling_period != new.matching.sampling_period,
            ),
            (&WINDOW_BYTES, *window != new.matching.window),
            (&CHUNK_HASH, *chunk_hash != new.matching.chunk_hash),
            (&SIMD, *backend != new.matching.backend),
            (&DEAD_AFTER, *dead_after != new.timeouts.dead_after),
            (&DRAIN_TIMEOUT, *drain != new.timeouts.drain),
            (&LOG, *log != new.log),
        ])
    }
}

fn named<const N: usize>(
    options: [(&'static OptionSpec, bool); N],
) -> impl Iterator<Item = &'static OptionSpec> {
    let differing = options.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(spec, _)| spec)
}

fn listen(admin: &Option<AdminConfig>) -> Option<std::net::SocketAddr> {
    admin.as_ref().map(|admin| admin.listen)
}

fn hosts(admin: &Option<AdminConfig>) -> &[String] {
    admin.as_ref().map_or(&[], |admin| &admin.hosts)
}

/// Wherever the token stands: which of its two options gave it is not kept.
fn same_token(old: &Option<AdminConfig>, new: &Option<AdminConfig>) -> bool {
    let token = |admin: &Option<AdminConfig>| admin.as_ref()?.token.clone();
    match (token(old), token(new)) {
        (Some(old), Some(new)) => old.matches(&new.0),
        (old, new) => old.is_none() && new.is_none(),
    }
}
