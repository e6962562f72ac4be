//! Where a flow goes: a host and a port, as a user, a client or the peer named it.
//!
//! The text `host:port` is also the wire form. A name stays a name until the connecting end
//! resolves it; a name that spells an IP address becomes that address, so that rules see it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::start_tls::StartTls;

/// A host name's greatest length, in bytes (RFC 1035, section 2.3.4, and SOCKS5's length byte).
pub const NAME_BYTES_MAX: usize = 255;

/// The wire form's greatest length, in bytes: a name, a colon, a port, and room to spare.
pub const TARGET_BYTES_MAX: usize = 300;

/// Where far ends take lanes, unless they are told otherwise.
pub(crate) const LANES_PORT: u16 = 7000;

/// A host and a port to connect to.
///
/// ```
/// use refrain_gateway::target::Target;
///
/// let target: Target = "Example.org:80".parse().unwrap();
/// assert_eq!(target.to_string(), "example.org:80");
/// assert!("[::1]:8080".parse::<Target>().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// A host, by name or by address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name to resolve: lower case, no trailing dot, only letters, digits, `-`, `_` and `.`.
    Domain(String),
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address, never an IPv4-mapped one.
    Ipv6(Ipv6Addr),
}

/// Why a text is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Longer than [`TARGET_BYTES_MAX`] bytes.
    #[error("longer than {TARGET_BYTES_MAX} bytes")]
    TooLong,
    /// No `:PORT` at the end.
    #[error(
        "no port: expected HOST:PORT, with an IPv6 address in brackets, as in git.example.org:80"
    )]
    NoPort,
    /// The port is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    BadPort,
    /// Brackets around something else than an IPv6 address, or an IPv6 address without them.
    #[error("an IPv6 address must be in brackets, as in [::1] or [::1]:7000")]
    BadIpv6,
    /// More colons than a host and a port have.
    #[error("too many colons: expected HOST:PORT")]
    Colons,
    /// A URL where a host and a port belong, and what to write instead.
    #[error("expected a host and a port, not a URL: write {0}")]
    Url(String),
    /// An empty name, an empty label, or a byte that host names do not have.
    #[error("not a host name: expected letters, digits, '-', '_' and '.'")]
    BadName,
    /// A name that only a mistyped address has.
    #[error("not an IPv4 address: expected four numbers from 0 to 255, such as 10.0.0.5")]
    BadIpv4,
    /// The name is longer than [`NAME_BYTES_MAX`] bytes.
    #[error("a host name longer than {NAME_BYTES_MAX} bytes")]
    NameTooLong,
}

/// What a flow is opened for: a target, and how the end that connects is to do it.
///
/// On the wire it is a text of words: `example.org:80`, `tls://example.org:443 alpn=http/1.1`,
/// `tls://example.org:443 alpn=h2,http/1.1 http=1f`, or `example.org:80 from 192.0.2.1`. Ends of before know only the
/// first form, and refuse the others as names that do not resolve. The first word tells which flows have the same data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTarget {
    /// Where to connect to.
    pub target: Target,
    /// If the end that connects speaks TLS with the target: the protocols that it offers there (ALPN).
    pub tls: Option<Protocols>,
    /// If the flow carries HTTP/1.1, which the end that connects may turn into HTTP/2: a number of the client's
    /// connection. Flows with the same number share one there.
    pub exchanges: Option<u32>,
    /// If the client begins TLS with the target, and the near end opens that: a target that asks for a certificate of the
    /// client is refused.
    pub(crate) is_opened: bool,
    /// Whether both directions are secret, but for answers that are for all clients ([`PrivateAnswers::SecretSafe`]).
    ///
    /// [`PrivateAnswers::SecretSafe`]: crate::http_proxy::secrets::PrivateAnswers::SecretSafe
    pub(crate) is_secret: bool,
    /// If TLS begins within another protocol: which.
    pub start: Option<&'static StartTls>,
    /// The client whose address the target is to see, instead of that of the end that connects.
    pub client: Option<IpAddr>,
}

