//! Requests and their answers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Limited};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, http::request::Parts};

use super::{
    Content, Folder, ServeError, Shared,
    body::AnswerBody,
    cache::in_thread,
    chunks,
    conditions::Validators,
    resource::{
        Answer, IMMUTABLE, Resource, answer_with, closing, not_allowed, send, tag, text, whole,
        with,
    },
    sending::{Sending, Sent},
    tree::SafePath,
};
use crate::format::ChunkName;

/// A request's body comes within this.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const CHUNK_PATH: &str = "/.czip/chunk/";
const CHUNKS_PATH: &str = "/.czip/chunks";
pub(super) const STATUS_PATH: &str = "/.czip/status";

/// Answers a request.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    client: SocketAddr,
    request: Request<Incoming>,
) -> Answer {
    let is_head = request.method() == Method::HEAD;
    let path = request.uri().path().to_owned();
    let answered = match &shared.content {
        Content::Folder(folder) => of_folder(shared, folder, request).await,
        Content::Origin(proxy) => proxy.answer(shared, client, request).await,
    };
    let answered = answered.unwrap_or_else(|error| {
        tracing::error!(path, %error, "cannot answer");
        text(StatusCode::INTERNAL_SERVER_ERROR)
    });
    match is_head {
        true => answered.map(|_| AnswerBody::empty()),
        false => answered,
    }
}

async fn of_folder(
    shared: &Arc<Shared>,
    folder: &Folder,
    request: Request<Incoming>,
) -> Result<Answer, ServeError> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        CHUNKS_PATH => batch(shared, folder, request).await,
        _ if !is_read => Ok(not_allowed("GET, HEAD")),
        STATUS_PATH => Ok(json(&shared.status())),
        path if path.starts_with(CHUNK_PATH) => {
            let (head, _) = request.into_parts();
            chunk(shared, folder, &head).await
        }
        path => {
            let Some(safe) = SafePath::parse(path) else {
                return Ok(text(StatusCode::NOT_FOUND));
            };
            let site = folder.site.clone();
            let target = in_thread(move || site.find(&safe)).await?;
            let (head, _) = request.into_parts();
            answer_with(shared, &head, target, None).await
        }
    }
}

/// Something as it is now.
pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    let text = serde_json::to_string(value).expect("numbers are JSON");
    let builder = with(Response::builder(), header::CACHE_CONTROL, "no-store");
    whole(builder, "application/json", text)
}

/// A chunk by its name.
async fn chunk(shared: &Arc<Shared>, folder: &Folder, head: &Parts) -> Result<Answer, ServeError> {
    let Some(name) = chunks::parse_name(&head.uri.path()[CHUNK_PATH.len()..]) else {
        return Ok(text(StatusCode::NOT_FOUND));
    };
    let located = folder.names.find(&folder.site, vec![name]).await?;
    let Some((opened, unit)) = located.into_iter().next().flatten() else {
        return Ok(text(StatusCode::NOT_FOUND));
    };
    let tag = tag(&blake3::hash(&unit.frame.digest));
    let modified = opened.modified;
    let (plan, opened, bytes) = chunks::plan(vec![Some((opened, unit))], false);
    let resource = Resource {
        sent: Sent::Units(Arc::new(plan), opened),
        offset: 0,
        bytes,
        validators: Validators { tag, modified },
        media_type: "application/octet-stream",
        compresses: false,
        cache_control: Some(IMMUTABLE.to_owned()),
    };
    send(shared, head, resource).await
}

/// Several chunks by their names.
async fn batch(
    shared: &Arc<Shared>,
    folder: &Folder,
    request: Request<Incoming>,
) -> Result<Answer, ServeError> {
    let (head, body) = request.into_parts();
    let names: Option<Vec<ChunkName>> = match head.method {
        Method::POST => {
            let body = Limited::new(body, chunks::BODY_BYTES_MAX).collect();
            match tokio::time::timeout(BODY_TIMEOUT, body).await {
                Err(_) => return Ok(closing(StatusCode::REQUEST_TIMEOUT)),
                Ok(Err(_)) => return Ok(closing(StatusCode::PAYLOAD_TOO_LARGE)),
                Ok(Ok(body)) => chunks::parse_body(&body.to_bytes()),
            }
        }
        Method::GET | Method::HEAD => head.uri.query().and_then(chunks::parse_query),
        _ => return Ok(not_allowed("GET, HEAD, POST")),
    };
    let Some(names) = names else {
        return Ok(text(StatusCode::BAD_REQUEST));
    };
    let located = folder.names.find(&folder.site, names).await?;
    let is_all = located.iter().all(Option::is_some);
    let (plan, opened, bytes) = chunks::plan(located, true);
    let mut sending = Sending::new(
        shared.clone(),
        Sent::Units(Arc::new(plan), opened),
        0,
        bytes,
    );
    if head.method != Method::HEAD {
        sending.prime().await?;
    }
    let mut builder = with(
        Response::builder(),
        header::CONTENT_TYPE,
        "application/octet-stream",
    );
    if head.method != Method::POST {
        // What is not here may come.
        let cache_control = if is_all { IMMUTABLE } else { "no-store" };
        builder = with(builder, header::CACHE_CONTROL, cache_control);
    }
    builder = with(builder, header::CONTENT_LENGTH, bytes.to_string());
    Ok(builder
        .body(AnswerBody::sending(sending, bytes))
        .expect("all headers are valid"))
}
