//! Which proxy a request goes through, by the environment or by choice.
//!
//! The rules are curl's: each scheme has its own variable, `all_proxy` is for those that have none, and
//! names in small letters come first. `HTTP_PROXY` is not read, since CGI has a server's clients set it.
//! A value that cannot be used is an error: a proxy may be what keeps a user's traffic where it belongs,
//! so no request goes past it.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    net::IpAddr,
};

use hyper::{Uri, http::HeaderValue};
use hyper_util::client::proxy::matcher::Matcher;
use url::{Host, Url};

use super::{
    error::{ProxyProblem, RemoteError},
    options::ProxyChoice,
};

/// The variables for a scheme, the first that is set counts.
const HTTP: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
const HTTPS: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// The ports of proxies whose address has none, as curl has them.
const PORT: u16 = 1080;
const PORT_OF_HTTPS: u16 = 443;

/// Which proxies there are.
#[derive(Clone, Debug)]
pub(super) enum Proxies {
    Direct,
    /// This one, for all.
    One(String),
    /// What the variables have that are set.
    Environment(Vec<(&'static str, OsString)>),
}

/// A proxy, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Proxy {
    /// Where it is: its scheme, host and port.
    pub(super) address: Uri,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Over TLS if its scheme is https. With the value of `Proxy-Authorization`.
    Http(Option<HeaderValue>),
    /// It takes IPv4 addresses or, if `names` is set, names.
    Socks4 { names: bool },
    /// It takes addresses or, if `names` is set, names. With user and password.
    Socks5 {
        names: bool,
        user: Option<(String, String)>,
    },
}

impl Proxies {
    pub(super) fn new(choice: &ProxyChoice) -> Self {
        match choice {
            ProxyChoice::Direct => Self::Direct,
            ProxyChoice::Url(url) => Self::One(url.clone()),
            ProxyChoice::Environment => Self::of_variables(std::env::var_os),
        }
    }

    fn of_variables(value_of: impl Fn(&'static str) -> Option<OsString>) -> Self {
        let names = HTTP.into_iter().chain(HTTPS).chain(EXCEPTIONS);
        let set = names.filter_map(|name| Some((name, value_of(name)?)));
        // An empty one is as one that is not set.
        Self::Environment(set.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// The proxy for `url`, if it is asked for through one.
    pub(super) fn of(&self, url: &Url) -> Result<Option<Proxy>, RemoteError> {
        let (variable, value) = match self {
            Self::Direct => return Ok(None),
            Self::One(value) => (None, OsStr::new(value)),
            Self::Environment(set) => {
                let first = |names: &[&str]| {
                    let found = |name: &&str| set.iter().find(|(set, _)| set == name);
                    names.iter().find_map(found)
                };
                let names = match url.scheme() {
                    "https" => &HTTPS[..],
                    _ => &HTTP,
                };
                let Some((name, value)) = first(names) else {
                    return Ok(None);
                };
                let exceptions = first(&EXCEPTIONS).map(|(_, list)| list.to_string_lossy());
                if exceptions.is_some_and(|list| is_excepted(url, &list)) {
                    return Ok(None);
                }
                (Some(*name), value.as_os_str())
            }
        };
        match parse(value) {
            Ok(proxy) => Ok(Some(proxy)),
            Err(problem) => Err(RemoteError::Proxy {
                variable,
                value: without_user(&value.to_string_lossy()),
                problem,
            }),
        }
    }
}

fn parse(value: &OsStr) -> Result<Proxy, ProxyProblem> {
    let value = value.to_str().ok_or(ProxyProblem::Address)?.trim();
    let scheme = value.split_once("://").map_or("http", |(scheme, _)| scheme);
    let scheme = scheme.to_ascii_lowercase();
    let known = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
    if !known.contains(&&*scheme) {
        return Err(ProxyProblem::Scheme);
    }
    // What it makes nothing of is not understood, and must not be passed over as it does.
    let matcher = Matcher::builder().all(value).build();
    let any = Uri::from_static("http://host/");
    let found = matcher.intercept(&any).ok_or(ProxyProblem::Address)?;
    let authority = found.uri().authority().ok_or(ProxyProblem::Address)?;
    let host = authority.host();
    let port = match authority.as_str().strip_prefix(host) {
        Some("" | ":") if scheme == "https" => PORT_OF_HTTPS,
        Some("" | ":") => PORT,
        Some(_) => authority
            .port_u16()
            .filter(|&port| port > 0)
            .ok_or(ProxyProblem::Address)?,
        None => return Err(ProxyProblem::Address),
    };
    if Host::parse(host).is_err() {
        return Err(ProxyProblem::Address);
    }
    let address = format!("{scheme}://{host}:{port}/").parse();
    let user = found.raw_auth();
    let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
    let kind = match &*scheme {
        "socks4" | "socks4a" if user.is_some() => return Err(ProxyProblem::User),
        "socks4" | "socks4a" => Kind::Socks4 {
            names: scheme == "socks4a",
        },
        "socks5" | "socks5h" => Kind::Socks5 {
            names: scheme == "socks5h",
            user,
        },
        _ => Kind::Http(found.basic_auth().cloned()),
    };
    Ok(Proxy {
        address: address.map_err(|_| ProxyProblem::Address)?,
        kind,
    })
}

/// Whether the list has the server of `url`: by its name or a domain above it, by its address or a
/// network, with its port if the entry has one; `*` has all.
fn is_excepted(url: &Url, list: &str) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let host = host.trim_end_matches('.');
    let port = url.port_or_known_default();
    let entries = list.split([',', ' ', '\t', '\n', '\r']);
    entries.filter(|entry| !entry.is_empty()).any(|entry| {
        let (name, of_port) = name_and_port(entry);
        if of_port.is_some() && of_port != port {
            return false;
        }
        let name = name.trim_end_matches('.');
        let matcher = Matcher::builder().all("http://proxy").no(name).build();
        let asked = format!("http://{host}/").parse::<Uri>();
        !name.is_empty() && asked.is_ok_and(|asked| matcher.intercept(&asked).is_none())
    })
}

/// An entry's name, and its port if it has one. An IPv6 address with a port is in brackets.
fn name_and_port(entry: &str) -> (&str, Option<u16>) {
    let (name, port) = match entry.rsplit_once(':') {
        Some((name, port)) if name.ends_with(']') || !name.contains(':') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    (bare.unwrap_or(name), port)
}

/// A proxy's address for messages.
fn without_user(value: &str) -> String {
    match value.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://");
            let scheme = scheme.map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
            format!("{scheme}...@{host}")
        }
        None => value.to_owned(),
    }
}

impl Proxy {
    /// Whether it is spoken to over TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.address.scheme_str() == Some("https")
    }