/// Names of protocols, for ALPN (RFC 7301).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocols(Vec<String>);

/// What precedes a target with which TLS is spoken.
const TLS: &str = "tls://";
/// What precedes the names of protocols.
const ALPN: &str = "alpn=";
/// What precedes the number of a client's connection, in hexadecimal.
const HTTP: &str = "http=";
/// Says that a client's own TLS is opened.
pub(crate) const OPENED: &str = "opened";
/// Says that all bytes are secret which are not for all clients.
pub(crate) const SECRET: &str = "secret";
/// What precedes the name of a protocol in which TLS begins.
const START: &str = "start=";
/// Separates a target and the address of the client.
const OF_CLIENT: &str = " from ";

impl FlowTarget {
    /// Reads the wire form.
    ///
    /// # Errors
    ///
    /// If it is none, or longer than [`TARGET_BYTES_MAX`].
    pub fn from_wire(text: &str) -> Result<FlowTarget, TargetError> {
        if text.len() > TARGET_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        let (rest, client) = match text.split_once(OF_CLIENT) {
            Some((rest, client)) => {
                let client: IpAddr = client.parse().map_err(|_| TargetError::BadName)?;
                (rest, Some(client.to_canonical()))
            }
            None => (text, None),
        };
        let Some(over_tls) = rest.strip_prefix(TLS) else {
            let target = rest.parse()?;
            return Ok(FlowTarget {
                target,
                tls: None,
                exchanges: None,
                is_opened: false,
                is_secret: false,
                start: None,
                client,
            });
        };
        let mut words = over_tls.split(' ').peekable();
        let target = words.next().unwrap_or_default().parse()?;
        let mut value = |prefix: &str| {
            let word = words.next_if(|word| word.starts_with(prefix));
            word.map(|word| &word[prefix.len()..])
        };
        let bad = TargetError::BadName;
        let protocols = value(ALPN).map(|names| Protocols::parse(names).ok_or(bad.clone()));
        let exchanges = value(HTTP).map(|digits| {
            let number = u32::from_str_radix(digits, 16);
            let number = number.ok().filter(|number| format!("{number:x}") == digits);
            number.ok_or(bad.clone())
        });
        let mut has_word = |word: &str| match value(word) {
            None => Ok(false),
            Some("") if exchanges.is_some() => Ok(true),
            Some(_) => Err(bad.clone()),
        };
        let (is_opened, is_secret) = (has_word(OPENED)?, has_word(SECRET)?);
        let start = value(START).map(|name| StartTls::of(name).ok_or(bad.clone()));
        // One of both, and nothing after it.
        if protocols.is_some() == start.is_some() || words.next().is_some() {
            return Err(bad);
        }
        Ok(FlowTarget {
            target,
            tls: Some(protocols.transpose()?.unwrap_or_else(Protocols::none)),
            exchanges: exchanges.transpose()?,
            is_opened,
            is_secret,
            start: start.transpose()?,
            client,
        })
    }
}

impl From<Target> for FlowTarget {
    fn from(target: Target) -> FlowTarget {
        FlowTarget {
            target,
            tls: None,
            exchanges: None,
            is_opened: false,
            is_secret: false,
            start: None,
            client: None,
        }
    }
}

impl fmt::Display for FlowTarget {
    /// Writes the wire form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tls {
            Some(protocols) if protocols.0.is_empty() => write!(f, "{TLS}{}", self.target)?,
            Some(protocols) => write!(f, "{TLS}{} {ALPN}{}", self.target, protocols.0.join(","))?,
            None => self.target.fmt(f)?,
        }
        if let Some(number) = self.exchanges {
            write!(f, " {HTTP}{number:x}")?;
        }
        if self.is_opened {
            write!(f, " {OPENED}")?;
        }
        if self.is_secret {
            write!(f, " {SECRET}")?;
        }
        if let Some(protocol) = self.start {
            write!(f, " {START}{}", protocol.scheme)?;
        }
        match self.client {
            Some(client) => write!(f, "{OF_CLIENT}{}", client.to_canonical()),
            None => Ok(()),
        }
    }
}

