//! Indices of packages and files, whose links lead to the hosts of a service: in their bodies, a service at a plain
//! address makes them lead to its own listener.
//!
//! An index is known by its request, since a request for one is changed too: its answer must be whole and plain. All
//! other bodies pass as they are (`docs/decisions/0060-links-of-indices.md`).

use std::hash::{DefaultHasher, Hash, Hasher};

use httparse::Header;

use super::{fields, names_digest};
use crate::target::Target;

/// The kinds of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Index {
    /// Of Python packages (PEP 503 and 691).
    Python,
    /// Of a package's versions in an npm registry.
    Npm,
    /// The configuration of a sparse index of cargo.
    Cargo,
    /// Of large files of git (Git LFS's batch API).
    LargeFiles,
}

/// The listener that links are to lead to.
pub(super) trait Listener {
    /// Its name, as the client used it.
    fn authority(&self) -> Option<&str>;

    /// A path of it for a URL, if it has one.
    fn own_path(&self, url: &str) -> Option<OwnPath>;
}

/// A path of a listener.
pub(super) struct OwnPath {
    pub(super) path: String,
    /// Whether it leads to another host than the site.
    pub(super) is_of_another: bool,
}

/// A link in an index.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    /// The name in front of it: a key of JSON, with its quotes, or an attribute of HTML.
    name: &'static str,
    syntax: Syntax,
    leads_to: LeadsTo,
    /// Whether clients need a URL with a host.
    is_absolute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Json,
    Html,
}

/// The hosts whose links are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeadsTo {
    All,
    /// Requests there have credentials, which other hosts of a service do not get.
    Site,
    /// The site, and other hosts by URLs that are signed in their query.
    SiteOrSigned,
}

const PYTHON_PAGE: &[Link] = &[
    Link {
        // pip joins no URL of the page to it.
        name: "<base href",
        is_absolute: true,
        ..PYTHON_LINK
    },
    PYTHON_LINK,
];

const PYTHON_LINK: Link = Link {
    name: "href",
    syntax: Syntax::Html,
    leads_to: LeadsTo::All,
    is_absolute: false,
};

const PYTHON_JSON: &[Link] = &[Link {
    is_absolute: false,
    ..Link::json("\"url\"", LeadsTo::All)
}];

const NPM: &[Link] = &[Link::json("\"tarball\"", LeadsTo::All)];

const CARGO: &[Link] = &[
    Link::json("\"dl\"", LeadsTo::All),
    Link::json("\"api\"", LeadsTo::Site),
];

const LARGE_FILES: &[Link] = &[Link::json("\"href\"", LeadsTo::SiteOrSigned)];

const NPM_TYPE: &str = "application/vnd.npm.install-v1+json";

/// The registry whose links npm changes itself, into those of the registry in its settings. Its lock files then name no
/// listener.
const NPM_PUBLIC: &str = "registry.npmjs.org";

pub(super) const ETAG: &str = "ETag";

/// Fields of answers that are wrong with another body, the validator first.
pub(super) const OF_BODY: [&str; 8] = [
    ETAG,
    "Accept-Ranges",
    "Content-Digest",
    "Content-MD5",
    "Digest",
    "Repr-Digest",
    "Trailer",
    "Transfer-Encoding",
];

pub(super) const IF_NONE_MATCH: &str = "If-None-Match";

/// Fields of requests whose answers would have a part of the body, or none since the client has another one.
pub(super) const OF_OTHER_BODIES: [&str; 4] =
    ["Range", "If-Range", "If-Modified-Since", IF_NONE_MATCH];

impl Link {
    const fn json(name: &'static str, leads_to: LeadsTo) -> Link {
        Link {
            name,
            syntax: Syntax::Json,
            leads_to,
            is_absolute: true,
        }
    }
}

impl Index {
    /// The kind that a request asks for. `site` is the name of the service's site.
    pub(super) fn of(method: &str, path: &str, received: &[Header], site: &str) -> Option<Index> {
        let is_read = matches!(method, "GET" | "HEAD");
        let path = path.split('?').next().unwrap_or_default();
        let mut agents = fields::values(received, "User-Agent");
        let agent = agents.next().and_then(|agent| str::from_utf8(agent).ok());
        let agent = agent.unwrap_or_default();
        let accepts = |media_type: &str| {
            let mut accepted = fields::elements(received, "Accept");
            accepted.any(|accepted| accepted.starts_with(media_type.as_bytes()))
        };
        if names_digest(path) {
            return None;
        }
        if method == "POST" && path.ends_with("/info/lfs/objects/batch") {
            return Some(Index::LargeFiles);
        }
        if !is_read {
            return None;
        }
        if agent.starts_with("cargo") && path.ends_with("/config.json") {
            return Some(Index::Cargo);
        }
        if path
            .split('/')
            .any(|part| matches!(part, "simple" | "+simple"))
        {
            return Some(Index::Python);
        }
        let is_mapped = site == NPM_PUBLIC && agent.starts_with("npm/");
        ((agent.contains("npm/") || accepts(NPM_TYPE)) && !is_mapped).then_some(Index::Npm)
    }

