//! A web site behind the link, which a listener serves as if it were its own: the requests' way there, and the heads of
//! its answers as clients of the listener understand them.
//!
//! Bodies pass as they are, but for links of indices ([`links`]). Other absolute links lead past the listener.

use std::{
    fmt,
    str::{self, FromStr},
    sync::Arc,
};

use httparse::Header;
use percent_encoding::percent_decode_str;

use super::{
    fields,
    links::{
        self, ETAG, IF_NONE_MATCH, Index, Listener, Marks, OF_BODY, OF_OTHER_BODIES, OwnPath,
        Rewriter,
    },
};
use crate::target::{FlowTarget, Protocols, Target, TargetError};

/// Where the other hosts of a service begin, in the paths of its listener.
const OTHER_HOSTS: &str = "/_refrain/";

/// A site and the hosts that its redirects lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The site.
    pub site: Origin,
    /// Its other hosts.
    others: Vec<Origin>,
    /// Whether clients reach the listener by the site's own name, inside TLS.
    pub(crate) is_by_own_name: bool,
}

/// A host that is asked by HTTP, inside TLS or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Where it is.
    pub target: Target,
    /// Whether it speaks TLS (`https:`).
    pub is_https: bool,
    /// Whether clients begin TLS with it, which is opened.
    is_opened: bool,
}

/// A host whose answers a service passes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub(super) service: Arc<Service>,
    pub(super) origin: Origin,
    /// The listener as the client named it.
    authority: Option<String>,
    /// The index that it was asked for.
    index: Option<Index>,
    /// Whether the client has one with changed links.
    has_marked: bool,
}

/// Why a request is for no host of a service.
pub(super) enum Misrouted {
    /// It names its host, as to a proxy.
    NotAProxy,
    /// The service does not have this host.
    UnknownHost,
}

/// Why a text names no service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// No scheme, or another one.
    #[error("the site must begin with https://, http://, postgres://, smtp://, imap:// or ldap://")]
    Scheme,
    /// Something follows the host.
    #[error("a site has no path here: write {0}")]
    Path(String),
    /// A host that is none.
    #[error("invalid host \"{host}\": {error}")]
    Host {
        /// As it is written.
        host: String,
        /// The fault.
        error: TargetError,
    },
    /// A host that is there twice.
    #[error("the host {0} is there twice")]
    Twice(String),
    /// Clients of such a service do not know other hosts by this listener.
    #[error(
        "a service whose clients speak TLS is one https:// site without other hosts: give each host a service of its own"
    )]
    OwnName,
}

impl FromStr for Service {
    type Err = ServiceError;

    /// Reads `https://HOST[:PORT][,HOST[:PORT]...]`, or the same with `http:`.
    fn from_str(text: &str) -> Result<Service, ServiceError> {
        let mut hosts = text.split(',');
        let site = hosts.next().unwrap_or_default();
        let (scheme, host) = site.split_once("://").ok_or(ServiceError::Scheme)?;
        let is_https = is_https(scheme).ok_or(ServiceError::Scheme)?;
        let host = host.strip_suffix('/').unwrap_or(host);
        if let Some(end) = host.find(['/', '?', '#']) {
            return Err(ServiceError::Path(format!("{scheme}://{}", &host[..end])));
        }
        let origin = |host: &str| {
            let target = Target::with_default_port(host, default_port(is_https));
            let target = target.and_then(Target::unless_mistyped);
            let target = target.map_err(|error| ServiceError::Host {
                host: host.to_owned(),
                error,
            })?;
            Ok(Origin::of(target, is_https))
        };
        let site = origin(host)?;
        let mut others: Vec<Origin> = Vec::new();
        for host in hosts {
            let other = origin(host)?;
            if other == site || others.contains(&other) {
                return Err(ServiceError::Twice(host.to_owned()));
            }
            others.push(other);
        }
        Ok(Service {
            site,
            others,
            is_by_own_name: false,
        })
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.site.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.site.authority())?;
        self.others
            .iter()
            .try_for_each(|other| write!(f, ",{}", other.authority()))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_https {
            true => write!(f, "https://{}", self.authority()),
            false => self.target.fmt(f),
        }
    }
}

