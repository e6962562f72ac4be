//! What is wrong with a value beyond its own grammar.

use std::net::SocketAddr;

use crate::units::ByteSize;

/// What is wrong with a value beyond its own grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// An effort that there is not.
    #[error("expected `auto` or `max`")]
    Effort,
    /// A far end without an address to listen on.
    #[error("lists no address, so no peer could connect")]
    NoListener,
    /// An address that another listener has.
    #[error("two listeners at {0}")]
    ListenerTwice(SocketAddr),
    /// Two addresses that one connection could reach.
    #[error("overlaps the listener at {0}")]
    ListenerOverlap(SocketAddr),
    /// A forward without a listener or a target.
    #[error(
        "expected a listener and a target, such as 8080:intranet:80, 8080=intranet:80 or \
         10.0.0.5:8080:intranet:80"
    )]
    Forward,
    /// A peer whose key is not there.
    #[error("no peer of this name or key is in --peer-key")]
    UnknownPeer,
    /// A forward that could mean any of several peers.
    #[error("there are several peers: name one at the end, such as 8080:intranet:80@PEER")]
    WhichPeer,
    /// A near end with more keys than peers, or fewer.
    #[error("each --peer has exactly one key, found {1} for {0}")]
    KeyForEachPeer(usize, usize),
    /// One of several peers that does not say which key it has.
    #[error("there are several peers: give each the name of its key, such as bonn=far.example")]
    UnnamedPeer,
    /// Two peers with one key.
    #[error("another --peer has this key: each far end needs a key of its own")]
    PeerTwice,
    /// A route without targets or a peer.
    #[error("expected targets and a peer, such as *.bonn.example:*@bonn")]
    Route,
    /// A far end whose files of peers are empty.
    #[error("holds no key, so nobody could connect")]
    NoPeers,
    /// A peer that has this gateway's own key.
    #[error("that is this gateway's own key; the other end's is printed by its `refrain keygen`")]
    OwnKey,
    /// A switch that is neither on nor off.
    #[error("expected `true` or `false`")]
    Switch,
    /// A proxy that anyone could use.
    #[error(
        "other machines can reach {0}: give --clients, --proxy-auth or --open-to-all, or use \
         loopback"
    )]
    ProxyExposed(SocketAddr),
    /// A forward that anyone could use.
    #[error("other machines can reach {0}: give --clients or --open-to-all, or use loopback")]
    ForwardExposed(SocketAddr),
    /// Open to all, and to some only.
    #[error("contradicts --clients")]
    OpenToClients,
    /// Users, and nothing that asks for them.
    #[error("needs --socks5 or --http-proxy; a forward cannot ask for a password, use --clients")]
    NoProxy,
    /// An admin page that anyone could read.
    #[error("other machines can reach this address: give --admin-token-file, or use loopback")]
    AdminExposed,
    /// A token without a listener, or given twice.
    #[error("needs --admin, and only one of --admin-token and --admin-token-file")]
    StrayToken,
    /// Names of a listener that there is not.
    #[error("needs --admin")]
    StrayAdminHost,
    /// An address as a name of the admin listener.
    #[error("must be a name: requests for IP addresses are answered in any case")]
    AdminHostAddress,
    /// A token that is guessed or mangled easily.
    #[error("a token has 16 characters or more, and no spaces")]
    WeakToken,
    /// A number outside of its range.
    #[error("expected a number from {0} to {1}")]
    OutOfRange(u16, u16),
    /// A time or a rate of nothing.
    #[error("must be more than 0")]
    Zero,
    /// A cache outside of its range.
    #[error("expected a size from 1MiB to 4GiB")]
    CacheSize,
    /// A cache that does not fit the bound on memory.
    #[error("two caches of {0}, one a direction, need more than the memory of {1}")]
    CacheAboveMemory(ByteSize, ByteSize),
    /// Less memory than the smallest pair of caches.
    #[error("one link with the smallest caches needs 40MiB")]
    MemoryTooSmall,
    /// More lanes than there may be.
    #[error("more than --lanes-max, which is {0}")]
    LanesAboveMax(u8),
    /// An average chunk that no mask gives.
    #[error("expected a power of two from 64B to 32KiB")]
    ChunkSize,
    /// Chunks that cannot be.
    #[error("expected 48B <= --chunk-min <= --chunk-max <= 64KiB")]
    ChunkBounds,
    /// A mode of prediction that there is not.
    #[error("expected `window` or `aligned`")]
    Predict,
    /// A folder without a name.
    #[error("expected the path of a folder")]
    NoFolder,
    /// What no realm is called.
    #[error("a realm's name is not empty and has no control characters")]
    Realm,
    /// A store too small for its segments.
    #[error("expected 16MiB or more")]
    StoreTooSmall,
    /// An option about a store that is not there.
    #[error("needs --store")]
    NoStore,
    /// A table that nothing reads.
    #[error("only `marker = \"samplebyte\"` has a table")]
    TableUnused,
}
