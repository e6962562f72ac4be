//! Where a gateway serves health, metrics and status, and to whom.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use crate::address::{is_loopback, parse_listen};
use crate::keys::read_secret_file;
use crate::options::{ADMIN, ADMIN_HOST, ADMIN_TOKEN, ADMIN_TOKEN_FILE};
use crate::settings::{BoxedError, ConfigError, Settings};
use crate::target::Host;

/// The admin listener.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// Where to listen; on loopback if there is no token.
    pub listen: SocketAddr,
    /// What its clients have to present.
    pub token: Option<AdminToken>,
    /// Names that it answers to, besides addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// A bearer token. Its `Debug` shows nothing.
#[derive(Clone)]
pub struct AdminToken(String);

impl AdminToken {
    /// Whether a client presented this token. The time that it takes says nothing about how much
    /// of the text was right: digests are compared.
    pub fn matches(&self, presented: &str) -> bool {
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        digest(&self.0).as_ref() == digest(presented).as_ref()
    }
}

impl PartialEq for AdminToken {
    fn eq(&self, other: &AdminToken) -> bool {
        self.matches(&other.0)
    }
}

/// A token that is guessed or mangled easily.
#[derive(Debug, thiserror::Error)]
#[error("a token must have 16 characters or more, and no spaces")]
pub struct WeakToken;

impl FromStr for AdminToken {
    type Err = WeakToken;

    fn from_str(text: &str) -> Result<AdminToken, WeakToken> {
        const CHARS_MIN: usize = 16;
        match text.len() >= CHARS_MIN && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(AdminToken(text.to_owned())),
            false => Err(WeakToken),
        }
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

pub(super) fn resolve_admin(settings: &Settings) -> Result<Option<AdminConfig>, ConfigError> {
    let token: Option<AdminToken> = settings.optional(&ADMIN_TOKEN)?;
    let from_file = settings.optional_with(&ADMIN_TOKEN_FILE, |path| {
        read_secret_file(Path::new(path), |text| {
            Ok::<AdminToken, BoxedError>(text.trim().parse()?)
        })
    })?;
    let listen = settings.optional_with(&ADMIN, parse_listen)?;
    let without_port = |text: &str| match text.matches(':').count() {
        1 => Err(BoxedError::from("must be a name without a port")),
        _ => Ok(text.parse()?),
    };
    let hosts = settings.many_with(&ADMIN_HOST, |text| match without_port(text)? {
        Host::Domain(name) => Ok::<String, BoxedError>(name),
        Host::Ipv4(_) | Host::Ipv6(_) => {
            Err("must be a name (requests for IP addresses are always answered)".into())
        }
    })?;
    if listen.is_none() && !hosts.is_empty() {
        return Err(settings.wrong(&ADMIN_HOST, "needs --admin"));
    }
    match (listen, token, from_file) {
        (_, Some(_), Some(_)) => Err(settings.wrong(
            &ADMIN_TOKEN_FILE,
            "contradicts --admin-token: give one of them",
        )),
        (None, None, Some(_)) => Err(settings.wrong(&ADMIN_TOKEN_FILE, "needs --admin")),
        (None, Some(_), None) => Err(settings.wrong(&ADMIN_TOKEN, "needs --admin")),
        (None, None, None) => Ok(None),
        (Some(listen), None, None) if !is_loopback(listen.ip()) => Err(settings.wrong(
            &ADMIN,
            "other machines can reach this address: give --admin-token-file, or use loopback",
        )),
        (Some(listen), token, from_file) => Ok(Some(AdminConfig {
            listen,
            token: token.or(from_file),
            hosts,
        })),
    }
}