    /// Whether it reads requests for http addresses.
    pub(super) fn is_http(&self) -> bool {
        matches!(self.kind, Kind::Http(_))
    }

    /// The header that lets a request for an http address through, if one is needed.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        match &self.kind {
            Kind::Http(authorization) => authorization.as_ref(),
            _ => None,
        }
    }

    /// Whether names are looked up here, and only IPv4 addresses count.
    pub(super) fn takes_addresses(&self) -> Option<fn(&IpAddr) -> bool> {
        match self.kind {
            Kind::Socks4 { names: false } => Some(IpAddr::is_ipv4),
            Kind::Socks5 { names: false, .. } => Some(|_| true),
            _ => None,
        }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.address.scheme_str().unwrap_or_default();
        let authority = self
            .address
            .authority()
            .map_or("", |authority| authority.as_str());
        write!(f, "{scheme}://{authority}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(set: &[(&'static str, &str)], url: &str) -> Result<Option<String>, String> {
        let value = |name: &str| {
            let found = set.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| OsString::from(*value))
        };
        let proxies = Proxies::of_variables(value);
        let proxy = proxies.of(&Url::parse(url).expect("an address"));
        proxy
            .map(|proxy| proxy.map(|proxy| proxy.to_string()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_scheme_has_its_own_variables_in_their_order() {
        // By what is set: for http, for https.
        let all = [
            "http_proxy",
            "HTTP_PROXY",
            "https_proxy",
            "HTTPS_PROXY",
            "all_proxy",
            "ALL_PROXY",
        ];
        for set in 0..1_u32 << all.len() {
            let is_set = |name: &&'static str| {
                let at = all
                    .iter()
                    .position(|other| other == name)
                    .expect("one of them");
                set >> at & 1 == 1
            };
            let values: Vec<_> = (all.into_iter().filter(is_set))
                .map(|name| (name, format!("http://{}:1", name.replace('_', "-"))))
                .collect();
            let values: Vec<_> = values
                .iter()
                .map(|(name, value)| (*name, &value[..]))
                .collect();
            for (url, names) in [("http://a/", &HTTP[..]), ("https://a/", &HTTPS)] {
                let expected = names.iter().find(|name| is_set(name));
                let expected = expected.map(|name| format!("http://{}:1", name.replace('_', "-")));
                assert_eq!(of(&values, url), Ok(expected), "{values:?}");
            }
        }
        assert_eq!(
            of(&[("http_proxy", ""), ("all_proxy", "a:1")], "http://b/"),
            Ok(Some("http://a:1".to_owned()))
        );
    }

    #[test]
    fn addresses_are_what_curl_takes_them_for() {
        for (value, expected) in [
            ("proxy", "http://proxy:1080"),
            ("proxy:3128", "http://proxy:3128"),
            ("http://proxy/", "http://proxy:1080"),
            ("HTTP://proxy:8080/path", "http://proxy:8080"),
            ("https://proxy", "https://proxy:443"),
            ("socks4://proxy", "socks4://proxy:1080"),
            ("socks4a://127.0.0.1:9", "socks4a://127.0.0.1:9"),
            ("socks5://[::1]:9", "socks5://[::1]:9"),
            ("socks5h://me:secret@proxy:9", "socks5h://proxy:9"),
            ("http://me:secret@proxy:9", "http://proxy:9"),
        ] {
            assert_eq!(
                of(&[("http_proxy", value)], "http://a/"),
                Ok(Some(expected.to_owned())),
                "{value}"
            );
        }
        let proxy = parse(OsStr::new("http://me:secret@proxy:9")).expect("a proxy");
        let authorization = proxy.authorization().expect("a user").to_str();
        assert_eq!(authorization.expect("text"), "Basic bWU6c2VjcmV0");
        let proxy = parse(OsStr::new("socks5h://m%65:sec%3Aret@proxy:9")).expect("a proxy");
        let user = Some(("me".to_owned(), "sec:ret".to_owned()));
        assert_eq!(proxy.kind, Kind::Socks5 { names: true, user });
    }

    #[test]
    fn a_value_that_is_not_understood_is_an_error_that_names_its_variable_and_no_secret() {
        for value in [
            "socks://proxy:9",
            "ftp://me:secret@proxy:9",
            "htp://proxy",
            "http://",
            "http://proxy:port",
            "http://me:secret@proxy:99999",
            "http://proxy:0",
            "a proxy",
            "http:/proxy:80",
            "://",
            "socks4://me:secret@proxy:9",
        ] {
            for (variable, url) in [
                ("http_proxy", "http://a/"),
                ("HTTPS_PROXY", "https://a/"),
                ("all_proxy", "https://a/"),
            ] {
                let error = of(&[(variable, value)], url).expect_err(value);
                assert!(
                    error.contains(variable) && !error.contains("secret"),
                    "{error}"
                );
            }
            // Who needs no proxy needs none that is understood.
            assert_eq!(of(&[("https_proxy", value)], "http://a/"), Ok(None));
            assert_eq!(
                of(&[("http_proxy", value), ("no_proxy", "a")], "http://a/"),
                Ok(None)
            );
        }
    }

    #[test]
    fn exceptions_are_names_domains_addresses_networks_and_ports() {
        for (list, url, expected) in [
            ("*", "http://a.example/", true),
            ("a.example", "http://a.example/", true),
            ("A.Example", "http://a.example/", true),
            ("example", "http://a.example/", true),
            (".example", "http://a.example/", true),
            (".a.example", "http://a.example/", true),
            ("a.example.", "http://a.example/", true),
            ("a.example", "http://a.example./", true),
            ("xample", "http://a.example/", false),
            ("b.a.example", "http://a.example/", false),
            ("x, a.example", "http://a.example/", true),
            ("x a.example y", "http://a.example/", true),
            (",, ,", "http://a.example/", false),
            (".", "http://a.example/", false),
            ("a.example:80", "http://a.example/", true),
            ("a.example:8080", "http://a.example/", false),
            ("a.example:8080", "http://a.example:8080/", true),
            ("a.example:443", "https://a.example/", true),
            ("127.0.0.1", "http://127.0.0.1:99/", true),
            ("127.0.0.1:99", "http://127.0.0.1:99/", true),
            ("127.0.0.1:98", "http://127.0.0.1:99/", false),
            ("127.0.0.0/8", "http://127.1.2.3/", true),
            ("127.0.0.0/16", "http://127.1.2.3/", false),
            ("10.0.0.0/8", "http://127.0.0.1/", false),
            ("::1", "http://[::1]/", true),
            ("[::1]", "http://[::1]/", true),
            ("[::1]:80", "http://[::1]/", true),
            ("[::1]:81", "http://[::1]/", false),
            ("fd00::/8", "http://[fd00::7]/", true),
            ("fd00::/8", "http://[fe80::7]/", false),
            ("0.0.1", "http://127.0.0.1/", false),
        ] {
            let url = Url::parse(url).expect("an address");
            assert_eq!(is_excepted(&url, list), expected, "{list} {url}");
        }
    }

    proptest! {
        /// Whatever is in a variable that counts: a proxy, or an error, never nothing.
        #[test]
        fn no_value_is_passed_over(value in "\\PC{1,40}", scheme in "(http|socks5|socks)?(://)?") {
            let value = format!("{scheme}{value}");
            prop_assert_ne!(of(&[("http_proxy", &value)], "http://host/"), Ok(None));
        }

        #[test]
        fn no_list_of_exceptions_panics(list in "\\PC{0,40}", number in "[0-9.:/\\[\\], ]{0,30}") {
            let url = Url::parse("http://a.example:80/").expect("an address");
            is_excepted(&url, &list);
            is_excepted(&url, &number);
        }
    }
}
