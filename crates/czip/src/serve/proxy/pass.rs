//! Passing requests to the origin, and its answers back (RFC 9110, section 7.6; RFC 9112).
//!
//! hyper reads and writes both sides: what a request's bytes mean is decided once, and what goes on is
//! written anew from that, so that client and origin cannot be made to disagree on where it ends. Bodies
//! are passed piece by piece as they come, and no faster than they are taken.

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use http_body_util::{Either, Empty};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;

use super::{Address, ProxyError, ProxyOptions, counters::OriginCounters};
use crate::{
    remote::{ConnectionError, Connector, FIELDS_MAX, HEAD_BYTES_MAX, ProxyChoice, causes},
    serve::{
        body::AnswerBody,
        resource::{Answer, values, whole},
    },
};

/// A connection to the origin that nobody uses is closed after this.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_MAX: usize = 64;
/// Whether there is an archive is told sooner than this, or there is none.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How we call ourselves in `Via`.
const VIA: &str = "1.1 refrain-czip";
/// A request that came through so many of us goes in a circle.
const VIAS_MAX: usize = 8;

/// What concerns one connection alone. What else does is named by `Connection`.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type SentBody = Either<Incoming, Empty<Bytes>>;

#[derive(Clone)]
pub(super) struct Client {
    address: Arc<Address>,
    client: legacy::Client<Connector, SentBody>,
    timeout: Duration,
    pub(super) counters: Arc<OriginCounters>,
}

impl Client {
    pub(super) fn new(
        address: Address,
        options: &ProxyOptions,
        counters: Arc<OriginCounters>,
    ) -> Result<Self, ProxyError> {
        let (roots, timeout) = (options.roots.clone(), options.connect_timeout);
        let connector = Connector::new(&ProxyChoice::Direct, roots, timeout);
        // What is wrong with certificates that were named is reported, even if nothing needs them.
        if address.is_https() || options.roots.is_some() {
            connector.load_certificates()?;
        }
        Ok(Self {
            address: Arc::new(address),
            client: legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(IDLE_MAX)
                .http1_max_buf_size(HEAD_BYTES_MAX)
                .http1_max_headers(FIELDS_MAX)
                .build(connector),
            timeout: options.origin_timeout,
            counters,
        })
    }

    /// The origin's address of a path.
    pub(super) fn url(&self, path_and_query: &str) -> String {
        self.address.url(path_and_query)
    }

    /// Asks for the head of what is at `path`. None if there is no answer.
    pub(super) async fn head(&self, path: &str) -> Option<(StatusCode, HeaderMap)> {
        let uri = self.address.uri(path)?;
        let mut request = Request::new(Either::Right(Empty::new()));
        *request.method_mut() = Method::HEAD;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        let identity = HeaderValue::from_static("identity");
        headers.insert(header::ACCEPT_ENCODING, identity);
        headers.insert(header::VIA, HeaderValue::from_static(VIA));
        self.counters.requests.fetch_add(1, Relaxed);
        let asked = timeout(
            self.timeout.min(QUESTION_TIMEOUT),
            self.client.request(request),
        );
        match asked.await {
            Ok(Ok(answer)) => {
                let (head, _) = answer.into_parts();
                Some((head.status, head.headers))
            }
            Ok(Err(error)) => {
                tracing::debug!(path, error = causes(&error), "the origin does not answer");
                None
            }
            Err(_) => None,
        }
    }

    /// Passes a request, and gives the origin's answer, or says why there is none.
    pub(super) async fn pass(&self, client: SocketAddr, head: &Parts, body: Incoming) -> Answer {
        let vias = values(&head.headers, header::VIA).into_iter();
        if vias.map(|via| via.matches(VIA).count()).sum::<usize>() >= VIAS_MAX {
            return refusal(
                StatusCode::LOOP_DETECTED,
                "the origin leads back to this proxy",
            );
        }
        let path_and_query = head.uri.path_and_query();
        let path_and_query = path_and_query.map_or("/", |path_and_query| path_and_query.as_str());
        let Some(uri) = self.address.uri(path_and_query) else {
            return refusal(StatusCode::BAD_REQUEST, "invalid path");
        };
        let mut request = Request::new(match body.is_end_stream() {
            true => Either::Right(Empty::new()),
            false => Either::Left(body),
        });
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = end_to_end(&head.headers);
        self.introduce(client, head, request.headers_mut());
        self.counters.requests.fetch_add(1, Relaxed);
        self.counters.passed.fetch_add(1, Relaxed);
        match timeout(self.timeout, self.client.request(request)).await {
            Ok(Ok(answer)) => self.passed_back(answer),
            Ok(Err(error)) => {
                let causes = causes(&error);
                tracing::warn!(
                    path = path_and_query,
                    error = causes,
                    "no answer from the origin"
                );
                let (status, why) = failure(&error);
                refusal(status, &why)
            }
            Err(_) => {
                tracing::warn!(path = path_and_query, "the origin does not answer in time");
                refusal(
                    StatusCode::GATEWAY_TIMEOUT,
                    "the origin does not answer in time",
                )
            }
        }
    }