    /// The links of one with this media type.
    fn links(self, media_type: &str) -> Option<&'static [Link]> {
        match (self, media_type) {
            (Index::Python, "text/html" | "application/vnd.pypi.simple.v1+html") => {
                Some(PYTHON_PAGE)
            }
            (Index::Python, "application/vnd.pypi.simple.v1+json") => Some(PYTHON_JSON),
            (Index::Npm, "application/json" | NPM_TYPE) => Some(NPM),
            // Servers of files do not know its type.
            (Index::Cargo, _) => Some(CARGO),
            (Index::LargeFiles, "application/vnd.git-lfs+json") => Some(LARGE_FILES),
            _ => None,
        }
    }
}

/// The rewriter of an answer's body, if its links are to be changed.
pub(super) fn rewriter(index: Index, code: u16, received: &[Header]) -> Option<Rewriter> {
    let is_there = |name| fields::values(received, name).next().is_some();
    let is_coded = fields::elements(received, "Content-Encoding")
        .any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
    if code != 200
        || is_coded
        || is_there("Docker-Content-Digest")
        || fields::lists(received, "Cache-Control", "no-transform")
    {
        return None;
    }
    let media_type = fields::values(received, "Content-Type").next();
    let media_type = String::from_utf8_lossy(media_type.unwrap_or_default());
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let links = index.links(&media_type.to_ascii_lowercase())?;
    Some(Rewriter {
        links,
        held: Vec::new(),
    })
}

/// Changes the links of a body that comes in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rewriter {
    links: &'static [Link],
    /// Bytes that may begin a link.
    held: Vec<u8>,
}

/// Longer URLs stay as they are.
const URL_BYTES_MAX: usize = 4 << 10;

/// The same holds for links with more space than this between name and URL.
const SPACE_BYTES_MAX: usize = 64;

/// What bytes begin with.
enum Begins {
    /// No link.
    Other,
    /// A link, if the bytes that follow are right.
    Unknown,
    /// A link, whose URL is these bytes.
    Link(std::ops::Range<usize>),
}

impl Rewriter {
    /// Takes the next bytes of a body, and leaves those that the client is to get. `is_last` says that none follow.
    pub(super) fn pass(&mut self, bytes: &mut Vec<u8>, is_last: bool, to: &impl Listener) {
        let mut body = std::mem::take(&mut self.held);
        body.append(bytes);
        let (mut passed, mut at, mut held_from) = (0, 0, body.len());
        while let Some(next) = body[at..].iter().position(|&byte| self.may_begin(byte)) {
            at += next;
            let (link, begins) = self.look_at(&body[at..]);
            match begins {
                Begins::Unknown if !is_last => {
                    held_from = at;
                    break;
                }
                Begins::Other | Begins::Unknown => at += 1,
                Begins::Link(url) => {
                    let url = at + url.start..at + url.end;
                    if let Some(own) = link.own_url(&body[url.clone()], to) {
                        bytes.extend(&body[passed..url.start]);
                        bytes.extend(own.as_bytes());
                        passed = url.end;
                    }
                    at = url.end;
                }
            }
        }
        bytes.extend(&body[passed..held_from]);
        self.held = body.split_off(held_from);
    }

    fn may_begin(&self, byte: u8) -> bool {
        self.links.iter().any(|link| link.may_begin(byte))
    }

    /// The link that these bytes begin with. If there is none, that it is not known counts.
    fn look_at(&self, bytes: &[u8]) -> (&'static Link, Begins) {
        let mut result = (&self.links[0], Begins::Other);
        for link in self.links {
            match link.look_at(bytes) {
                Begins::Other => {}
                Begins::Unknown => result = (link, Begins::Unknown),
                found => return (link, found),
            }
        }
        result
    }
}

impl Link {
    fn may_begin(&self, byte: u8) -> bool {
        byte.eq_ignore_ascii_case(&self.name.as_bytes()[0])
    }

