//! Which paths of the origin have an archive beside them, and those that are open.
//!
//! A path is asked for once (`HEAD /x.czip`), by one client while others wait, and the answer is
//! remembered for a while, whatever it is. When that is over the answer's validators tell whether the
//! archive is still the one that is open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderName, HeaderValue, ToStrError},
};
use tokio::sync::Mutex;

use super::{ProxyOptions, counters::FileCounters, pass::Client, wholes::Wholes};
use crate::{
    archive::{ReadError, RemoteSource, Source, read_header},
    cache::Cache,
    format::{FormatError, Stream, Violation, header::Header, limits::HEADER_BYTES},
    remote::{ProxyChoice, Remote, RemoteOptions},
    serve::{
        cache::in_thread,
        opened::{Contents, Opened, OpenedCache, OpenedWeight},
    },
};

/// What archives that are open may take together.
const OPENED_BYTES: u64 = 256 << 20;
/// Paths of which something is remembered.
const PATHS_MAX: usize = 1 << 16;
/// An archive that turned out to be of no use is let alone for so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// A root that is larger, or a catalog, is of no archive that a proxy can hold open.
const ROOT_BYTES_MAX: u64 = 16 << 20;
const CATALOG_BYTES_MAX: u64 = 16 << 20;
/// Bytes that come when an archive is opened: the root of most is within.
const FIRST_BYTES: usize = 64 << 10;

/// The end of an archive's name.
pub(super) const SUFFIX: &str = ".czip";

pub(super) struct Archives {
    client: Client,
    cache: Arc<Cache>,
    wholes: Wholes,
    remote: RemoteOptions,
    remembered: Duration,
    paths: quick_cache::sync::Cache<String, Arc<Mutex<Known>>>,
    opened: OpenedCache<String>,
    next_id: AtomicU64,
}

/// What is known of a path.
#[derive(Default)]
enum Known {
    #[default]
    Unknown,
    Nothing(Instant),
    /// There is one, which is of no use, and why.
    Refused(Instant, Arc<str>),
    Archive(Instant, Version),
}

/// What the origin says of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    tag: Option<String>,
    modified: Option<String>,
    bytes: Option<String>,
    cache_control: Option<String>,
    /// Whether what one client is sent may be sent to another.
    may_be_shared: bool,
}

/// An archive that can be used.
pub(super) struct Found {
    pub(super) opened: Arc<Opened>,
    /// What the origin says of caching it.
    pub(super) cache_control: Option<String>,
}

/// What is beside a path.
pub(super) enum Beside {
    Nothing,
    /// An archive that cannot be used, and why.
    Refused(Arc<str>),
    Archive(Found),
}

/// What the origin answers to the question for an archive.
enum Asked {
    Nothing,
    Silence,
    Version(Version),
}

impl Archives {
    pub(super) fn new(
        options: &ProxyOptions,
        client: Client,
        cache: Arc<Cache>,
        wholes: Wholes,
    ) -> Self {
        Self {
            client,
            cache,
            wholes,
            remote: RemoteOptions {
                first_bytes: FIRST_BYTES,
                retries: 2,
                pause_min: Duration::from_millis(100),
                pause_max: Duration::from_secs(1),
                retry_after_max: Duration::from_secs(2),
                redirects_max: 0,
                has_digests: true,
                connect_timeout: options.connect_timeout,
                progress_timeout: options.origin_timeout,
                proxy: ProxyChoice::Direct,
                roots: options.roots.clone(),
                ..RemoteOptions::default()
            },
            remembered: options.remembered,
            paths: quick_cache::sync::Cache::new(PATHS_MAX),
            opened: quick_cache::sync::Cache::with_weighter(64, OPENED_BYTES, OpenedWeight),
            next_id: AtomicU64::new(0),
        }
    }

    /// The archive beside `path`, which is one as requests have it.
    pub(super) async fn find(self: &Arc<Self>, path: &str) -> Beside {
        let (archives, path) = (self.clone(), path.to_owned());
        // In a task of its own: what others wait for too comes to its end, even if this client goes.
        let task = tokio::spawn(async move { archives.look_for(&path).await });
        task.await.unwrap_or(Beside::Nothing)
    }