impl Protocols {
    const COUNT_MAX: usize = 4;
    const NAME_BYTES_MAX: usize = 32;

    /// No protocol is named.
    pub(crate) fn none() -> Protocols {
        Protocols(Vec::new())
    }

    /// HTTP/1.1, the only protocol.
    pub(crate) fn http1() -> Protocols {
        Protocols(vec!["http/1.1".to_owned()])
    }

    /// HTTP/2 and HTTP/1.1.
    pub(crate) fn http() -> Protocols {
        Protocols(vec!["h2".to_owned(), "http/1.1".to_owned()])
    }

    /// Reads names that commas separate.
    fn parse(text: &str) -> Option<Protocols> {
        let is_name = |name: &str| {
            (1..=Protocols::NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        let is_list = names.len() <= Protocols::COUNT_MAX && names.iter().all(|name| is_name(name));
        is_list.then_some(Protocols(names))
    }

    /// The names, for people.
    pub(crate) fn describe(&self) -> String {
        let names = self.0.iter().map(|name| match &**name {
            "h2" => "HTTP/2",
            "http/1.1" => "HTTP/1.1",
            other => other,
        });
        names.collect::<Vec<_>>().join(" or ")
    }

    /// The names, as TLS has them.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.0
            .iter()
            .map(|name| name.clone().into_bytes())
            .collect()
    }
}

impl Target {
    /// A target from its parts; an error for port 0.
    pub fn new(host: Host, port: u16) -> Result<Target, TargetError> {
        if port == 0 {
            return Err(TargetError::BadPort);
        }
        Ok(Target { host, port })
    }

    /// The address, unless it is a name.
    pub(crate) fn socket_address(&self) -> Option<SocketAddr> {
        let host: IpAddr = match self.host {
            Host::Domain(_) => return None,
            Host::Ipv4(address) => address.into(),
            Host::Ipv6(address) => address.into(),
        };
        Some(SocketAddr::new(host, self.port))
    }

    /// Reads `HOST:PORT`, or `HOST` with this port.
    pub(crate) fn with_default_port(text: &str, port: u16) -> Result<Target, TargetError> {
        match text.contains(':') && !text.ends_with(']') {
            true => text.parse(),
            false => Target::new(text.parse()?, port),
        }
    }

