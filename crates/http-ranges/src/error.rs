//! What can go wrong between us and a server.

use std::{
    error::Error,
    io,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use super::http1::HEAD_BYTES_MAX;

/// Why bytes of a remote file could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// There is no such place.
    #[error("invalid URL {url:?}: {problem}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        problem: UrlProblem,
    },
    /// A header that was to be sent cannot be.
    #[error("cannot send header {name:?}: its name or value has invalid characters")]
    Header {
        /// Its name. Its value may be secret.
        name: String,
    },
    /// The proxy that was named cannot be used, and nothing is asked for without it.
    #[error(
        "cannot use the proxy {value:?}{}: {problem}{}",
        variable.map(|name| format!(" in {name}")).unwrap_or_default(),
        variable.map(|name| format!(" (correct or unset {name})")).unwrap_or_default()
    )]
    Proxy {
        /// The environment variable that names it, if one does.
        variable: Option<&'static str>,
        /// Its address, without user and password.
        value: String,
        /// What is wrong with it.
        problem: ProxyProblem,
    },
    /// Certificates to trust could not be read.
    #[error("cannot read the trusted certificates from \"{}\": {source}", path.display())]
    Roots {
        /// Where they should be.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is no certificate to trust.
    #[error("{}", no_roots(path.as_deref()))]
    NoRoots {
        /// The file, if one was named.
        path: Option<PathBuf>,
    },
    /// The server sends us elsewhere, and we do not go.
    #[error("cannot follow the redirect of {url}: {problem}")]
    Redirect {
        /// Who said it.
        url: String,
        /// Why we do not go.
        problem: RedirectProblem,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("{url}: {source}")]
    Connection {
        /// What was asked for.
        url: String,
        /// What happened.
        source: Box<ConnectionError>,
    },
    /// A body ended early.
    #[error(
        "{url}: the body is truncated: it ended at byte {at} of the file, {missing} bytes are missing"
    )]
    Truncated {
        /// What was asked for.
        url: String,
        /// How far it came.
        at: u64,
        /// What had been announced beyond that.
        missing: u64,
    },
    /// A body came so slowly that it is better had elsewhere.
    #[error("{url}: too slow: {bytes} bytes in {taken:.0?}")]
    Slow {
        /// What was asked for.
        url: String,
        /// How many bytes came.
        bytes: u64,
        /// In what time.
        taken: Duration,
    },
    /// A body is longer than what was asked for can be.
    #[error("{url}: its answer is too long (limit {bytes_max} bytes)")]
    TooLong {
        /// What was asked for.
        url: String,
        /// How long it can be.
        bytes_max: u64,
    },
    /// The server refuses.
    #[error(
        "{url} answers with status {status}{}{}",
        password_for_proxy(*status),
        retry_after.map(|after| format!(", and wants the next request in {after:?}")).unwrap_or_default()
    )]
    Status {
        /// What was asked for.
        url: String,
        /// Its status.
        status: u16,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Where we were redirected to, the file is no longer.
    #[error("{url}, the target of a redirect, now answers with status {status}")]
    RedirectExpired {
        /// Where we were redirected to.
        url: String,
        /// Its status.
        status: u16,
    },
    /// The server says something about ranges that cannot be.
    #[error("{url} was asked for {asked}, but {lie}")]
    Lie {
        /// What was asked for.
        url: String,
        /// The ranges header that was sent.
        asked: String,
        /// What it said or did.
        lie: Lie,
    },
    /// The server encodes the file on its way, although asked not to: offsets mean nothing then.
    #[error("{url} sends the file encoded with {encoding:?}, although the request forbids this")]
    Encoded {
        /// What was asked for.
        url: String,
        /// Its `Content-Encoding`.
        encoding: String,
    },
    /// The file is no longer what it was when it was opened.
    #[error("{url} changed while it was read: its {what} was {was}, and is now {is}")]
    Changed {
        /// The file.
        url: String,
        /// What tells.
        what: VersionField,
        /// At first.
        was: String,
        /// Now.
        is: String,
    },
    /// What answers say of the file is another thing each time.
    #[error("each answer of {url} has another ETag or Last-Modified")]
    Unsteady {
        /// The file.
        url: String,
    },
    /// Bytes were asked for that the file does not have.
    #[error("{url} has only {len} bytes: bytes {} to {} do not exist", range.start, range.end)]
    BeyondEnd {
        /// The file.
        url: String,
        /// What was asked for.
        range: Range<u64>,
        /// How long the file is.
        len: u64,
    },
    /// It went wrong too often in a row.
    #[error("{source} (gave up after {attempts} attempts)")]
    GaveUp {
        /// How often it was tried.
        attempts: u32,
        /// How it went wrong in the end.
        source: Box<RemoteError>,
    },
    /// No thread could be started.
    #[error("cannot start a thread: {source}")]
    Thread {
        /// What the system says.
        source: io::Error,
    },
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlProblem {
    /// It does not begin with a scheme.
    #[error("it does not begin with http:// or https://")]
    NoScheme,
    /// Its scheme is another.
    #[error("its scheme is {scheme:?}, neither http nor https")]
    Scheme {
        /// What it is.
        scheme: String,
    },
    /// It names a user.
    #[error("it has a user name or a password, which are not sent (give a header instead)")]
    UserInfo,
    /// It has a query, and others are to be made of it.
    #[error("it has a query, after a `?`: other URLs are made from it, by adding to its path")]
    Query,
    /// It is not written as an address is.
    #[error("{0}")]
    Malformed(url::ParseError),
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionField {
    /// `ETag`.
    #[error("ETag")]
    ETag,
    /// `Last-Modified`.
    #[error("Last-Modified")]
    LastModified,
    /// How long it is.
    #[error("length")]
    Length,
}

/// Why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedirectProblem {
    /// It does not say where.
    #[error("it has no Location")]
    NoLocation,
    /// It says where, but not by an address.
    #[error("invalid Location {location:?}: {problem}")]
    Location {
        /// What it says.
        location: String,
        /// What is wrong with it.
        problem: UrlProblem,
    },
    /// From https to http: who listens could send us anything.
    #[error("{to} is not https any more")]
    Downgrade {
        /// Where to.
        to: String,
    },
    /// There is no end of it.
    #[error("too many redirects (limit {max})")]
    TooMany {
        /// How many are allowed.
        max: u32,
    },
}

/// What a server said or did about ranges that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lie {
    /// 206 without a `Content-Range`.
    #[error("sent part of the file without a Content-Range (Content-Type: {content_type:?})")]
    NoContentRange {
        /// `multipart/byteranges` for example.
        content_type: String,
    },
    /// A `Content-Range` that is none.
    #[error("sent an invalid Content-Range {said:?}")]
    Malformed {
        /// What it says.
        said: String,
    },
    /// Another range.
    #[error("sent {said:?}")]
    OtherRange {
        /// What it says.
        said: String,
    },
    /// A `Content-Length` that is not that of the range.
    #[error("sent a Content-Range of {expected} bytes with a Content-Length of {said}")]
    ContentLength {
        /// What it says.
        said: u64,
        /// What the range has.
        expected: u64,
    },
    /// More bytes than the range has.
    #[error("sent more than {expected} bytes")]
    TooMany {
        /// What the range has.
        expected: u64,
    },
    /// 206 where all was asked for.
    #[error("sent only part of it")]
    PartOfAll,
}

