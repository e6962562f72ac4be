//! How a [`Remote`](super::Remote) behaves.

use std::{path::PathBuf, time::Duration};

use super::{http1::FIELDS_MAX, retry::OnRetry};

/// How requests are made, how many, and when to give up.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Requests that run at a time.
    pub connections: usize,
    /// Bytes that [`open`](super::Remote::open) asks for, and keeps: a header is there without another
    /// request.
    pub first_bytes: usize,
    /// Gaps between needed ranges up to here are fetched too. About what a request costs: the bytes
    /// that a connection brings within a round trip.
    pub gap_bytes: u64,
    /// A fetch joins ranges until no more than these are left to ask for.
    pub requests_max: usize,
    /// Longer ranges are cut into pieces of so many bytes, so that all connections have work.
    pub piece_bytes: u64,
    /// Cutting makes no more pieces than these: what is longer gets longer pieces.
    pub pieces_max: usize,
    /// Bytes that have arrived or are expected, and were not handed on yet.
    pub window_bytes: usize,
    /// Attempts in a row that bring next to nothing, after the first, before a request has failed.
    pub retries: u32,
    /// The pause before the first retry. Each further one is twice as long; all vary by chance.
    pub pause_min: Duration,
    /// The longest pause, unless the server asks for more.
    pub pause_max: Duration,
    /// The longest pause that a server may ask for: beyond, its answer is an error.
    pub retry_after_max: Duration,
    /// Is told of each attempt that failed and is made again.
    pub on_retry: OnRetry,
    /// What pauses vary by, to have them again.
    pub seed: Option<u64>,
    /// For the name to be found, and for a connection.
    pub connect_timeout: Duration,
    /// A connection on which nothing comes for so long is broken.
    pub progress_timeout: Duration,
    /// Fields in the head of an answer. Room for them is made for each answer. By default all that fit in
    /// [`HEAD_BYTES_MAX`](super::HEAD_BYTES_MAX), which is half of the time of fetching small chunks.
    pub fields_max: usize,
    /// Sent along with each request to the origin (scheme, host, port) of the URL; not to others to which
    /// it redirects.
    pub headers: Vec<(String, String)>,
    /// A token for `Authorization: Bearer`, sent where [`headers`](Self::headers) are.
    pub bearer: Option<String>,
    /// How we introduce ourselves.
    pub user_agent: String,
    /// Redirects in a row that are followed.
    pub redirects_max: u32,
    /// Whether all bytes of the file are checked by digests to which its first bytes lead. Then a file with
    /// the same length and the same first bytes is the same file, whatever its `ETag` and `Last-Modified`
    /// are: servers behind one address often make those of times.
    pub has_digests: bool,
    /// Through what requests go.
    pub proxy: ProxyChoice,
    /// A file of certificates (PEM) to trust instead of those that the system trusts.
    pub roots: Option<PathBuf>,
}

/// Through what requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChoice {
    /// What `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` name, as curl reads them.
    Environment,
    /// None.
    Direct,
    /// This one, as in `http://name:password@host:port`; its scheme may be `http`, `https`, `socks4`,
    /// `socks4a`, `socks5` or `socks5h`.
    Url(String),
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            connections: 4,
            first_bytes: 16 << 10,
            gap_bytes: 32 << 10,
            requests_max: 64,
            piece_bytes: 8 << 20,
            pieces_max: 1024,
            window_bytes: 32 << 20,
            retries: 5,
            pause_min: Duration::from_millis(250),
            pause_max: Duration::from_secs(10),
            retry_after_max: Duration::from_secs(60),
            on_retry: OnRetry::default(),
            seed: None,
            connect_timeout: Duration::from_secs(15),
            progress_timeout: Duration::from_secs(30),
            fields_max: FIELDS_MAX,
            headers: Vec::new(),
            bearer: None,
            user_agent: concat!("refrain/", env!("CARGO_PKG_VERSION")).to_owned(),
            redirects_max: 10,
            has_digests: false,
            proxy: ProxyChoice::Environment,
            roots: None,
        }
    }
}