    /// This target, unless its host is a mistyped address. For options alone: clients may ask for any name.
    pub(crate) fn unless_mistyped(self) -> Result<Target, TargetError> {
        match self.host.is_mistyped_address() {
            true => Err(TargetError::BadIpv4),
            false => Ok(self),
        }
    }
}

impl TargetError {
    /// The error about a URL, with its host and its port as far as it has them.
    pub(crate) fn of_url(url: &str) -> TargetError {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let address = authority.rsplit('@').next().unwrap_or_default();
        let target = address.parse::<Target>().map(|target| target.to_string());
        let target = target.or_else(|_| {
            let host = address.parse::<Host>();
            host.map(|host| format!("{host}:PORT"))
        });
        TargetError::Url(target.unwrap_or_else(|_| "HOST:PORT".to_owned()))
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        if text.len() > TARGET_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        if text.contains("://") {
            return Err(TargetError::of_url(text));
        }
        let (host, port) = split_port(text)?;
        Target::new(host.parse()?, parse_port(port)?)
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Target {
        Target {
            host: address.ip().into(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Host {
    /// A host from a bare name or address, as SOCKS5 gives it: no brackets.
    pub(crate) fn from_name(name: &str) -> Result<Host, TargetError> {
        // First, or `10.0.0.1.` would be a name that no rule for addresses sees.
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(address.into());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(TargetError::NameTooLong);
        }
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_name_byte);
        if !name.split('.').all(is_label) {
            return Err(TargetError::BadName);
        }
        Ok(Host::Domain(name.to_ascii_lowercase()))
    }

    /// Whether it is a name that only a mistyped address or range has: it ends with a number, which no domain
    /// does (RFC 3696, section 2), or has no letter.
    pub(crate) fn is_mistyped_address(&self) -> bool {
        let Host::Domain(name) = self else {
            return false;
        };
        let has_letters = name.bytes().any(|byte| byte.is_ascii_alphabetic());
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        !has_letters || name.rsplit('.').next().is_some_and(is_number)
    }
}

impl FromStr for Host {
    type Err = TargetError;

    /// Reads a host as it stands before `:PORT`, an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Host, TargetError> {
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(TargetError::BadIpv6)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| TargetError::BadIpv6)?;
            return Ok(IpAddr::V6(address).into());
        }
        if text.contains(':') {
            // One that is cut off before the last part counts too.
            let is_ipv6 = (text.ends_with(':') || text.matches(':').count() > 1)
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
            return Err(match is_ipv6 {
                true => TargetError::BadIpv6,
                false => TargetError::Colons,
            });
        }
        Host::from_name(text)
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Host {
        match address.to_canonical() {
            IpAddr::V4(v4) => Host::Ipv4(v4),
            IpAddr::V6(v6) => Host::Ipv6(v6),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Domain(name) => f.write_str(name),
            Host::Ipv4(address) => address.fmt(f),
            Host::Ipv6(address) => write!(f, "[{address}]"),
        }
    }
}

/// Splits `HOST:PORT` at its last colon, which for an IPv6 address stands behind the bracket.
pub(crate) fn split_port(text: &str) -> Result<(&str, &str), TargetError> {
    let (host, port) = text.rsplit_once(':').ok_or(TargetError::NoPort)?;
    if host.starts_with('[') && !host.ends_with(']') {
        return Err(TargetError::NoPort);
    }
    Ok((host, port))
}

/// A port from 1 to 65535, digits only.
pub(crate) fn parse_port(text: &str) -> Result<u16, TargetError> {
    // `u16::from_str` would take a plus sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TargetError::BadPort);
    }
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(TargetError::BadPort),
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_addresses_are_told_apart() {
        let host = |text: &str| text.parse::<Target>().unwrap().host;
        assert_eq!(host("Example.ORG.:80"), Host::Domain("example.org".into()));
        assert_eq!(host("127.0.0.1:80"), Host::Ipv4(Ipv4Addr::LOCALHOST));
        assert_eq!(host("127.0.0.1.:80"), Host::Ipv4(Ipv4Addr::LOCALHOST));
        assert_eq!(host("[::1]:80"), Host::Ipv6(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn a_mapped_address_becomes_the_ipv4_address_that_it_reaches() {
        let target: Target = "[::ffff:10.0.0.1]:80".parse().unwrap();
        assert_eq!(target.host, Host::Ipv4(Ipv4Addr::new(10, 0, 0, 1)));
    }

    #[test]
    fn a_port_may_be_left_out_where_there_is_a_default() {
        let target = |text: &str| Target::with_default_port(text, 7000).map(|it| it.to_string());
        for (text, expected) in [
            ("Far.example.", "far.example:7000"),
            ("far.example:7001", "far.example:7001"),
            ("10.0.0.1", "10.0.0.1:7000"),
            ("[::1]", "[::1]:7000"),
            ("[::1]:7001", "[::1]:7001"),
        ] {
            assert_eq!(target(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, error) in [
            ("", TargetError::BadName),
            ("far.example:", TargetError::BadPort),
            (":7001", TargetError::BadName),
            ("::1", TargetError::BadIpv6),
            ("[::1", TargetError::NoPort),
            ("far.example]", TargetError::BadName),
        ] {
            assert_eq!(target(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_mistyped_address_is_told_from_a_name() {
        let is_mistyped = |text: &str| text.parse::<Host>().unwrap().is_mistyped_address();
        for text in [
            "300.1.1.1",
            "300.1.1.1.",
            "10.20.0",
            "10.20.0.0.1",
            "10.20.0.0-10.20.0.9",
            "10.20.0.1-9",
            "web.1",
            "2130706433",
        ] {
            assert!(is_mistyped(text), "{text}");
            let target = Target::new(text.parse().unwrap(), 80).unwrap();
            assert_eq!(target.unless_mistyped(), Err(TargetError::BadIpv4));
        }
        for text in [
            "10.0.0.1",
            "[::1]",
            "1.example",
            "10.in-addr.arpa",
            "web-1",
            "3com",
            "ip-10-0-0-5",
        ] {
            assert!(!is_mistyped(text), "{text}");
        }
    }

    #[test]
    fn each_fault_has_its_error() {
        let cases = [
            ("example.org", TargetError::NoPort),
            ("", TargetError::NoPort),
            ("[::1]", TargetError::NoPort),
            ("example.org:", TargetError::BadPort),
            ("example.org:0", TargetError::BadPort),
            ("example.org:+80", TargetError::BadPort),
            ("example.org:65536", TargetError::BadPort),
            ("::1:80", TargetError::BadIpv6),
            ("::ffff:10.0.0.1:80", TargetError::BadIpv6),
            ("localhost:7000:8000", TargetError::Colons),
            ("10.0.0.1:80:90", TargetError::Colons),
            ("[example.org]:80", TargetError::BadIpv6),
            (":80", TargetError::BadName),
            ("a..b:80", TargetError::BadName),
            ("a b:80", TargetError::BadName),
            ("ex\r\nample:80", TargetError::BadName),
            ("user@host:80", TargetError::BadName),
        ];
        let urls = [
            ("http://LocalHost:7000", "localhost:7000"),
            ("http://localhost:7000/x?y=z:1", "localhost:7000"),
            ("https://user:secret@intranet/", "intranet:PORT"),
            ("http://[::1]:80", "[::1]:80"),
            ("http://", "HOST:PORT"),
            ("http://a\nb:80", "HOST:PORT"),
        ];
        let urls = urls.map(|(text, meant)| (text, TargetError::Url(meant.to_owned())));
        let cases = cases.into_iter().chain(urls);
        for (text, error) in cases {
            assert_eq!(text.parse::<Target>(), Err(error), "{text:?}");
        }
        let name = "a".repeat(NAME_BYTES_MAX);
        assert!(format!("{name}:80").parse::<Target>().is_ok());
        let longer = format!("{name}a:80");
        assert_eq!(longer.parse::<Target>(), Err(TargetError::NameTooLong));
        let oversized = "a".repeat(TARGET_BYTES_MAX + 1);
        assert_eq!(oversized.parse::<Target>(), Err(TargetError::TooLong));
        assert_eq!(FlowTarget::from_wire(&oversized), Err(TargetError::TooLong));
    }

    proptest! {
        #[test]
        fn what_parses_round_trips(text in "[a-z0-9.:\\[\\]-]{0,40}(:[0-9]{1,5})?") {
            if let Ok(target) = text.parse::<Target>() {
                let again = target.to_string().parse::<Target>();
                prop_assert_eq!(again, Ok(target));
            }
        }

        #[test]
        fn a_default_port_changes_nothing_about_one_that_is_given(
            text in "[a-z0-9.:\\[\\]-]{0,40}(:[0-9]{1,5})?", port in 1u16..
        ) {
            let target = Target::with_default_port(&text, port);
            if let Ok(given) = text.parse::<Target>() {
                prop_assert_eq!(target, Ok(given));
            } else if let Ok(target) = target {
                prop_assert_eq!(target.port, port);
                prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
        }

        #[test]
        fn any_text_of_a_flow_parses_or_fails(
            text in "(tls://)?[a-z0-9.:]{0,20}(:[0-9]{1,5})?( alpn=[a-z0-9/.,]{0,20})?( http=[0-9a-f]{0,3})?( opened)?( secret)?( from [0-9a-f.:]{0,15})?"
        ) {
            if let Ok(target) = FlowTarget::from_wire(&text) {
                let written = target.to_string();
                prop_assert!(written.len() <= TARGET_BYTES_MAX);
                prop_assert_eq!(FlowTarget::from_wire(&written), Ok(target));
            }
        }

        #[test]
        fn how_to_connect_round_trips(
            is_tls: bool,
            number: Option<u32>,
            is_opened: bool,
            is_secret: bool,
            client in proptest::option::of(any::<IpAddr>()),
        ) {
            let target = FlowTarget {
                target: "example.org:443".parse().unwrap(),
                tls: is_tls.then(Protocols::http1),
                exchanges: number.filter(|_| is_tls),
                is_opened: is_opened && is_tls && number.is_some(),
                is_secret: is_secret && is_tls && number.is_some(),
                start: None,
                client: client.map(|client| client.to_canonical()),
            };
            prop_assert_eq!(FlowTarget::from_wire(&target.to_string()), Ok(target));
        }
    }

    #[test]
    fn a_flow_s_text_has_one_form() {
        for text in [
            "example.org:80",
            "example.org:80 from 192.0.2.1",
            "tls://example.org:443 alpn=http/1.1",
            "tls://[::1]:443 alpn=h2,http/1.1 from 2001:db8::1",
            "tls://example.org:443 alpn=h2,http/1.1 http=0",
            "tls://example.org:443 alpn=h2,http/1.1 http=1f opened",
            "tls://example.org:443 alpn=h2,http/1.1 http=1f opened secret",
            "tls://example.org:443 alpn=http/1.1 http=0 secret from 192.0.2.1",
            "tls://db.example.org:5432 start=postgres",
            "tls://ldap.example.org:389 start=ldap from 192.0.2.1",
            "tls://example.org:443 alpn=h2,http/1.1 http=ffffffff from 192.0.2.1",
        ] {
            let target = FlowTarget::from_wire(text).expect(text);
            assert_eq!(target.to_string(), text);
        }
        for text in [
            "",
            "tls://example.org:443",
            "tls://example.org:443 alpn=",
            "tls://example.org:443 alpn=a,",
            "tls://example.org:443 alpn=a,b,c,d,e",
            "tls://example.org:443 alpn=a b",
            "tls://example.org:443 alpn=a http=",
            "tls://example.org:443 http=1",
            "tls://example.org:5432 start=",
            "tls://example.org:5432 start=other",
            "tls://example.org:5432 alpn=a start=postgres",
            "tls://example.org:5432 start=postgres alpn=a",
            "tls://example.org:5432 start=postgres start=smtp",
            "example.org:5432 start=postgres",
            "tls://example.org:443 alpn=a http=01",
            "tls://example.org:443 alpn=a http=A",
            "tls://example.org:443 alpn=a http=+1",
            "tls://example.org:443 alpn=a http=100000000",
            "tls://example.org:443 alpn=a http=1 http=1",
            "tls://example.org:443 alpn=a opened",
            "tls://example.org:443 alpn=a secret",
            "tls://example.org:443 alpn=a http=1 secret opened",
            "tls://example.org:443 alpn=a http=1 opened=1",
            "tls://example.org:443 alpn=a http=1 opened opened",
            "tls://example.org:443 alpn=a opened http=1",
            "example.org:443 opened",
            "tls://example.org:443 http=1 alpn=a",
            "example.org:443 http=1",
            "tls://example.org:443 h2",
            "tls://example.org alpn=h2",
            "tls://tls://example.org:443 alpn=h2",
            "TLS://example.org:443 alpn=h2",
            "example.org:443 alpn=h2",
            "example.org:80 from ",
            "example.org:80 from example.org",
            "example.org:80 from 192.0.2.1 from 192.0.2.2",
            "example.org:80 from 192.0.2.1 alpn=h2",
        ] {
            assert!(FlowTarget::from_wire(text).is_err(), "{text}");
        }
        let long = "a".repeat(Protocols::NAME_BYTES_MAX + 1);
        let text = format!("tls://example.org:443 alpn={long}");
        assert!(FlowTarget::from_wire(&text).is_err());
    }
}