impl Origin {
    fn of(target: Target, is_https: bool) -> Origin {
        Origin {
            target,
            is_https,
            is_opened: false,
        }
    }

    /// One without TLS.
    pub(crate) fn plain(target: Target) -> Origin {
        Origin::of(target, false)
    }

    /// One with TLS.
    pub(crate) fn of_tls(target: Target) -> Origin {
        Origin::of(target, true)
    }

    /// One with TLS that clients begin with it.
    pub(crate) fn opened(target: Target) -> Origin {
        Origin {
            is_opened: true,
            ..Origin::of_tls(target)
        }
    }

    /// As URLs and `Host` have it: without the port that the scheme implies.
    pub(super) fn authority(&self) -> String {
        match self.target.port == default_port(self.is_https) {
            true => self.target.host.to_string(),
            false => self.target.to_string(),
        }
    }

    /// The flow of exchanges that leads there. With a number, flows of the same client may share a connection by HTTP/2.
    pub(crate) fn flow_target(&self, shared_by: Option<u32>) -> FlowTarget {
        let protocols = match shared_by {
            Some(_) => Protocols::http(),
            None => Protocols::http1(),
        };
        FlowTarget {
            tls: self.is_https.then_some(protocols),
            exchanges: self.is_https.then(|| shared_by.unwrap_or_default()),
            is_opened: self.is_opened,
            ..self.target.clone().into()
        }
    }
}

impl Service {
    /// A site that clients know by its own name.
    pub(crate) fn of_origin(site: Origin) -> Service {
        Service {
            site,
            others: Vec::new(),
            is_by_own_name: true,
        }
    }

    /// The same for clients that speak TLS, and know the listener by the site's name.
    pub(crate) fn by_its_own_name(self) -> Result<Service, ServiceError> {
        match self.site.is_https && self.others.is_empty() {
            true => Ok(Service {
                is_by_own_name: true,
                ..self
            }),
            false => Err(ServiceError::OwnName),
        }
    }

    /// Whether a request with this `Host` is for the site.
    pub(super) fn is_addressed_by(&self, host: &[u8]) -> bool {
        if !self.is_by_own_name {
            return true;
        }
        let host = str::from_utf8(host).ok();
        let target = host.and_then(|host| Target::with_default_port(host, 443).ok());
        target.is_some_and(|target| target.host == self.site.target.host)
    }

    /// The host that a request for this path of the listener is for, and the path there.
    pub(super) fn route<'a>(&self, path: &'a str) -> Result<(&Origin, &'a str), Misrouted> {
        let rest = path.strip_prefix(OTHER_HOSTS);
        // Without other hosts, such a path is the site's.
        let Some(rest) = rest.filter(|_| !self.others.is_empty()) else {
            return match path.starts_with('/') || path == "*" {
                true => Ok((&self.site, path)),
                false => Err(Misrouted::NotAProxy),
            };
        };
        let (host, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // Some clients write a port's colon as %3A.
        let host = percent_decode_str(host).decode_utf8_lossy();
        let is_it = |other: &&Origin| other.authority().eq_ignore_ascii_case(&host);
        let other = self.others.iter().find(is_it);
        let other = other.ok_or(Misrouted::UnknownHost)?;
        Ok((other, if rest.is_empty() { "/" } else { rest }))
    }
}

impl Served {
    /// The host of a service that a request goes to.
    pub(super) fn of(service: &Arc<Service>, origin: &Origin) -> Served {
        Served {
            service: Arc::clone(service),
            origin: origin.clone(),
            authority: None,
            index: None,
            has_marked: false,
        }
    }

