//! Who may use a listener for applications: by address, by user name and password.
//!
//! Clients outside of `clients` are disconnected when they are accepted. Of `proxy_auth`'s users
//! SOCKS5 clients prove to be one by RFC 1929, HTTP clients by Basic (RFC 7617). Both are read
//! again on SIGHUP, and apply to what connects or asks from then on.

mod users;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ipnet::IpNet;

use users::LOGIN_PART_BYTES_MAX;
pub(crate) use users::LoginError;
pub(crate) use users::Users;

use crate::address::is_loopback;
use crate::rules::{RuleError, parse_bare_net};
use crate::way_in::WayIn;

/// Who may use the listeners for applications.
///
/// By default any client, which `Options::resolve` refuses for a listener beyond loopback.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The addresses that clients may have; `None` for any.
    pub(crate) clients: Option<Vec<IpNet>>,
    /// The users of the proxies; `None` if nobody is asked.
    pub(crate) users: Option<Arc<Users>>,
    /// Whether a listener may be open to all that can reach it.
    pub(crate) open_to_all: bool,
}

/// A user name and a password, as a client presents them. Its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl Access {
    /// Whether a client at this address may connect.
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let clients = self.clients.as_ref();
        clients.is_none_or(|nets| nets.iter().any(|net| net.contains(&client)))
    }

    /// Whether all clients of a network may connect.
    pub fn admits_all_of(&self, network: &IpNet) -> bool {
        let clients = self.clients.as_ref();
        clients.is_none_or(|nets| nets.iter().any(|net| net.contains(network)))
    }

    /// Whose connections a listener takes, for `--dry-run`.
    pub fn describe(&self, way_in: &WayIn) -> String {
        let clients = match &self.clients {
            Some(nets) if nets.is_empty() => "no client".to_owned(),
            Some(nets) => {
                let nets: Vec<String> = nets.iter().map(show_net).collect();
                format!("clients in {}", nets.join(", "))
            }
            None if is_loopback(way_in.listen.ip()) => "this machine only".to_owned(),
            None => "all that can reach it".to_owned(),
        };
        match self.describe_users().filter(|_| way_in.is_proxy()) {
            Some(users) => format!("open to {clients}, with a password ({users})"),
            None => format!("open to {clients}"),
        }
    }

    /// How many users the proxies have, if they ask for a password.
    pub fn describe_users(&self) -> Option<String> {
        let count = self.users.as_ref()?.count();
        let users = if count == 1 { "user" } else { "users" };
        Some(format!("{count} {users}"))
    }

    /// Whether all that can reach this listener may use it, and others than this machine can.
    pub(crate) fn is_open_to_all(&self, way_in: &WayIn) -> bool {
        let is_asked = way_in.is_proxy() && self.users.is_some();
        !is_loopback(way_in.listen.ip()) && self.clients.is_none() && !is_asked
    }

    /// Whether this listener takes nobody's connections, since it is on loopback and no address
    /// of loopback is among `clients`.
    pub(crate) fn shuts_out_all(&self, address: SocketAddr) -> bool {
        is_loopback(address.ip()) && !self.admits(address.ip())
    }
}

impl Login {
    /// A login of these parts.
    pub(crate) fn new(user: &[u8], password: &[u8]) -> Login {
        Login {
            user: user.into(),
            password: password.into(),
        }
    }

    /// Reads `Basic BASE64`; `None` for what is not that, or is longer than a login may be.
    pub(crate) fn from_basic(value: &[u8]) -> Option<Login> {
        const SCHEME: &[u8] = b"Basic";
        let (scheme, rest) = value.trim_ascii().split_at_checked(SCHEME.len())?;
        let is_basic = scheme.eq_ignore_ascii_case(SCHEME) && rest.first() == Some(&b' ');
        let coded = rest.trim_ascii_start();
        if !is_basic || coded.len() > 4 * (2 * LOGIN_PART_BYTES_MAX + 1).div_ceil(3) {
            return None;
        }
        let login = BASE64.decode(coded).ok()?;
        let colon = login.iter().position(|&byte| byte == b':')?;
        Some(Login::new(&login[..colon], &login[colon + 1..]))
    }

    fn user(&self) -> Option<&str> {
        str::from_utf8(&self.user).ok()
    }

    /// Both parts and where they meet.
    fn message(&self) -> Vec<u8> {
        let length = self.user.len().to_le_bytes();
        [&length[..], &self.user, &self.password].concat()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Reads an address or a range of addresses that clients may have; brackets are not needed.
pub(crate) fn parse_client(text: &str) -> Result<IpNet, RuleError> {
    let bracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let bare = bracketed.unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_canonical().into()),
        Err(_) => parse_bare_net(bare).map_err(|error| match error {
            RuleError::BadNet => RuleError::BadClients,
            error => error,
        }),
    }
}

