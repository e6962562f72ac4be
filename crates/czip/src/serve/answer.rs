//! Requests and their answers.

use std::{net::SocketAddr, sync::Arc};

use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, http::request::Parts};

use super::{
    Content, Folder, ServeError, Shared,
    body::AnswerBody,
    cache::in_thread,
    names::{CHUNK_PATH, parse_name},
    plan::Unit,
    resource::{Answer, Resource, answer_with, not_allowed, send, tag, text, whole, with},
    tree::SafePath,
};

pub(super) const STATUS_PATH: &str = "/.czip/status";

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
        tracing::error!(path, %error, "cannot answer a request");
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
    let Some(name) = parse_name(&head.uri.path()[CHUNK_PATH.len()..]) else {
        return Ok(text(StatusCode::NOT_FOUND));
    };
    let Some((opened, unit)) = folder.names.find(&folder.site, name).await? else {
        return Ok(text(StatusCode::NOT_FOUND));
    };
    let tag = tag(&blake3::hash(&unit.frame.digest));
    let modified = opened.modified;
    let loading = shared.cache.clone();
    let frame = loading.load_units(opened, vec![Unit::Frame(unit)]).await?;
    send(shared, head, Resource::of_chunk(frame, tag, modified)).await
}