    /// Looks for an index in a request. Appends the fields of one whose answer is to be whole, and names those that are
    /// not to be sent.
    pub(super) fn look_for_index(
        &mut self,
        (method, path): (&str, &str),
        received: &[Header],
        head: &mut Vec<u8>,
    ) -> &'static [&'static str] {
        if self.service.is_by_own_name {
            return &[];
        }
        let host = fields::values(received, "Host").next();
        self.authority = host.and_then(links::authority);
        let site = self.service.site.authority();
        self.index = Index::of(method, path, received, &site);
        if self.index.is_none() {
            return &[];
        }
        let tags = Marks::of(&*self.service).unmarked(received);
        self.has_marked = !tags.is_empty();
        if self.has_marked {
            fields::push(head, IF_NONE_MATCH, &tags);
        }
        &OF_OTHER_BODIES
    }

    pub(super) fn is_index(&self) -> bool {
        self.index.is_some()
    }

    /// What changes the links of an answer's body.
    pub(super) fn rewriter(&self, code: u16, received: &[Header]) -> Option<Rewriter> {
        links::rewriter(self.index?, code, received)
    }

    /// The fields of an answer that [`Served::push_fields`] leaves out or writes.
    pub(super) fn fields(&self) -> &'static [&'static str] {
        // Those that send clients past the listener come first.
        match self.service.is_by_own_name {
            true => &["Alt-Svc"],
            false => &[
                "Alt-Svc",
                "Strict-Transport-Security",
                "Location",
                "Content-Location",
                "Set-Cookie",
                "Link",
                // Clients of Hugging Face that see it leave by another protocol.
                "X-Xet-Hash",
            ],
        }
    }

    /// The fields of an answer to HEAD, if it describes a file of another host to which it redirects, as Hugging Face
    /// does. Its clients take the file's place from such an answer, and would follow a redirect that stays with the
    /// listener, to an answer without the description. With these fields and no redirect, they get the file by the same
    /// URL.
    pub(super) fn fields_of_file<'a>(
        &self,
        code: u16,
        received: &'a [Header<'a>],
    ) -> Option<Vec<Header<'a>>> {
        let size = fields::values(received, "X-Linked-Size").next()?;
        let place = fields::values(received, "Location").next()?;
        let own = self.own_path(str::from_utf8(place).ok()?)?;
        if !(300..400).contains(&code) || !own.path.starts_with(OTHER_HOSTS) {
            return None;
        }
        let of_redirect = [
            "Location",
            "Content-Length",
            "Content-Type",
            "Transfer-Encoding",
        ];
        let is_of_file = |field: &&Header| {
            let is_it = |name: &&str| field.name.eq_ignore_ascii_case(name);
            !of_redirect.iter().any(is_it)
        };
        let mut of_file: Vec<Header> = received.iter().filter(is_of_file).copied().collect();
        of_file.push(Header {
            name: "Content-Length",
            value: size,
        });
        Some(of_file)
    }

    /// Appends those fields, for the listener's clients.
    pub(super) fn push_fields(&self, head: &mut Vec<u8>, received: &[Header]) {
        if self.service.is_by_own_name {
            return;
        }
        for name in ["Location", "Content-Location"] {
            for value in fields::values(received, name) {
                let own = str::from_utf8(value)
                    .ok()
                    .and_then(|url| self.own_path(url));
                let value = own.as_ref().map_or(value, |own| own.path.as_bytes());
                fields::push(head, name, value);
            }
        }
        for value in fields::values(received, "Link") {
            fields::push(head, "Link", &links::own_links(value, self));
        }
        // The cookies of other hosts would come back to the site.
        let cookies = fields::values(received, "Set-Cookie").filter(|_| self.is_of_site());
        for value in cookies {
            fields::push(head, "Set-Cookie", &own_cookie(value));
        }
    }

    /// The fields of an answer that [`Served::push_fields_of_index`] writes, or that are wrong with another body.
    pub(super) fn fields_of_index(&self, code: u16, is_changed: bool) -> &'static [&'static str] {
        match is_changed {
            true => &OF_BODY,
            false if code == 304 && self.has_marked => &OF_BODY[..1],
            false => &[],
        }
    }

    /// Appends those fields.
    pub(super) fn push_fields_of_index(
        &self,
        head: &mut Vec<u8>,
        received: &[Header],
        is_changed: bool,
    ) {
        let tag = fields::values(received, ETAG).next();
        if let Some(tag) = tag.and_then(|tag| Marks::of(&*self.service).marked(tag)) {
            fields::push(head, ETAG, &tag);
        }
        if is_changed {
            fields::push(head, "Vary", b"Host");
        }
    }

    /// Whether the answer comes from the site itself.
    pub(super) fn is_of_site(&self) -> bool {
        self.origin == self.service.site
    }
}

