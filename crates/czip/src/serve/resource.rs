//! Answers: texts, and resources of which as much is sent as is asked for.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
    http::{request::Parts, response::Builder},
};

use super::{
    ServeError, Shared,
    body::AnswerBody,
    conditions::{Outcome, Validators, evaluate},
    encoding::{Coding, Encoder},
    file::SentFile,
    listing,
    sending::{Sending, Sent},
    site::Target,
};

/// What is shorter is not worth encoding.
const ENCODED_BYTES_MIN: u64 = 512;

pub(super) type Answer = Response<AnswerBody>;

/// A resource that is sent, or a part of it.
pub(super) struct Resource {
    pub(super) sent: Sent,
    /// Which of what is sent.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) validators: Validators,
    pub(super) media_type: &'static str,
    /// Whether encoding it is worth the time.
    pub(super) compresses: bool,
    pub(super) cache_control: Option<String>,
}

impl Resource {
    /// A frame as stored, which is a chunk by its name.
    pub(super) fn of_chunk(frame: Bytes, tag: String, modified: Option<SystemTime>) -> Self {
        Self {
            offset: 0,
            bytes: frame.len() as u64,
            sent: Sent::Bytes(frame),
            validators: Validators { tag, modified },
            media_type: "application/octet-stream",
            compresses: false,
            cache_control: Some("public, max-age=31536000, immutable".to_owned()),
        }
    }
}

pub(super) fn with(mut builder: Builder, name: HeaderName, value: impl AsRef<str>) -> Builder {
    // What comes from files was made printable before.
    if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
        builder = builder.header(name, value);
    }
    builder
}

pub(super) fn whole(builder: Builder, media_type: &str, body: impl Into<Bytes>) -> Answer {
    let body = body.into();
    let builder = with(builder, header::CONTENT_TYPE, media_type);
    let builder = with(builder, header::CONTENT_LENGTH, body.len().to_string());
    builder
        .body(AnswerBody::bytes(body))
        .expect("all headers are valid")
}

pub(super) fn text(status: StatusCode) -> Answer {
    let reason = status.canonical_reason().unwrap_or_default();
    let builder = Response::builder().status(status);
    whole(builder, "text/plain; charset=utf-8", format!("{reason}\n"))
}

pub(super) fn not_allowed(methods: &str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED);
    if let Ok(methods) = HeaderValue::from_str(methods) {
        answer.headers_mut().insert(header::ALLOW, methods);
    }
    answer
}

/// Answers with what a path leads to. `cache_control` is what whoever has it says of it.
pub(super) async fn answer_with(
    shared: &Arc<Shared>,
    head: &Parts,
    target: Target,
    cache_control: Option<String>,
) -> Result<Answer, ServeError> {
    let path = head.uri.path();
    let resource = match target {
        Target::Nothing => return Ok(text(StatusCode::NOT_FOUND)),
        Target::Slash => return Ok(redirect(path)),
        Target::Folder(listed) => {
            let builder = with(Response::builder(), header::CACHE_CONTROL, "no-cache");
            return Ok(whole(builder, "application/json", listing::json(&listed)));
        }
        Target::File {
            file,
            identity,
            archive,
        } => Resource {
            sent: Sent::File(Arc::new(SentFile {
                file,
                version: archive.map(|_| identity),
            })),
            offset: 0,
            bytes: identity.bytes,
            validators: Validators {
                tag: tag(&archive.unwrap_or_else(|| identity.digest())),
                modified: Some(identity.modified()),
            },
            media_type: media_type(path),
            compresses: false,
            cache_control,
        },
        Target::Content {
            opened,
            offset,
            bytes,
        } => {
            let content = opened.archive.root().summary.digest;
            let is_all = offset == 0 && bytes == opened.archive.plain_bytes();
            let digest = match is_all {
                true => blake3::Hash::from_bytes(content),
                false => blake3::Hasher::new()
                    .update(&content)
                    .update(&offset.to_le_bytes())
                    .update(&bytes.to_le_bytes())
                    .finalize(),
            };
            Resource {
                offset,
                bytes,
                validators: Validators {
                    tag: tag(&digest),
                    modified: opened.modified,
                },
                media_type: media_type(path),
                compresses: opened.compresses(),
                cache_control,
                sent: Sent::Content(opened),
            }
        }
    };
    send(shared, head, resource).await
}

pub(super) fn tag(digest: &blake3::Hash) -> String {
    format!("\"{}\"", &digest.to_hex()[..32])
}

pub(super) fn values(headers: &HeaderMap, name: HeaderName) -> Vec<&str> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).collect()
}