    /// Says for whom we ask.
    fn introduce(&self, client: SocketAddr, head: &Parts, headers: &mut HeaderMap) {
        headers.append(header::VIA, HeaderValue::from_static(VIA));
        let mut set = |name: &'static str, value: Option<HeaderValue>| {
            if let Some(value) = value {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let name = "x-forwarded-for";
        let before = head.headers.get_all(name).iter();
        let before = before.filter_map(|value| value.to_str().ok());
        let client = client.ip().to_string();
        let all: Vec<&str> = before.chain([client.as_str()]).collect();
        set(name, HeaderValue::from_str(&all.join(", ")).ok());
        let name = "x-forwarded-host";
        if !head.headers.contains_key(name) {
            set(name, head.headers.get(header::HOST).cloned());
        }
        let name = "x-forwarded-proto";
        if !head.headers.contains_key(name) {
            set(name, Some(HeaderValue::from_static("http")));
        }
    }

    fn passed_back(&self, answer: Response<Incoming>) -> Answer {
        let (mut head, body) = answer.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return refusal(
                StatusCode::BAD_GATEWAY,
                "the origin switched to another protocol",
            );
        }
        head.headers = end_to_end(&head.headers);
        head.headers
            .append(header::VIA, HeaderValue::from_static(VIA));
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let here = head.headers.get(&name).and_then(|to| self.here(to));
            if let Some(here) = here {
                head.headers.insert(name, here);
            }
        }
        // What the other side spoke is not what we speak.
        head.version = hyper::Version::HTTP_11;
        head.extensions.clear();
        let counters = self.counters.clone();
        let body = AnswerBody::passing(body, self.timeout, move |bytes| {
            counters.bytes.fetch_add(bytes as u64, Relaxed);
        });
        Response::from_parts(head, body)
    }

    /// An address in the origin's folder as one of ours.
    fn here(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let location = location.to_str().ok()?;
        let base = self.address.url("");
        let folder = self.address.folder();
        let path = match location.strip_prefix(&base) {
            Some(path) => path,
            None if folder.is_empty() => return None,
            None => location.strip_prefix(folder)?,
        };
        // Else it only begins alike; and two slashes would name a host.
        let is_path = path.starts_with('/') && !path.starts_with("//");
        is_path.then(|| HeaderValue::from_str(path).ok())?
    }
}

/// Headers without those that concern one connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = values(headers, header::CONNECTION)
        .into_iter()
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut passed = HeaderMap::with_capacity(headers.len() + 4);
    for (name, value) in headers {
        let is_of_hop = HOP_BY_HOP.contains(&name.as_str())
            || *name == header::HOST
            || *name == header::EXPECT
            || named.iter().any(|named| named == name.as_str());
        // Who names `Content-Length` to have it removed wants a body to end elsewhere.
        if !is_of_hop || *name == header::CONTENT_LENGTH {
            passed.append(name, value.clone());
        }
    }
    passed
}

/// Why there is no answer of the origin's.
fn failure(error: &legacy::Error) -> (StatusCode, Cow<'static, str>) {
    let (status, why) = match ConnectionError::of(error) {
        ConnectionError::TooLate { .. } => (
            StatusCode::GATEWAY_TIMEOUT,
            "the origin cannot be reached in time",
        ),
        ConnectionError::HeadTooLarge => {
            let limit = HEAD_BYTES_MAX >> 10;
            let why = format!("the head of the origin's answer is too large (limit {limit} KiB)");
            return (StatusCode::BAD_GATEWAY, why.into());
        }
        _ if error.is_connect() => (StatusCode::BAD_GATEWAY, "the origin cannot be reached"),
        ConnectionError::NotHttp { .. } => {
            (StatusCode::BAD_GATEWAY, "the origin does not speak HTTP")
        }
        _ => (StatusCode::BAD_GATEWAY, "the origin ended the connection"),
    };
    (status, why.into())
}

/// An answer of our own.
pub(super) fn refusal(status: StatusCode, why: &str) -> Answer {
    let reason = status.canonical_reason().unwrap_or_default();
    let builder = Response::builder().status(status);
    let text = format!("{} {reason}: {why}\n", status.as_u16());
    whole(builder, "text/plain; charset=utf-8", text)
}
