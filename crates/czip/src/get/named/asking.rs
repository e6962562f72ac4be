//! A server that is asked for chunks, and what it sends is checked.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use url::Url;

use crate::{
    archive::Chunk,
    format::ChunkName,
    get::report::{NamedReport, ServerProblem, Transfer},
    method::decompress,
    remote::{Counters, Host, RemoteError, RemoteOptions},
};

/// A server that has so few of what transfer name is no cache of it: so many in a row are not there.
const ABSENT_IN_A_ROW_MAX: u32 = 64;

/// A server.
pub(super) struct Server {
    host: Arc<Host>,
    /// How it is asked for files.
    pub(super) options: RemoteOptions,
    /// Where it may have the archive too. None if it is the archive's server.
    pub(super) archive_url: Option<String>,
    absent_in_a_row: Cell<u32>,
    report: RefCell<NamedReport>,
}

/// The plain bytes of a chunk. None if it is not there.
pub(super) type Came = Result<Option<Vec<u8>>, ServerProblem>;

impl Server {
    /// The edge at `edge` of the archive at `url`, for so many requests at a time.
    pub(super) fn new(
        url: &Url,
        edge: &str,
        options: RemoteOptions,
        requests_max: usize,
    ) -> Result<Self, RemoteError> {
        let host = Host::new(
            edge,
            RemoteOptions {
                connections: requests_max,
                ..options.clone()
            },
        )?;
        let archive_url = below(host.url(), url);
        let report = NamedReport {
            url: host.url().to_owned(),
            ..NamedReport::default()
        };
        Ok(Self {
            host: Arc::new(host),
            options,
            archive_url: Some(archive_url).filter(|at| at != url.as_str()),
            absent_in_a_row: Cell::default(),
            report: RefCell::new(report),
        })
    }

    /// Whether it was not left.
    pub(super) fn is_there(&self) -> bool {
        self.report.borrow().problem.is_none()
    }

    /// It is asked for nothing more. The first problem counts: others may come of that.
    pub(super) fn leave(&self, problem: ServerProblem) {
        self.report.borrow_mut().problem.get_or_insert(problem);
        self.host.close();
    }

    pub(super) fn url(&self) -> &str {
        self.host.url()
    }

    /// Adds what it was asked for besides chunks.
    pub(super) fn add(&self, counters: Counters) {
        self.report.borrow_mut().transfer += Transfer {
            requests: counters.requests,
            bytes: counters.body_bytes,
        };
    }

    pub(super) fn report(self) -> NamedReport {
        self.add(self.host.counters());
        self.report.into_inner()
    }

    /// Asks for a chunk, as often as the options say.
    pub(super) fn ask(&self, wanted: Chunk) -> impl Future<Output = Came> + Send + use<> {
        ask(self.host.clone(), wanted)
    }

    /// Counts what came of a request. It is left if that is a problem.
    pub(super) fn note(&self, came: Came) -> Option<Vec<u8>> {
        match came {
            Ok(Some(plain)) => {
                self.absent_in_a_row.set(0);
                self.report.borrow_mut().chunks.add(plain.len());
                Some(plain)
            }
            Ok(None) => {
                self.report.borrow_mut().absent += 1;
                self.absent_in_a_row.update(|absent| absent + 1);
                if self.absent_in_a_row.get() >= ABSENT_IN_A_ROW_MAX {
                    self.leave(ServerProblem::KnowsNone);
                }
                None
            }
            Err(problem) => {
                self.leave(problem);
                None
            }
        }
    }
}

async fn ask(host: Arc<Host>, wanted: Chunk) -> Came {
    let name = wanted.name;
    let path = format!(".czip/chunk/{name}");
    // No compressor makes more of a chunk.
    let plain_bytes = u64::from(wanted.bytes);
    let stored_bytes_max = plain_bytes + plain_bytes / 8 + 1024;
    let mut attempts = host.attempts();
    loop {
        match host.fetch(&path, stored_bytes_max).await {
            Ok(None) => return Ok(None),
            Ok(Some(stored)) => {
                return match decompress(&stored, None, wanted.bytes as usize) {
                    Ok(plain) if ChunkName::of(&plain) == name => Ok(Some(plain)),
                    _ => Err(ServerProblem::WrongBytes { name }),
                };
            }
            Err(RemoteError::TooLong { .. }) => return Err(ServerProblem::TooLong { name }),
            Err(error) => {
                let pause = host.failed(&mut attempts, error);
                host.pause(pause.map_err(ServerProblem::Remote)?).await;
            }
        }
    }
}

/// Where an edge has the file at `url`.
fn below(edge: &str, url: &Url) -> String {
    let path = url.path().trim_start_matches('/');
    let query = url.query().map(|query| format!("?{query}"));
    format!("{edge}{path}{}", query.unwrap_or_default())
}

impl From<RemoteError> for ServerProblem {
    fn from(error: RemoteError) -> Self {
        Self::Remote(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_at_its_path_below_the_edge() {
        let at = |edge: &str, url: &str| below(edge, &Url::parse(url).expect("an address"));
        assert_eq!(at("http://e/", "https://o/a/b.czip"), "http://e/a/b.czip");
        assert_eq!(at("http://e/x/", "http://o/b?v=1"), "http://e/x/b?v=1");
    }
}
