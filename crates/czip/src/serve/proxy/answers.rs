//! Requests to the proxy, and which way each goes.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use http_body::Body;
use hyper::{Method, Request, StatusCode, body::Incoming, header, http::request::Parts};
use percent_encoding::percent_decode_str;

use super::{
    Origin,
    archives::{Beside, SUFFIX},
    pass::refusal,
};
use crate::{
    format::ChunkName,
    method::{Compression, Compressor, Method as Compressing},
    serve::{
        ServeError, Shared,
        answer::{STATUS_PATH, json},
        cache::in_thread,
        names::{CHUNK_PATH, parse_name},
        opened::Contents,
        resource::{Answer, Resource, answer_with, not_allowed, send, tag},
        site::{Target, within},
        tree::SafePath,
    },
};

/// So deep an archive of a folder is looked for above what the origin does not have.
const DEPTH_MAX: usize = 8;

impl Origin {
    /// Answers a request, out of an archive or by passing it on.
    pub(in crate::serve) async fn answer(
        &self,
        shared: &Arc<Shared>,
        client: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Answer, ServeError> {
        let (head, body) = request.into_parts();
        if let Some(refused) = refused(&head) {
            return Ok(refused);
        }
        let path = head.uri.path();
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if is_read && path == STATUS_PATH {
            return Ok(json(&self.status(shared)));
        }
        if is_read
            && let Some(name) = path.strip_prefix(CHUNK_PATH).and_then(parse_name)
            && let Some(answer) = self.chunk(shared, &head, name).await?
        {
            return Ok(answer);
        }
        // What has a query, or a body, is an answer to a question; and files have neither. And who says who
        // it is may get what others do not.
        let is_of_one = [header::AUTHORIZATION, header::COOKIE];
        let is_of_one = is_of_one.iter().any(|name| head.headers.contains_key(name));
        let has_question = head.uri.query().is_some() || !body.is_end_stream();
        let is_of_file = is_read && !has_question && !is_of_one;
        let safe = SafePath::parse(path).filter(|_| is_of_file && !path.ends_with(SUFFIX));
        let Some(safe) = safe else {
            return Ok(self.client.pass(client, &head, body).await);
        };
        let mut why_not = None;
        if !safe.has_slash {
            match self.content(shared, &head).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(why) => why_not = Some(why),
            }
        }
        let passed = self.client.pass(client, &head, body).await;
        let is_missing = passed.status() == StatusCode::NOT_FOUND;
        if is_missing {
            match self.within(shared, &head, &safe).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(why) => why_not = why_not.or(Some(why)),
            }
        }
        let Some(why) = why_not else {
            return Ok(passed);
        };
        self.counters.fell_back.fetch_add(1, Relaxed);
        Ok(match is_missing {
            // That there is nothing may not be true.
            true => refusal(
                StatusCode::BAD_GATEWAY,
                &format!("the origin does not have {path}, and {why}"),
            ),
            false => passed,
        })
    }

    /// The content of the archive that is beside the path, if that is of one file; or why it cannot be
    /// used.
    async fn content(&self, shared: &Arc<Shared>, head: &Parts) -> Result<Option<Answer>, String> {
        let path = head.uri.path();
        let found = match self.archives.find(path).await {
            Beside::Archive(found) => found,
            Beside::Nothing => return Ok(None),
            Beside::Refused(why) => return Err(unusable(path, &why)),
        };
        let Contents::Single = found.opened.contents else {
            return Ok(None);
        };
        let target = Target::Content {
            bytes: found.opened.archive.plain_bytes(),
            offset: 0,
            opened: found.opened,
        };
        self.answer_of_archive(shared, head, path, target, found.cache_control)
            .await
            .map(Some)
    }

    /// What is in an archive of a folder, of which the path goes into the inside; or why an archive that it
    /// may be in cannot be used.
    async fn within(
        &self,
        shared: &Arc<Shared>,
        head: &Parts,
        safe: &SafePath,
    ) -> Result<Option<Answer>, String> {
        let path = head.uri.path();
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        let ends = ends.chain((!safe.has_slash).then_some(path.len()));
        let mut why_not = None;
        for (end, count) in ends.zip(1..=DEPTH_MAX) {
            let archive = &path[..end];
            let found = match self.archives.find(archive).await {
                Beside::Archive(found) => found,
                Beside::Nothing => continue,
                Beside::Refused(why) => {
                    why_not.get_or_insert_with(|| unusable(archive, &why));
                    continue;
                }
            };
            let Contents::Several(_) = found.opened.contents else {
                continue;
            };
            match within(found.opened, &safe.components[count..], safe) {
                Target::Nothing => break,
                target => {
                    return self
                        .answer_of_archive(shared, head, archive, target, found.cache_control)
                        .await
                        .map(Some);
                }
            }
        }
        why_not.map_or(Ok(None), Err)
    }

    /// An answer out of `archive`. Why not, if it fails before anything was promised.
    async fn answer_of_archive(
        &self,
        shared: &Arc<Shared>,
        head: &Parts,
        archive: &str,
        target: Target,
        cache_control: Option<String>,
    ) -> Result<Answer, String> {
        match answer_with(shared, head, target, cache_control).await {
            Ok(answer) => {
                self.counters.from_archives.fetch_add(1, Relaxed);
                Ok(answer)
            }
            Err(error) => {
                let path = head.uri.path();
                tracing::warn!(
                    path,
                    %error,
                    "cannot use the origin's archive; passing on the plain file, if there is one"
                );
                Err(unusable(archive, &error.to_string()))
            }
        }
    }

    /// A chunk that is kept, for clients that know of CZIP.
    async fn chunk(
        &self,
        shared: &Arc<Shared>,
        head: &Parts,
        name: ChunkName,
    ) -> Result<Option<Answer>, ServeError> {
        let cache = self.cache.clone();
        let frame = in_thread(move || {
            let Some(plain) = cache.find(name) else {
                return Ok(None);
            };
            let quickly = Compression::new(Compressing::Zstd).with_level(1);
            let compression = quickly.expect("zstd has this level");
            Ok(Some(Compressor::new(compression).compress(&plain, None)?))
        });
        let Some(frame) = frame.await? else {
            return Ok(None);
        };
        let tag = tag(&blake3::hash(&frame));
        let resource = Resource::of_chunk(frame.into(), tag, None);
        send(shared, head, resource).await.map(Some)
    }
}

/// That the archive beside a path cannot be used, and why.
fn unusable(path: &str, why: &str) -> String {
    format!("its archive {path}{SUFFIX} cannot be used: {why}")
}

/// What no proxy passes.
fn refused(head: &Parts) -> Option<Answer> {
    if head.method == Method::CONNECT {
        return Some(not_allowed("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    let path = head.uri.path();
    if !path.starts_with('/') {
        return Some(refusal(StatusCode::BAD_REQUEST, "invalid path"));
    }
    // The origin may be a folder of a server: it is not left.
    let decoded = percent_decode_str(path).collect::<Vec<u8>>();
    if decoded
        .split(|&byte| matches!(byte, b'/' | b'\\'))
        .any(|name| name == b"..")
    {
        return Some(refusal(StatusCode::BAD_REQUEST, "the path leads upwards"));
    }
    None
}