impl Listener for Served {
    fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// A URL of one of the service's hosts as a path of the listener. Others stay as they are.
    fn own_path(&self, url: &str) -> Option<OwnPath> {
        let of_another = |path| OwnPath {
            path,
            is_of_another: true,
        };
        let (is_https, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (is_https(scheme)?, rest),
            None => match url.strip_prefix("//") {
                Some(rest) => (self.origin.is_https, rest),
                // A path of the host that answers. A relative one is right as it is.
                None if url.starts_with('/') && !self.is_of_site() => {
                    let path = format!("{OTHER_HOSTS}{}{url}", self.origin.authority());
                    return Some(of_another(path));
                }
                None => return None,
            },
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if !has_one_reading(path) {
            return None;
        }
        let target = Target::with_default_port(authority, default_port(is_https)).ok()?;
        let origin = Origin::of(target, is_https);
        let slash = if path.starts_with('/') { "" } else { "/" };
        if origin == self.service.site {
            // Two slashes would begin the name of a host, in whichever way they are written.
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%?#".contains(byte);
            let second = path.as_bytes().get(1);
            let same = match path.starts_with('/') && !second.is_none_or(is_plain) {
                true => "/.",
                false => "",
            };
            return Some(OwnPath {
                path: format!("{same}{slash}{path}"),
                is_of_another: false,
            });
        }
        let is_other = self.service.others.contains(&origin);
        let path = || format!("{OTHER_HOSTS}{}{slash}{path}", origin.authority());
        is_other.then(|| of_another(path()))
    }
}

/// Whether a path means the same to all clients behind the name of another host: it has no segment of dots, which could
/// lead out of what is that host's, and no byte that browsers take for a slash or leave out.
fn has_one_reading(path: &str) -> bool {
    let is_odd = |byte: u8| byte == b'\\' || byte.is_ascii_control();
    let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
    let has_dots = |segment: &str| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(&*segment, "." | "..")
    };
    !path.bytes().any(is_odd) && !path.split('/').any(has_dots)
}

/// A cookie without what the name and the scheme of the site allow, and those of the listener do not.
fn own_cookie(value: &[u8]) -> Vec<u8> {
    let is_kept = |part: &&[u8]| {
        let part = part.trim_ascii();
        let name = part.split(|&byte| byte == b'=').next().unwrap_or_default();
        let name = name.trim_ascii();
        !(name.eq_ignore_ascii_case(b"domain")
            || part.eq_ignore_ascii_case(b"secure")
            // Without `Secure`, browsers refuse it.
            || part.eq_ignore_ascii_case(b"samesite=none"))
    };
    let mut parts = value.split(|&byte| byte == b';');
    let first = parts.next();
    let kept: Vec<&[u8]> = first.into_iter().chain(parts.filter(is_kept)).collect();
    kept.join(&b';')
}

fn is_https(scheme: &str) -> Option<bool> {
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

#[cfg(test)]
mod tests;