    async fn look_for(self: &Arc<Self>, path: &str) -> Beside {
        let entry = self
            .paths
            .get_or_insert_with(path, || Ok::<_, std::convert::Infallible>(Arc::default()));
        let Ok(entry) = entry;
        let mut known = entry.lock().await;
        let now = Instant::now();
        let opened = self.opened.get(path);
        if opened.as_ref().is_some_and(|opened| opened.has_failed()) {
            self.opened.remove(path);
            let why = "a part of it is not available, or is damaged".into();
            *known = Known::Refused(now + REFUSED_FOR, why);
        }
        match &*known {
            Known::Nothing(until) if now < *until => return Beside::Nothing,
            Known::Refused(until, why) if now < *until => return Beside::Refused(why.clone()),
            Known::Archive(until, version) if now < *until => {
                if let Some(opened) = opened {
                    return found(opened, version);
                }
            }
            _ => {}
        }
        let asked = self.ask(path).await;
        let until = Instant::now() + self.remembered;
        let version = match (asked, &mut *known, &opened) {
            // An origin that is gone for a while has what it had.
            (Asked::Silence, Known::Archive(before, version), Some(opened)) => {
                *before = until;
                return found(opened.clone(), version);
            }
            (Asked::Nothing | Asked::Silence, ..) => {
                self.opened.remove(path);
                *known = Known::Nothing(until);
                return Beside::Nothing;
            }
            (Asked::Version(version), ..) => version,
        };
        let before = opened.filter(|_| matches!(&*known, Known::Archive(..)));
        if let (Known::Archive(_, said), Some(opened)) = (&*known, &before)
            && version.tells_the_same_as(said)
        {
            let found = found(opened.clone(), &version);
            *known = Known::Archive(until, version);
            return found;
        }
        match self.open(path, &version).await {
            Ok(None) => {
                *known = Known::Nothing(until);
                Beside::Nothing
            }
            Ok(Some(opened)) => {
                // Another entity tag of the same archive: what is known of it stays.
                let opened = match before {
                    Some(before) if before.archive.header() == opened.archive.header() => before,
                    _ => opened,
                };
                self.opened.insert(path.to_owned(), opened.clone());
                let found = found(opened, &version);
                *known = Known::Archive(until, version);
                found
            }
            Err(error) => {
                tracing::warn!(
                    path,
                    error,
                    "cannot use the origin's archive; passing on the plain file, if there is one"
                );
                self.opened.remove(path);
                let why: Arc<str> = error.into();
                *known = Known::Refused(Instant::now() + REFUSED_FOR, why.clone());
                Beside::Refused(why)
            }
        }
    }

    async fn ask(&self, path: &str) -> Asked {
        match self.client.head(&format!("{path}{SUFFIX}")).await {
            None => Asked::Silence,
            Some((StatusCode::OK, headers)) => {
                let version = Version::of(&headers);
                match version.may_be_shared {
                    true => Asked::Version(version),
                    false => Asked::Nothing,
                }
            }
            Some((status, _)) if status.is_server_error() => Asked::Silence,
            Some(_) => Asked::Nothing,
        }
    }

    /// Opens the archive beside `path`. None if it is encrypted and would have to come as a whole.
    async fn open(
        self: &Arc<Self>,
        path: &str,
        version: &Version,
    ) -> Result<Option<Arc<Opened>>, String> {
        let url = self.client.url(&format!("{path}{SUFFIX}"));
        let options = self.remote.clone();
        let id = self.next_id.fetch_add(1, Relaxed);
        let counters = self.client.counters.clone();
        let modified = version.modified();
        let remote = in_thread(move || {
            let taken = FileCounters::default();
            let remote = Remote::open(&url, options).map_err(std::io::Error::other)?;
            counters.take(&taken, remote.counters());
            Ok(remote.with_progress(move |now| counters.take(&taken, now)))
        });
        let remote = remote.await.map_err(|error| error.to_string())?;
        let opened = match remote.has_ranges() {
            true => {
                let cache = self.cache.clone();
                in_thread(move || {
                    let source = RemoteSource::small(remote).map_err(std::io::Error::other)?;
                    open(id, Box::new(source), modified, Some(cache))
                })
                .await
            }
            false => {
                let turn = self.wholes.fetches.clone().acquire_owned().await;
                let (archives, path) = (self.clone(), path.to_owned());
                let fetched = in_thread(move || {
                    let _turn = turn;
                    if is_encrypted(&remote)? {
                        return Ok(None);
                    }
                    let close = |path: &str| drop(archives.opened.remove(path));
                    let fetched = archives.wholes.fetch(&path, &remote, close);
                    Ok(Some(fetched.map_err(std::io::Error::other)?))
                });
                let Some(source) = fetched.await.map_err(|error| error.to_string())? else {
                    return Ok(None);
                };
                in_thread(move || open(id, source, modified, None)).await
            }
        };
        let opened = opened.map_err(|error| error.to_string())?;
        match opened.weight() > OPENED_BYTES / 4 {
            true => Err("it is too large for a proxy to keep open".to_owned()),
            false => Ok(Some(Arc::new(opened))),
        }
    }
}

/// Whether the archive is encrypted, as far as its first bytes tell.
fn is_encrypted(remote: &Remote) -> Result<bool, ReadError> {
    let mut first = [0; HEADER_BYTES];
    (remote.read_at(0, &mut first)).map_err(std::io::Error::other)?;
    Ok(Header::parse_first(&first)?.encryption.is_some())
}

