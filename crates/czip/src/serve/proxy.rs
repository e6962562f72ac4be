//! A proxy between clients that know nothing of CZIP and any web server, the *origin* (CZIP, sections
//! 4.2 and 6.2).
//!
//! ```text
//! GET /x ─▶ archives: is there /x.czip? ─ yes ─▶ plan ─▶ chunk cache ◀─ archive ◀─ cache (disk)
//!                                       └ no ──▶ pass ◀────────────┐      └◀────── ranges ─┐
//!                                                                  └───── origin ──────────┘
//! ```
//!
//! Of an archive that the origin has, its content is delivered: the table and the chunks that nobody
//! asked for before come by ranges from the origin, all others from a folder that gets and other proxies
//! may share. An origin without ranges sends each archive once, as a whole. All else is passed as it is, in both directions, byte for byte as it comes.
//!
//! An archive that cannot be used is never worse than none: the plain file of the origin is passed
//! instead, or why not is said if there is none. If that shows only when some of the body was sent, the connection ends before the length
//! that was promised, and who asks again gets the plain file.

mod answers;
mod archives;
mod counters;
mod pass;
mod wholes;

pub use counters::ProxyStatus;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use hyper::Uri;
use thiserror::Error;
use tokio::net::TcpListener;
use url::Position;

use super::{Content, ServeOptions, Shared, connection, counters::Counters};
use crate::{
    cache::{Cache, CacheOptions},
    remote::{RemoteError, parse_address},
};
use archives::Archives;
use counters::OriginCounters;
use pass::Client;
use wholes::Wholes;

/// How a proxy is to be.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// The web server, as `http://host:port` or `https://host/folder`.
    pub origin: String,
    /// Where chunks are kept, and how many bytes of them.
    pub cache: CacheOptions,
    /// How clients are served.
    pub serve: ServeOptions,
    /// So long it is believed that the origin has an archive, or has none, and which one.
    pub remembered: Duration,
    /// For a connection to the origin.
    pub connect_timeout: Duration,
    /// For the head of an answer of the origin, and between any two pieces of its body.
    pub origin_timeout: Duration,
    /// A file of certificates (PEM) to trust instead of those that the system trusts.
    pub roots: Option<PathBuf>,
}

impl ProxyOptions {
    /// Memory for chunks by default: 256 MiB.
    pub const MEMORY_BYTES: u64 = 256 << 20;

    /// What does well in most cases.
    #[must_use]
    pub fn new(origin: &str, folder: PathBuf) -> Self {
        Self {
            origin: origin.to_owned(),
            cache: CacheOptions {
                folder,
                bytes_max: CacheOptions::BYTES_MAX,
            },
            serve: ServeOptions {
                cache_bytes: Self::MEMORY_BYTES,
                ..ServeOptions::default()
            },
            remembered: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            origin_timeout: Duration::from_secs(60),
            roots: None,
        }
    }
}

/// Why there can be no proxy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The origin's address is none, or there are no certificates to trust.
    #[error(transparent)]
    Origin(#[from] RemoteError),
    /// Its address has what no folder on a web server has.
    #[error("{url:?} is not the address of a directory (remove the part that begins with '?')")]
    NoFolder {
        /// As it was given.
        url: String,
    },
}

/// The address of the origin's folder, without the slash at its end.
#[derive(Clone, Debug)]
struct Address(String);

impl Address {
    fn parse(text: &str) -> Result<Self, ProxyError> {
        let url = parse_address(text)?;
        match url.query() {
            None => Ok(Self(
                url[..Position::AfterPath].trim_end_matches('/').to_owned(),
            )),
            Some(_) => Err(ProxyError::NoFolder {
                url: text.to_owned(),
            }),
        }
    }

    fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// The path of the folder.
    fn folder(&self) -> &str {
        let (_, server) = self.0.split_once("://").unwrap_or_default();
        server.find('/').map_or("", |slash| &server[slash..])
    }

    /// The address of a path.
    fn url(&self, path_and_query: &str) -> String {
        format!("{}{path_and_query}", self.0)
    }

    /// The same, to be asked for. None if the path is none: its server is the origin, whatever it has.
    fn uri(&self, path_and_query: &str) -> Option<Uri> {
        let is_path = path_and_query.starts_with('/');
        is_path.then(|| self.url(path_and_query).parse().ok())?
    }
}

/// An origin, and what is known of it.
pub(super) struct Origin {
    client: Client,
    archives: Arc<Archives>,
    cache: Arc<Cache>,
    counters: Arc<OriginCounters>,
}

impl Origin {
    fn new(
        options: &ProxyOptions,
        address: Address,
        served: &Arc<Counters>,
    ) -> Result<Self, ProxyError> {
        let counters = Arc::new(OriginCounters::default());
        let cache = Arc::new(Cache::open_or_retry(&options.cache, |folder, error| {
            let folder = folder.display();
            tracing::warn!(%folder, %error, "cannot keep chunks; fetching them each time");
        }));
        let client = Client::new(address, options, counters.clone())?;
        Ok(Self {
            archives: Arc::new(Archives::new(
                options,
                client.clone(),
                cache.clone(),
                Wholes::new(&options.cache, served.clone()),
            )),
            client,
            cache,
            counters,
        })
    }
}

/// A proxy before a web server.
pub struct Proxy {
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy. The folder for chunks may be one that cannot be written: then they are fetched anew.
    ///
    /// # Errors
    /// If the origin's address cannot be used.
    pub fn new(options: &ProxyOptions) -> Result<Self, ProxyError> {
        let address = Address::parse(&options.origin)?;
        let counters = Arc::new(Counters::default());
        let origin = Origin::new(options, address, &counters)?;
        let content = Content::Origin(Box::new(origin));
        let shared = Shared::new(options.serve, counters, content);
        Ok(Self { shared })
    }

    /// What it did so far.
    #[must_use]
    pub fn status(&self) -> ProxyStatus {
        match &self.shared.content {
            Content::Origin(origin) => origin.status(&self.shared),
            Content::Folder(_) => unreachable!("it was made with an origin"),
        }
    }

    /// Serves until `stop` is done, and then what is being sent to its end: until `end` is done, or for
    /// [`drain_timeout`](ServeOptions::drain_timeout).
    ///
    /// # Errors
    /// If connections cannot be taken at all.
    pub async fn run(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> io::Result<()> {
        connection::serve(self.shared.clone(), listener, stop, end).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_folder_on_a_server() {
        let url = |origin: &str| Address::parse(origin).map(|address| address.url("/x?y"));
        for (origin, expected) in [
            ("http://example.org", "http://example.org/x?y"),
            ("http://example.org:8080/", "http://example.org:8080/x?y"),
            ("https://example.org/a/b/", "https://example.org/a/b/x?y"),
            ("http://[::1]:80/a", "http://[::1]/a/x?y"),
        ] {
            assert_eq!(url(origin).expect("an address"), expected);
        }
        for origin in [
            "example.org",
            "ftp://example.org",
            "http://me:you@h",
            "http://h/?a",
        ] {
            assert!(url(origin).is_err(), "{origin}");
        }
        let address = Address::parse("https://[::1]/a/").expect("an address");
        let uri = address.uri("/x?y").expect("a path").to_string();
        assert_eq!(uri, "https://[::1]/a/x?y");
        for path in ["*", "@example.org/", ".example.org/", ":80/", ""] {
            assert_eq!(address.uri(path), None, "{path}");
        }
    }
}
