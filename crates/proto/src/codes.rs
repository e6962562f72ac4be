//! Every number on the wire that stands for something, as `docs/wire-format.md` lists them.

/// Codes of REFUSE. An end takes one that it does not know as [`OTHER`](refusal::OTHER).
pub mod refusal {
    /// Another reason.
    pub const OTHER: u8 = 0;
    /// No `allow` rule covers the target.
    pub const NOT_ALLOWED: u8 = 1;
    /// The target's name did not resolve.
    pub const NAME_NOT_RESOLVED: u8 = 2;
    /// The target refused the connection.
    pub const CONNECTION_REFUSED: u8 = 3;
    /// There is no route to the target.
    pub const UNREACHABLE: u8 = 4;
    /// The target did not answer in time.
    pub const TIMED_OUT: u8 = 5;
    /// The link is down.
    pub const LINK_DOWN: u8 = 6;
    /// A limit on flows or memory was reached.
    pub const LIMIT: u8 = 7;
    /// The end is shutting down.
    pub const DRAINING: u8 = 8;
    /// The target reset the connection.
    pub const TARGET_RESET: u8 = 9;
    /// The lane that carried the flow died.
    pub const LANE_LOST: u8 = 10;
    /// A confirmation did not hold.
    pub const MISCONFIRMED: u8 = 11;
    /// The target is an address of the connecting end itself.
    pub const OWN_ADDRESS: u8 = 12;
    /// The connecting end cannot connect from the address of this client.
    pub const CLIENT_ADDRESS: u8 = 13;
    /// The target answers the connecting end, but not the client's address from there.
    pub const ANSWERS_ELSEWHERE: u8 = 14;
    /// The connecting end was to speak TLS with the target, and could not; the text says why.
    pub const TLS: u8 = 15;
}

/// Codes of RESET. An end takes one that it does not know as [`GATEWAY`](reset::GATEWAY).
pub mod reset {
    /// A lane that the flow depended on died.
    pub(crate) const LANE_LOST: u8 = 0;
    /// The application's connection failed or was reset.
    pub const APPLICATION: u8 = 1;
    /// Nothing moved for the idle time-out.
    pub const IDLE: u8 = 2;
    /// The gateway is shutting down, or gave up on opening.
    pub const GATEWAY: u8 = 3;
    /// A confirmation did not hold.
    pub(crate) const MISCONFIRMED: u8 = 4;
    /// The target requires a certificate of the client (the alert `certificate_required` of TLS).
    pub const CLIENT_CERTIFICATE: u8 = 5;
    /// The target reset a stream of HTTP/2: this, and the code of the reset (RFC 9113, section 7).
    pub const HTTP2: u8 = 64;
    /// The largest code of such a reset.
    pub const HTTP2_MAX: u8 = 13;
}

/// Types of frames.
pub(crate) mod frame {
    pub(crate) const OPEN: u8 = 1;
    pub(crate) const ACCEPT: u8 = 2;
    pub(crate) const REFUSE: u8 = 3;
    pub(crate) const BLOCK: u8 = 4;
    pub(crate) const END: u8 = 5;
    pub(crate) const RESET: u8 = 6;
    pub(crate) const CREDIT: u8 = 7;
    pub(crate) const ACK: u8 = 8;
    pub(crate) const LANE_CLOSED: u8 = 9;
    pub(crate) const PING: u8 = 10;
    pub(crate) const PONG: u8 = 11;
    pub(crate) const DRAIN: u8 = 12;
    pub(crate) const STALLED: u8 = 13;
    pub(crate) const ABORT: u8 = 14;
    pub(crate) const OFFER: u8 = 15;
    pub(crate) const CONFIRM: u8 = 16;
    pub(crate) const WITHDRAWN: u8 = 17;
    pub(crate) const DISPERSION: u8 = 18;
    pub(crate) const DRIVEN: u8 = 19;
    pub(crate) const MOVED: u8 = 20;
    pub(crate) const SPARE: u8 = 21;
    pub(crate) const TYPES: core::ops::RangeInclusive<u8> = OPEN..=SPARE;
}

/// Bits of a BLOCK's first byte.
pub(crate) mod block {
    pub(crate) const LOGGED: u8 = 1;
    pub(crate) const TOKENS_COMPRESSED: u8 = 2;
    pub(crate) const LITERALS_COMPRESSED: u8 = 4;
    pub(crate) const HAS_OFFSET: u8 = 8;
    pub(crate) const SECRET: u8 = 16;
    pub(crate) const FLAGS: u8 =
        LOGGED | TOKENS_COMPRESSED | LITERALS_COMPRESSED | HAS_OFFSET | SECRET;
}

/// Bits of a hello's feature byte.
pub(crate) mod feature {
    pub(crate) const TAKES_OFFERS: u8 = 1;
    pub(crate) const MAKES_OFFERS: u8 = 2;
    pub(crate) const COUNTS_CONFIRMATIONS: u8 = 4;
    pub(crate) const IS_CHECK: u8 = 8;
}

/// Bits of a hello's capabilities.
pub(crate) mod capability {
    pub(crate) const SHARES_WINDOW: u64 = 1;
    pub(crate) const HAS_LONG_SPAN: u64 = 2;
    pub(crate) const TLS_TO_TARGETS: u64 = 4;
    pub(crate) const SECRET_BLOCKS: u64 = 8;
}