fn found(opened: Arc<Opened>, version: &Version) -> Beside {
    // What is encrypted is passed as it is: here are no keys.
    if let Contents::Locked = opened.contents {
        return Beside::Nothing;
    }
    Beside::Archive(Found {
        opened,
        cache_control: version.cache_control.clone(),
    })
}

/// Opens an archive, if what it takes in memory is not too much.
fn open(
    id: u64,
    source: Box<dyn Source>,
    modified: Option<SystemTime>,
    cache: Option<Arc<Cache>>,
) -> Result<Opened, ReadError> {
    let (header, _) = read_header(&source)?;
    let root = &header.root;
    let too_large = |violation| ReadError::from(FormatError::Invalid(violation));
    if u64::from(root.plain_bytes) + u64::from(root.private_plain_bytes) > ROOT_BYTES_MAX {
        return Err(too_large(Violation::RootForProxy));
    }
    Opened::open(id, source, modified, cache, |root| {
        match root.stream(Stream::Catalog).bytes() > CATALOG_BYTES_MAX {
            true => Err(too_large(Violation::CatalogForProxy)),
            false => Ok(()),
        }
    })
}

impl Version {
    fn of(headers: &HeaderMap) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let cache_control = list(headers, &header::CACHE_CONTROL);
        let vary = list(headers, &header::VARY);
        Self {
            tag: text(header::ETAG),
            modified: text(header::LAST_MODIFIED),
            bytes: text(header::CONTENT_LENGTH),
            // What cannot be read may forbid it.
            may_be_shared: cache_control.as_deref().is_ok_and(allows_sharing)
                && vary.is_ok_and(|vary| vary.split(',').all(|field| field.trim() != "*")),
            cache_control: cache_control
                .ok()
                .filter(|directives| !directives.is_empty()),
        }
    }

    /// Whether an archive of which this is said is the one of which `before` was said.
    fn tells_the_same_as(&self, before: &Self) -> bool {
        let is_told = self.tag.is_some() || self.modified.is_some();
        let said = (&self.tag, &self.modified, &self.bytes);
        is_told && said == (&before.tag, &before.modified, &before.bytes)
    }

    fn modified(&self) -> Option<SystemTime> {
        httpdate::parse_http_date(self.modified.as_deref()?).ok()
    }
}

/// What all fields of a name say, which may stand in several lines (RFC 9110, section 5.3).
fn list(headers: &HeaderMap, name: &HeaderName) -> Result<String, ToStrError> {
    let lines = headers.get_all(name).iter().map(HeaderValue::to_str);
    Ok(lines.collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// Whether a `Cache-Control` lets what one client is sent be sent to another.
fn allows_sharing(directives: &str) -> bool {
    !directives.split(',').any(|directive| {
        let name = directive.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("private") || name.eq_ignore_ascii_case("no-store")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shared(fields: &[(&'static str, &[u8])]) -> bool {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value).expect("a value");
            (HeaderName::from_static(name), value)
        });
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        Version::of(&headers).may_be_shared
    }

    #[test]
    fn all_lines_say_whether_an_answer_is_for_one_client() {
        let control = |lines: &[&'static str]| {
            let lines = lines.iter().map(|line| ("cache-control", line.as_bytes()));
            is_shared(&lines.collect::<Vec<_>>())
        };
        let public = ["max-age=60", "public", "no-cache, x=\"y\"", ""];
        for private in [
            "private",
            "PRIVATE",
            "no-store",
            "private=\"a, b\"",
            "x, no-store ,y",
        ] {
            assert!(!control(&[private]), "{private}");
            for other in public {
                assert!(control(&[other]), "{other}");
                assert!(!control(&[other, private]), "{other} {private}");
                assert!(!control(&[private, other]), "{private} {other}");
                assert!(!control(&[other, other, private]), "{other} {private}");
            }
        }
        assert!(is_shared(&[]));
    }

    #[test]
    fn what_cannot_be_read_or_varies_with_anything_is_for_one_client() {
        assert!(!is_shared(&[
            ("cache-control", b"max-age=60"),
            ("cache-control", b"\xff")
        ]));
        assert!(!is_shared(&[("vary", b"*")]));
        assert!(!is_shared(&[
            ("vary", b"accept-encoding"),
            ("vary", b"cookie, *")
        ]));
        assert!(!is_shared(&[("vary", b"\xff")]));
        assert!(is_shared(&[("vary", b"accept-encoding")]));
    }

    #[test]
    fn all_lines_are_passed_on() {
        let mut all = HeaderMap::new();
        for value in ["max-age=60", "immutable"] {
            all.append(header::CACHE_CONTROL, HeaderValue::from_static(value));
        }
        let version = Version::of(&all);
        assert_eq!(
            version.cache_control.as_deref(),
            Some("max-age=60, immutable")
        );
    }
}