fn redirect(path: &str) -> Answer {
    // Relative, so that it names no other host, whatever the path begins with.
    let name = path.rsplit('/').next().unwrap_or_default();
    let builder = Response::builder().status(StatusCode::MOVED_PERMANENTLY);
    let builder = with(builder, header::LOCATION, format!("./{name}/"));
    whole(builder, "text/plain; charset=utf-8", "Moved Permanently\n")
}

/// Answers with a resource, with as much of it as is asked for.
pub(super) async fn send(
    shared: &Arc<Shared>,
    head: &Parts,
    mut resource: Resource,
) -> Result<Answer, ServeError> {
    let headers = &head.headers;
    let mut coding = None;
    if resource.compresses && resource.bytes >= ENCODED_BYTES_MIN {
        let is_range = head.method == Method::GET && headers.contains_key(header::RANGE);
        if !is_range {
            coding = Coding::choose(&values(headers, header::ACCEPT_ENCODING));
        }
    }
    // Each encoder takes memory: past their number, bytes go as they are.
    let permit = match coding {
        Some(_) => shared.encoders.clone().try_acquire_owned().ok(),
        None => None,
    };
    let coding = coding.filter(|_| permit.is_some());
    if let Some(coding) = coding {
        let tag = &mut resource.validators.tag;
        tag.truncate(tag.len() - 1);
        *tag = format!("{tag}-{}\"", coding.name());
    }
    let validators = &resource.validators;
    let bytes = resource.bytes;
    let outcome = evaluate(&head.method, headers, validators, bytes, SystemTime::now());
    let mut builder = with(Response::builder(), header::ETAG, &validators.tag);
    if let Some(modified) = validators.modified {
        let modified = httpdate::fmt_http_date(modified);
        builder = with(builder, header::LAST_MODIFIED, modified);
    }
    builder = with(builder, header::ACCEPT_RANGES, "bytes");
    if resource.compresses {
        builder = with(builder, header::VARY, "Accept-Encoding");
    }
    if let Some(cache_control) = resource.cache_control {
        builder = with(builder, header::CACHE_CONTROL, cache_control);
    }
    let range = match outcome {
        Outcome::Whole => 0..bytes,
        Outcome::Part(range) => {
            let (first, last) = (range.start, range.end - 1);
            let text = format!("bytes {first}-{last}/{bytes}");
            builder = with(builder, header::CONTENT_RANGE, text);
            builder = builder.status(StatusCode::PARTIAL_CONTENT);
            range
        }
        Outcome::NotModified => {
            let builder = builder.status(StatusCode::NOT_MODIFIED);
            let body = AnswerBody::empty();
            return Ok(builder.body(body).expect("all headers are valid"));
        }
        Outcome::Failed => return Ok(text(StatusCode::PRECONDITION_FAILED)),
        Outcome::Unsatisfiable => {
            let builder = builder.status(StatusCode::RANGE_NOT_SATISFIABLE);
            let range = format!("bytes */{bytes}");
            let builder = with(builder, header::CONTENT_RANGE, range);
            let reason = "Range Not Satisfiable\n";
            return Ok(whole(builder, "text/plain; charset=utf-8", reason));
        }
    };
    builder = with(builder, header::CONTENT_TYPE, resource.media_type);
    let count = range.end - range.start;
    let mut sending = Sending::new(
        shared.clone(),
        resource.sent,
        resource.offset + range.start,
        resource.offset + range.end,
    );
    if head.method != Method::HEAD {
        sending.prime().await?;
    }
    let body = match (coding, permit) {
        (Some(coding), Some(permit)) => {
            builder = with(builder, header::CONTENT_ENCODING, coding.name());
            AnswerBody::encoding(sending, Encoder::new(coding)?, permit)
        }
        _ => {
            builder = with(builder, header::CONTENT_LENGTH, count.to_string());
            AnswerBody::sending(sending, count)
        }
    };
    Ok(builder.body(body).expect("all headers are valid"))
}

/// The media type that a name's end tells; a browser shows few of these, and saves the others.
fn media_type(path: &str) -> &'static str {
    let end = path.rsplit('.').next().unwrap_or_default();
    match &*end.to_ascii_lowercase() {
        "txt" | "md" | "log" => "text/plain; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "tar" => "application/x-tar",
        "gz" | "tgz" => "application/gzip",
        "xz" => "application/x-xz",
        "zst" => "application/zstd",
        "zip" => "application/zip",
        "deb" => "application/vnd.debian.binary-package",
        "iso" => "application/x-iso9660-image",
        _ => "application/octet-stream",
    }
}
