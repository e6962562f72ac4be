//! Why a flow was not opened, in one vocabulary for the link, SOCKS, HTTP and people.
//!
//! The end that was asked to connect sends the wire code; the end that asked turns it into the
//! words of whichever protocol its client speaks.

use std::borrow::Cow;
use std::fmt;
use std::io;

use refrain_proto::{
    ResetReason,
    codes::{refusal, reset},
};
use rustix::io::Errno;

/// A refusal a line: its name, its code on the wire, and what people read, of `{end}`, the end that
/// was to connect.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:ident, $words:literal;)*) => {
        /// Why a flow was not opened.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum Refusal {
            $($(#[$doc])* $name,)*
            /// A limit of one of the gateways was reached.
            Limit(Limit),
            /// The connecting end was to speak TLS with the target, and could not. The reason is its own.
            Tls(Cow<'static, str>),
            /// The connecting end is of a version that does not speak TLS with targets.
            TlsUnknown,
            /// This end is shutting down.
            OwnDraining,
        }

        impl Refusal {
            /// The code on the wire.
            pub(crate) fn wire_code(&self) -> u8 {
                match self {
                    $(Refusal::$name => refusal::$code,)*
                    Refusal::Limit(_) => refusal::LIMIT,
                    Refusal::Tls(_) => refusal::TLS,
                    Refusal::TlsUnknown => refusal::OTHER,
                    Refusal::OwnDraining => refusal::DRAINING,
                }
            }

            fn of_code(code: u8) -> Refusal {
                match code {
                    $(refusal::$code => Refusal::$name,)*
                    _ => Refusal::Other,
                }
            }

            /// In words, where the end that was to connect is called so.
            pub(crate) fn describe(&self, connecting_end: &str) -> String {
                match self {
                    $(Refusal::$name => $words.replace("{end}", connecting_end),)*
                    Refusal::Limit(limit) => limit.describe(connecting_end),
                    Refusal::Tls(reason) => {
                        format!("TLS between {connecting_end} and the target failed: {reason}")
                    }
                    Refusal::TlsUnknown => format!(
                        "{connecting_end} is of an earlier version, which does not speak TLS with targets: upgrade it"
                    ),
                    Refusal::OwnDraining => "this end is shutting down".to_owned(),
                }
            }
        }
    };
}

refusals! {
    /// For a reason that has no code, or a code that this version does not know.
    Other = OTHER, "{end} could not connect";
    /// No `allow` rule of the connecting end covers the target.
    NotAllowed = NOT_ALLOWED, "{end} does not allow this target (its --allow must cover it)";
    /// The target's name did not resolve.
    NameNotResolved = NAME_NOT_RESOLVED, "{end} could not resolve the target's name";
    /// The target answered and refused.
    ConnectionRefused = CONNECTION_REFUSED, "the target refused the connection";
    /// No route to the target's host or network.
    Unreachable = UNREACHABLE, "{end} has no route to the target";
    /// The target did not answer in time.
    TimedOut = TIMED_OUT, "the target did not answer in time";
    /// The link to the peer is down.
    LinkDown = LINK_DOWN, "the link to {end} is down";
    /// The peer is shutting down.
    Draining = DRAINING, "{end} is shutting down";
    /// The target reset the connection.
    TargetReset = TARGET_RESET, "the target reset the connection";
    /// The lane that carried the connection was lost, and the link may have others.
    LaneLost = LANE_LOST, "the connection between the gateways was lost; try again";
    /// A prediction of the connection's bytes was confirmed wrongly.
    Misconfirmed = MISCONFIRMED, "a prediction for the connection was wrong; try again";
    /// The target is an address of the connecting gateway itself.
    OwnAddress = OWN_ADDRESS,
        "the target is an address of the gateway itself (only an allow rule of {end} for this host and \
         port permits it)";
    /// The connecting end does not connect from the address of this client, or must not.
    ClientAddress = CLIENT_ADDRESS,
        "{end} cannot connect from this client's address (its --client-addresses must cover it, and it needs \
         CAP_NET_RAW and the rules of `refrain intercept on --far`)";
    /// The target's answers to the client do not pass the connecting end.
    AnswersElsewhere = ANSWERS_ELSEWHERE,
        "the target answers {end}, but not connections from this client's address: its answers to the client must pass \
         the machine of {end}, and `refrain intercept on --far` must have loaded its rules there";
}