fn show_net(net: &IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{FORWARD, SOCKS5};
    use proptest::prelude::*;

    fn access(clients: &[&str]) -> Access {
        let nets = clients.iter().map(|text| parse_client(text).unwrap());
        Access {
            clients: Some(nets.collect()),
            ..Access::default()
        }
    }

    fn basic(login: &str) -> String {
        format!("Basic {}", BASE64.encode(login))
    }

    #[test]
    fn clients_are_told_by_their_canonical_address() {
        let access = access(&["10.0.0.0/8", "192.0.2.7", "fd00::/8", "[2001:db8::1]"]);
        for (client, admitted) in [
            ("10.255.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("fd12::1", true),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
            ("127.0.0.1", false),
            ("::1", false),
        ] {
            let address = client.parse().unwrap();
            assert_eq!(access.admits(address), admitted, "{client}");
            assert!(Access::default().admits(address), "{client}");
        }
        assert!(self::access(&["::ffff:10.0.0.0/104"]).admits([10, 0, 0, 1].into()));
        assert!(!self::access(&[]).admits([127, 0, 0, 1].into()));
    }

    #[test]
    fn what_is_no_range_of_clients_is_refused() {
        for text in [
            "",
            "*",
            "example.org",
            "10.0.0.0/33",
            "10.0.0",
            "[10.0.0.1",
            "::1/",
        ] {
            assert!(parse_client(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_client("10.0.0"), Err(RuleError::BadClients));
        let error = parse_client("10.0.0.1/8").unwrap_err().to_string();
        assert!(error.contains("10.0.0.0/8"), "{error}");
    }

    #[test]
    fn a_listener_is_open_to_all_that_reach_it_unless_something_keeps_them_out() {
        let [loopback, wide] = ["127.0.0.1:80", "0.0.0.0:80"].map(|it| it.parse().unwrap());
        let [local, socks5] = [loopback, wide].map(|address| WayIn::any_target(&SOCKS5, address));
        let forward = WayIn::any_target(&FORWARD, wide);
        let open = Access::default();
        assert!(open.is_open_to_all(&socks5) && !open.is_open_to_all(&local));
        assert_eq!(open.describe(&local), "open to this machine only");
        assert_eq!(open.describe(&socks5), "open to all that can reach it");
        let some = access(&["10.0.0.0/8", "::1"]);
        assert!(!some.is_open_to_all(&forward));
        assert_eq!(
            some.describe(&forward),
            "open to clients in 10.0.0.0/8, ::1"
        );
        assert!(some.shuts_out_all(loopback) && !some.shuts_out_all(wide));
        assert!(!some.shuts_out_all("[::1]:80".parse().unwrap()));
    }

    #[test]
    fn a_basic_login_is_read_as_the_rfc_has_it() {
        let read = |value: &str| Login::from_basic(value.as_bytes());
        // RFC 7617, section 2.
        let rfc = read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(rfc, Some(Login::new(b"Aladdin", b"open sesame")));
        assert_eq!(read(&basic("a:b:c")), Some(Login::new(b"a", b"b:c")));
        assert_eq!(read(&basic("a:")), Some(Login::new(b"a", b"")));
        assert_eq!(read("bASIC   YTpi"), Some(Login::new(b"a", b"b")));
        let longest = format!("{}:{}", "u".repeat(255), "p".repeat(255));
        assert!(read(&basic(&longest)).is_some());
        for wrong in [
            "",
            "Basic",
            "Basic ",
            "BasicYTpi",
            "Bearer YTpi",
            "Basic YTpi!",
            "Basic YWI=",
            "Digest username=\"a\"",
            &basic(&format!("{longest}{longest}")),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{:?}", rfc.unwrap()), "Login");
    }

    proptest! {
        #[test]
        fn clients_that_parse_round_trip(
            text in "\\[?([0-9]{1,3}(\\.[0-9]{1,3}){3}|[0-9a-f:]{2,12})(/[0-9]{1,3})?\\]?|.{0,20}"
        ) {
            if let Ok(net) = parse_client(&text) {
                prop_assert_eq!(parse_client(&show_net(&net)), Ok(net));
            }
        }

        #[test]
        fn any_bytes_are_a_login_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..900), user: String, password: String
        ) {
            let _ = Login::from_basic(&bytes);
            let with_scheme = [b"Basic ", &bytes[..]].concat();
            let _ = Login::from_basic(&with_scheme);
            prop_assume!(!user.contains(':') && user.len() + password.len() < 510);
            let read = Login::from_basic(basic(&format!("{user}:{password}")).as_bytes());
            prop_assert_eq!(read, Some(Login::new(user.as_bytes(), password.as_bytes())));
        }
    }
}