/// Why an exchange with a server failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// Its name has no address.
    #[error("{}", not_found(why))]
    NotFound {
        /// What the system reports.
        why: String,
    },
    /// Connecting took too long.
    #[error("no connection within {limit:?}")]
    TooLate {
        /// How long it may take.
        limit: Duration,
    },
    /// The server sent nothing for too long.
    #[error("the server sent no data within the time-out")]
    Silence,
    /// The proxy does not connect us to the server.
    #[error("the proxy {proxy} failed: {why}")]
    Proxy {
        /// Its address.
        proxy: String,
        /// What it answered, or what became of the connection to it.
        why: String,
    },
    /// The proxy refuses to connect us to the server.
    #[error("it answers CONNECT with status {status}{}", password_for_proxy(*status))]
    NoTunnel {
        /// Its status.
        status: u16,
    },
    /// The server's bytes are not TLS.
    #[error("the server does not speak TLS on this port (try http://)")]
    NotTls,
    /// TLS is needed, and certificates to trust were not read.
    #[error("no trusted certificates were read")]
    NoCertificates,
    /// The answer has longer fields than any answer should have, or more than
    /// [`fields_max`](super::RemoteOptions::fields_max).
    #[error("the head of its answer is too large (limit {} KiB) or has too many fields", HEAD_BYTES_MAX >> 10)]
    HeadTooLarge,
    /// The answer is not one.
    #[error("it does not speak HTTP: {why}")]
    NotHttp {
        /// What is wrong with the answer.
        why: String,
    },
    /// The server ended the connection in the middle of an answer, or before it.
    #[error("it ended the connection before its answer was complete")]
    EndedEarly,
    /// The connection was broken from here.
    #[error("this end closed the connection")]
    Closed,
    /// The connection could not be made, or broke.
    #[error("{why}")]
    Io {
        /// Which kind of error it is.
        kind: io::ErrorKind,
        /// What the system reports.
        why: String,
    },
}

impl ConnectionError {
    pub(super) fn io(kind: io::ErrorKind, why: impl ToString) -> Self {
        let why = why.to_string();
        Self::Io { kind, why }
    }

    /// What was to be sent cannot be.
    pub(super) fn invalid(why: impl ToString) -> Self {
        Self::io(io::ErrorKind::InvalidInput, why)
    }