/// A limit that was reached, with its value and the option that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Such as `at most 64 open connections per link (--flows-max)`; the other end may give none.
    text: Cow<'static, str>,
    /// Whether it is one of this end.
    is_own: bool,
}

impl Refusal {
    /// By a limit of this end, such as `at most 64 open connections per link (--flows-max)`.
    pub(crate) fn by_own_limit(text: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::Limit(Limit {
            text: text.into(),
            is_own: true,
        })
    }

    /// Words by which the log keeps refusals of TLS apart. There are few: names come later in these texts.
    pub(crate) fn kind(&self) -> String {
        match self {
            Refusal::Tls(reason) => reason.chars().take(20).collect(),
            _ => String::new(),
        }
    }

    /// Whether it is about the target, so that a further flow there would be refused too.
    pub(crate) fn is_of_target(&self) -> bool {
        match self {
            Refusal::NotAllowed
            | Refusal::NameNotResolved
            | Refusal::ConnectionRefused
            | Refusal::Unreachable
            | Refusal::TimedOut
            | Refusal::TargetReset
            | Refusal::OwnAddress
            | Refusal::ClientAddress
            | Refusal::AnswersElsewhere
            | Refusal::Tls(_) => true,
            Refusal::Other
            | Refusal::LinkDown
            | Refusal::Draining
            | Refusal::LaneLost
            | Refusal::Misconfirmed
            | Refusal::Limit(_)
            | Refusal::TlsUnknown
            | Refusal::OwnDraining => false,
        }
    }

    /// Whether the target itself refused, which would do so again.
    pub(crate) fn is_by_target(&self) -> bool {
        matches!(self, Refusal::ConnectionRefused | Refusal::TargetReset)
    }

    /// The text on the wire. Of two ends that may read it, neither is named.
    pub(crate) fn wire_text(&self) -> String {
        match self {
            Refusal::Limit(limit) => limit.text.to_string(),
            Refusal::Tls(reason) => reason.to_string(),
            refusal => refusal.describe("the peer"),
        }
    }

    /// The refusal that a peer sent. A code from a later version becomes [`Refusal::Other`].
    pub(crate) fn from_wire(code: u8, text: &str) -> Refusal {
        // A peer's text goes to logs and terminals.
        let text = || text.replace(char::is_control, "?").into();
        match code {
            refusal::LIMIT => Refusal::Limit(Limit {
                text: text(),
                is_own: false,
            }),
            refusal::TLS => Refusal::Tls(text()),
            code => Refusal::of_code(code),
        }
    }

    /// In the words of the end that refused, for its own log. Displayed, a refusal is in those
    /// of a near end that asked.
    pub(crate) fn in_own_words(&self) -> String {
        self.describe("this end")
    }

    /// What the reset of a flow means to a client that waits for its target.
    pub(crate) fn from_reset(reason: ResetReason) -> Refusal {
        match reason {
            ResetReason::ByPeer(reset::APPLICATION | reset::HTTP2..) => Refusal::TargetReset,
            ResetReason::ByPeer(reset::IDLE) => Refusal::TimedOut,
            ResetReason::ByPeer(reset::GATEWAY) => Refusal::Draining,
            ResetReason::ByPeer(_) => Refusal::Other,
            ResetReason::LaneLost => Refusal::LaneLost,
            ResetReason::Misconfirmed => Refusal::Misconfirmed,
        }
    }

    /// What a failed `connect(2)` to the target means to the client.
    pub(crate) fn from_connect_error(error: &io::Error) -> Refusal {
        const OF_THE_SYSTEM: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        if Errno::from_io_error(error).is_some_and(|errno| OF_THE_SYSTEM.contains(&errno)) {
            return Refusal::by_own_limit(format!("no further socket: {error}"));
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
                Refusal::ConnectionRefused
            }
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => Refusal::Unreachable,
            io::ErrorKind::TimedOut => Refusal::TimedOut,
            _ => Refusal::Other,
        }
    }
}