    fn look_at(&self, bytes: &[u8]) -> Begins {
        let mut at = 0;
        for expected in self.name.bytes() {
            match bytes.get(at) {
                None => return Begins::Unknown,
                Some(&byte) if byte == expected => {}
                Some(byte)
                    if self.syntax == Syntax::Html && byte.eq_ignore_ascii_case(&expected) => {}
                Some(_) => return Begins::Other,
            }
            at += 1;
        }
        let (sign, quotes): (_, &[u8]) = match self.syntax {
            Syntax::Json => (b':', b"\""),
            Syntax::Html => (b'=', b"\"'"),
        };
        let mut quote = 0;
        for expected in [&[sign][..], quotes] {
            let spaces = bytes[at..]
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace());
            let spaces = spaces.take(SPACE_BYTES_MAX + 1).count();
            at += spaces;
            match bytes.get(at) {
                _ if spaces > SPACE_BYTES_MAX => return Begins::Other,
                None => return Begins::Unknown,
                Some(byte) if expected.contains(byte) => quote = *byte,
                Some(_) => return Begins::Other,
            }
            at += 1;
        }
        let mut end = at;
        loop {
            match bytes.get(end) {
                _ if end - at > URL_BYTES_MAX => return Begins::Other,
                None => return Begins::Unknown,
                Some(&byte) if byte == quote => return Begins::Link(at..end),
                Some(b'\\') if self.syntax == Syntax::Json => end += 2,
                Some(_) => end += 1,
            }
        }
    }

    /// A URL that leads to the listener instead.
    fn own_url(&self, url: &[u8], to: &impl Listener) -> Option<String> {
        let url = str::from_utf8(url).ok()?;
        let url = match self.syntax {
            // Some programs escape slashes.
            Syntax::Json => url.replace("\\/", "/"),
            // A sign that is written by its number or its name may be any, up to the query.
            Syntax::Html if url.split('?').next()?.contains('&') => return None,
            Syntax::Html => url.to_owned(),
        };
        let OwnPath {
            path,
            is_of_another,
        } = to.own_path(&url)?;
        let is_for_client = match self.leads_to {
            LeadsTo::All => true,
            LeadsTo::Site => !is_of_another,
            LeadsTo::SiteOrSigned => !is_of_another || path.contains('?'),
        };
        if !is_for_client {
            return None;
        }
        match self.is_absolute {
            true => Some(format!("http://{}{path}", to.authority()?)),
            false => Some(path),
        }
    }
}

/// The value of a `Link` field whose URLs lead to the listener.
pub(super) fn own_links(value: &[u8], to: &impl Listener) -> Vec<u8> {
    let mut own = Vec::with_capacity(value.len());
    for (nth, part) in value.split(|&byte| byte == b'<').enumerate() {
        if nth == 0 {
            own.extend(part);
            continue;
        }
        own.push(b'<');
        let end = part.iter().position(|&byte| byte == b'>');
        let (url, rest) = part.split_at(end.unwrap_or(0));
        let path = str::from_utf8(url).ok().and_then(|url| to.own_path(url));
        match (path, to.authority()) {
            (Some(own_path), Some(authority)) => {
                own.extend(format!("http://{authority}{}", own_path.path).into_bytes());
            }
            (Some(own_path), None) => own.extend(own_path.path.into_bytes()),
            (None, _) => own.extend(url),
        }
        own.extend(rest);
    }
    own
}

/// The name of the listener that a client used.
pub(super) fn authority(host: &[u8]) -> Option<String> {
    let host = str::from_utf8(host).ok()?;
    Target::with_default_port(host, 80).ok()?;
    Some(host.to_owned())
}

/// The marks of changed bodies, in validators. They depend on the hosts of the service: with other ones, a body that a
/// client has is out of date.
pub(super) struct Marks {
    /// Where the origin's validator was strong and where it was weak.
    suffixes: [String; 2],
}

impl Marks {
    pub(super) fn of(service: &impl ToString) -> Marks {
        let mut hasher = DefaultHasher::new();
        service.to_string().hash(&mut hasher);
        let hash = hasher.finish() as u32;
        Marks {
            suffixes: ["s", "w"].map(|kind| format!(";{kind}{hash:08x}\"")),
        }
    }

    /// A validator of the origin, for the changed body: a weak one.
    pub(super) fn marked(&self, tag: &[u8]) -> Option<Vec<u8>> {
        let (is_weak, opaque) = opaque(tag)?;
        let [strong, weak] = &self.suffixes;
        let suffix = if is_weak { weak } else { strong };
        Some([b"W/\"", opaque, suffix.as_bytes()].concat())
    }

    /// The marked validators of `If-None-Match`, as the origin is to see them. Others are of bodies with other links.
    pub(super) fn unmarked(&self, received: &[Header]) -> Vec<u8> {
        let of_origin = |tag: &[u8]| {
            let strong_and_weak = self.suffixes.iter().zip(["", "W/"]);
            let mut own = strong_and_weak.filter_map(|(suffix, weak)| {
                let start = tag.strip_suffix(suffix.as_bytes())?;
                let start = start.strip_prefix(b"W/")?;
                Some([weak.as_bytes(), start, b"\""].concat())
            });
            own.next()
        };
        let tags = fields::elements(received, IF_NONE_MATCH);
        let tags: Vec<Vec<u8>> = tags.filter_map(of_origin).collect();
        tags.join(&b", "[..])
    }
}

/// Whether a validator is weak, and its opaque part.
fn opaque(tag: &[u8]) -> Option<(bool, &[u8])> {
    let (is_weak, quoted) = match tag.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, tag),
    };
    let opaque = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some((is_weak, opaque))
}

#[cfg(test)]
mod tests;