    /// What an error of a TLS handshake is.
    pub(super) fn of_tls(error: io::Error) -> Self {
        let inner = error.get_ref();
        match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidMessage(_)) => Self::NotTls,
            Some(rustls::Error::InvalidCertificate(wrong)) => {
                Self::io(error.kind(), untrusted(wrong))
            }
            _ => Self::io(error.kind(), error),
        }
    }

    pub(super) fn name(why: impl ToString) -> Self {
        let why = why.to_string();
        Self::NotFound { why }
    }

    /// What the HTTP library's error, or one of its causes, is.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let own = sources(error).find_map(|source| source.downcast_ref::<Self>());
        if let Some(own) = own {
            return own.clone();
        }
        let http = sources(error).find_map(|source| source.downcast_ref::<hyper::Error>());
        match http {
            Some(http) if http.is_parse_too_large() => Self::HeadTooLarge,
            Some(http) if http.is_parse() => Self::NotHttp { why: causes(http) },
            Some(http) if http.is_incomplete_message() => Self::EndedEarly,
            _ => Self::of_source(error),
        }
    }

    /// What the system's error is that is among the causes.
    pub(super) fn of_source(error: &(dyn Error + 'static)) -> Self {
        match sources(error).find_map(|source| source.downcast_ref::<io::Error>()) {
            Some(error) => Self::io(error.kind(), error),
            None => Self::io(io::ErrorKind::Other, causes(error)),
        }
    }

    /// Whether the same request may do better in a while.
    fn is_transient(&self, was_reached: bool) -> bool {
        match self {
            // A name that was never found is more likely wrong than gone for a while.
            Self::NotFound { .. } => was_reached,
            Self::Proxy { .. } => was_reached,
            Self::Io { kind, .. } => match kind {
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => false,
                io::ErrorKind::ConnectionRefused => was_reached,
                _ => true,
            },
            Self::TooLate { .. } | Self::Silence | Self::EndedEarly | Self::Closed => true,
            Self::NoTunnel { .. }
            | Self::NotTls
            | Self::NoCertificates
            | Self::HeadTooLarge
            | Self::NotHttp { .. } => false,
        }
    }
}

/// What to do where a proxy asks for a password.
fn password_for_proxy(status: u16) -> &'static str {
    match status {
        407 => {
            ": the proxy asks for a user name and a password (give them in its variable, such as \
                http_proxy=http://USER:PASSWORD@HOST:PORT)"
        }
        _ => "",
    }
}

/// Why a name has no address.
fn not_found(why: &str) -> String {
    let why = why.rsplit(": ").next().unwrap_or(why);
    match why.starts_with("Temporary failure") {
        true => {
            format!("its host cannot be resolved now: {why} (check this machine's network and DNS)")
        }
        false => format!("its host cannot be resolved: {why}"),
    }
}

/// Why a server's certificate is not taken for its own.
fn untrusted(wrong: &rustls::CertificateError) -> String {
    use rustls::CertificateError;
    match wrong {
        CertificateError::UnknownIssuer => {
            "its certificate is not trusted: its issuer is unknown (SSL_CERT_FILE=FILE.pem trusts those in a file)".to_owned()
        }
        // The library has no name for it.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is not a server's, but that of a certificate authority (it needs basicConstraints=CA:FALSE)".to_owned()
        }
        _ => format!("its certificate is not valid: {wrong}"),
    }
}

/// An error and its causes.
pub(super) fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The same in words, those left out that were there before.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut all = String::new();
    for cause in sources(error).map(ToString::to_string) {
        if all.is_empty() {
            all = cause;
        } else if !all.contains(&cause) {
            all = format!("{all}: {cause}");
        }
    }
    all
}

/// The error of a file, or of a system, without certificates to trust.
fn no_roots(path: Option<&Path>) -> String {
    match path {
        Some(path) => format!(
            "--origin-ca: \"{}\" contains no certificate in PEM",
            path.display()
        ),
        None => "no trusted certificates were found: install the system's (ca-certificates), or name a file in \
                 SSL_CERT_FILE"
            .to_owned(),
    }
}

/// What is wrong with a proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyProblem {
    /// It is reached in a way that is not known here.
    #[error("unknown scheme, not http, https, socks4, socks4a, socks5 or socks5h")]
    Scheme,
    /// It is not written as the address of a server is.
    #[error("it is not an address such as http://host:port")]
    Address,
    /// It has a user, of whom it would not be told.
    #[error("a SOCKS4 proxy cannot have a user here")]
    User,
}

impl RemoteError {
    /// Whether the same request may do better in a while.
    pub(super) fn is_transient(&self, was_reached: bool) -> bool {
        match self {
            Self::Truncated { .. } | Self::RedirectExpired { .. } => true,
            Self::Status { status, .. } => {
                matches!(
                    status,
                    408 | 425 | 429 | 500 | 502 | 503 | 504 | 507 | 509 | 520..=529
                )
            }
            Self::Connection { source, .. } => source.is_transient(was_reached),
            _ => false,
        }
    }

    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::GaveUp { .. }
            | Self::Slow { .. }
            | Self::Changed { .. }
            | Self::Thread { .. } => true,
            // A name that was never found is more likely wrong than gone for a while.
            Self::Connection { source, .. } => {
                !matches!(**source, ConnectionError::NotFound { .. }) && source.is_transient(true)
            }
            error => error.is_transient(true),
        }
    }

    /// When the server wants to be asked again.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