impl Limit {
    fn describe(&self, connecting_end: &str) -> String {
        let end = if self.is_own {
            "this end"
        } else {
            connecting_end
        };
        let colon = if self.text.is_empty() { "" } else { ": " };
        format!("a limit of {end} was reached{colon}{}", self.text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe("the far end"))
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    impl Refusal {
        /// Each refusal once, in the order of the wire codes.
        pub(crate) fn all() -> impl Iterator<Item = Refusal> {
            (0..=refusal::TLS).map(|code| Refusal::from_wire(code, ""))
        }
    }

    #[test]
    fn wire_codes_round_trip_and_unknown_ones_are_other() {
        for (code, refusal) in Refusal::all().enumerate() {
            assert_eq!(usize::from(refusal.wire_code()), code);
            assert_eq!(Refusal::from_wire(refusal.wire_code(), ""), refusal);
        }
        for code in Refusal::all().count()..=255 {
            assert_eq!(Refusal::from_wire(code as u8, ""), Refusal::Other);
        }
    }

    #[test]
    fn a_limit_is_named_at_both_ends_and_a_peers_text_is_made_harmless() {
        let text = "at most 64 open connections per link (--flows-max)";
        let refusal = Refusal::by_own_limit(text);
        let own = format!("a limit of this end was reached: {text}");
        assert_eq!(
            (refusal.to_string(), refusal.in_own_words()),
            (own.clone(), own)
        );
        let passed_on = Refusal::from_wire(refusal.wire_code(), &refusal.wire_text());
        let shown = format!("a limit of the far end was reached: {text}");
        assert_eq!(passed_on.to_string(), shown);
        let hostile = Refusal::from_wire(refusal::LIMIT, "x\x1b[2J\r\ny");
        let shown = "a limit of the far end was reached: x?[2J??y";
        assert_eq!(hostile.to_string(), shown);
        let none = Refusal::from_wire(refusal::LIMIT, "");
        assert_eq!(none.to_string(), "a limit of the far end was reached");
    }

    #[test]
    fn a_refusal_names_the_end_that_refused_and_the_option_that_allows() {
        let refusal = Refusal::NotAllowed;
        let shown = "the far end does not allow this target (its --allow must cover it)";
        assert_eq!(refusal.to_string(), shown);
        for (said, end) in [
            (refusal.in_own_words(), "this end"),
            (refusal.describe("the near end"), "the near end"),
            (refusal.wire_text(), "the peer"),
        ] {
            assert_eq!(said, shown.replace("the far end", end));
        }
    }

    #[test]
    fn an_end_that_shuts_down_is_named() {
        let by_peer = Refusal::from_wire(refusal::DRAINING, "");
        assert_eq!(by_peer.to_string(), "the far end is shutting down");
        assert_eq!(
            Refusal::OwnDraining.to_string(),
            "this end is shutting down"
        );
    }

    #[test]
    fn each_kind_of_reset_has_its_own_reason_and_none_is_a_link_that_is_down() {
        let codes = (0..=255).map(ResetReason::ByPeer);
        let all = codes.chain([ResetReason::LaneLost, ResetReason::Misconfirmed]);
        for reason in all {
            assert_ne!(Refusal::from_reset(reason), Refusal::LinkDown, "{reason:?}");
        }
        let reset = ResetReason::ByPeer(reset::APPLICATION);
        assert_eq!(Refusal::from_reset(reset), Refusal::TargetReset);
        let lost = Refusal::from_reset(ResetReason::LaneLost);
        assert_eq!(lost, Refusal::LaneLost);
    }

    #[test]
    fn a_refused_connect_is_told_from_an_unreachable_host() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let unreachable = io::Error::from(io::ErrorKind::HostUnreachable);
        assert_eq!(
            Refusal::from_connect_error(&refused),
            Refusal::ConnectionRefused
        );
        assert_eq!(
            Refusal::from_connect_error(&unreachable),
            Refusal::Unreachable
        );
    }
}
