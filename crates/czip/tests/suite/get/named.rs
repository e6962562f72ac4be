//! Chunks by name: of edges, and of the server itself.

mod caches;
mod edges;
mod lies;

use std::{collections::HashMap, net::SocketAddr, ops::ControlFlow, sync::Arc, time::Duration};

use crate::running::Running;
use proptest::prelude::*;
use refrain_czip::{
    archive::{Archive, CacheBytes},
    get::{GetError, GetOptions, GetReport, NotByName, get},
    serve::{ServeOptions, Server as ChunkServer, Status},
};
use refrain_czip_format::{Stream, header::Profile};

use crate::get::{
    Place, archive_of, creating, options, release, serve,
    server::{Ending, Reply, Request, Server},
};

/// An archive's chunks as they are stored, by name.
#[derive(Clone)]
struct Chunks(Arc<HashMap<String, Vec<u8>>>);

impl Chunks {
    fn of(archive: &[u8]) -> Self {
        let parsed = Archive::open(archive.to_vec(), CacheBytes::default()).expect("an archive");
        let mut chunks = HashMap::new();
        for stream in Stream::ALL {
            for number in 0..parsed.root().stream(stream).chunks.items() {
                let name = parsed.name(stream, number).expect("a name");
                let frame = parsed.frame_row(stream, number).expect("a frame");
                let stored = &archive[frame.offset as usize..][..frame.stored_bytes as usize];
                chunks.insert(name.to_string(), stored.to_vec());
            }
        }
        Self(Arc::new(chunks))
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn find(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// What an edge answers that has them all.
    fn reply(&self, request: &Request) -> Reply {
        let name = request.path.strip_prefix("/.czip/chunk/");
        match name.and_then(|name| self.find(name)) {
            Some(stored) => Reply::new(200, stored),
            None => Reply::new(404, "Not Found\n"),
        }
    }

    /// An edge that has them all.
    fn edge(&self) -> Server {
        let chunks = self.clone();
        Server::start(move |request| chunks.reply(request))
    }
}

fn base(server: &Server) -> String {
    format!("http://{}", server.address)
}

/// Requests that may be in flight to an edge.
const PER_EDGE: usize = 4;

fn with_edges<'a>(edges: impl IntoIterator<Item = &'a Server>) -> GetOptions {
    let edges: Vec<_> = edges.into_iter().map(base).collect();
    GetOptions {
        edge_requests_max: PER_EDGE * edges.len(),
        edges,
        ..options()
    }
}

/// Requests for single chunks.
fn asked_chunks(server: &Server) -> Vec<String> {
    let requests = server.requests().into_iter().map(|request| request.path);
    requests
        .filter(|path| path.starts_with("/.czip/chunk/"))
        .collect()
}

fn shared(number: u64) -> Vec<u8> {
    archive_of(&release(number), &creating(Profile::Shared), false)
}

/// `refrain czip serve` before a folder, until dropped.
struct Serving {
    folder: Place,
    address: SocketAddr,
    server: Arc<ChunkServer>,
    running: Running,
}

impl Serving {
    fn start() -> Self {
        let folder = Place::new();
        let server = ChunkServer::new(folder.0.path(), ServeOptions::default());
        let server = Arc::new(server.expect("a folder"));
        let running = Running::of(server.clone());
        Self {
            folder,
            address: running.address,
            server,
            running,
        }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    fn status(&self) -> Status {
        self.server.status()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.running.stop();
        self.running.wait();
    }
}

fn get_url(place: &Place, url: &str, options: &GetOptions) -> Result<GetReport, GetError> {
    get(url, &place.output(), options, &mut |_| {
        ControlFlow::Continue(())
    })
}

#[test]
fn the_server_that_knows_chunks_may_be_an_edge() {
    let serving = Serving::start();
    serving.folder.with("a.czip", &shared(2));
    let mut table = Vec::new();
    for (is_edge, has_seed) in [(false, true), (true, true), (true, false)] {
        let place = Place::new();
        let mut options = options();
        if is_edge {
            options.edges = vec![serving.url("")];
        }
        if has_seed {
            options.seeds = vec![place.with("seed", &release(1))];
        }
        let report = get_url(&place, &serving.url("a.czip"), &options).expect("a file");
        place.assert_is(&release(2));
        table.push(report.table.bytes);
        if !is_edge {
            assert_eq!((report.by_name.chunks, report.named.len()), (0, 0));
            assert!(report.from_server.chunks > 0);
            continue;
        }
        assert_eq!(report.named[0].transfer.requests, report.by_name.chunks);
        assert!(report.by_name.chunks > 0, "{report:?}");
        assert_eq!(report.from_server.chunks, 0);
        assert_eq!(report.frames.requests, 0);
        let [server] = &report.named[..] else {
            panic!("{report:?}");
        };
        assert!(server.problem.is_none() && server.absent == 0, "{report:?}");
        assert_eq!(server.chunks, report.by_name);
        assert_eq!(server.url, serving.url(""));
        let parts = report.header.bytes + report.table.bytes + server.transfer.bytes;
        assert_eq!(report.transferred().bytes, parts);
    }
    assert!(table[1] <= table[0], "{table:?}");
    assert_eq!(serving.status().requests_failed, 0);
}

/// Each answer takes a while, which they do together.
#[test]
fn many_requests_are_in_flight_together() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let all = chunks.len();
    let pause = Duration::from_millis(100);
    let edge = Server::start(move |request| {
        std::thread::sleep(pause);
        chunks.reply(request)
    });
    let place = Place::new();
    let mut options = with_edges([&edge]);
    options.edge_requests_max = GetOptions::default().edge_requests_max;
    let began = std::time::Instant::now();
    let report = place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&release(2));
    assert_eq!(report.by_name.chunks, all);
    let one_by_one = pause * all as u32;
    assert!(began.elapsed() < one_by_one / 4, "{:?}", began.elapsed());
}

#[test]
fn who_asks_by_name_fetches_no_frame_parts() {
    // So long that the table is not all in what is asked for first.
    let content = crate::get::noise(7, 12 << 20);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let edge = Chunks::of(&archive).edge();
    let origin = serve(archive);
    let fetched = [options(), with_edges([&edge])].map(|mut options| {
        let place = Place::new();
        // Nor are they fetched because they lie between others.
        options.remote.gap_bytes = 0;
        options.requests_max = 1000;
        let report = place.get(&origin, &options).expect("a file");
        place.assert_is(&content);
        report.header.bytes + report.table.bytes
    });
    assert!(fetched[1] < fetched[0] * 3 / 4, "{fetched:?}");
}

#[test]
fn a_server_that_knows_no_chunks_is_asked_for_ranges() {
    let archive = shared(2);
    let file = crate::get::file(archive);
    let server = Server::start(move |request| match request.path.starts_with("/.czip/") {
        true => Reply::new(404, "Not Found\n"),
        false => file.reply(request),
    });
    let place = Place::new();
    let report = place.get(&server, &with_edges([&server]));
    let report = report.expect("a file");
    place.assert_is(&release(2));
    assert!(report.named[0].problem.is_some(), "{report:?}");
    assert_eq!(report.by_name.chunks, 0);
    // It is not asked for ever.
    assert!(server.requests().len() < 100, "{}", server.requests().len());
}

#[test]
fn where_names_do_not_apply_ranges_are_used_and_it_is_said() {
    let small = archive_of(&release(2), &creating(Profile::Small), false);
    for (archive, keeps_archive, reason) in [
        (small, false, NotByName::Profile),
        (shared(2), true, NotByName::Archive),
    ] {
        let edge = Server::start(|_| Reply::new(500, ""));
        let place = Place::new();
        let mut options = with_edges([&edge]);
        options.keeps_archive = keeps_archive;
        let report = place.get(&serve(archive.clone()), &options);
        let report = report.expect("a file");
        match keeps_archive {
            true => place.assert_is(&archive),
            false => place.assert_is(&release(2)),
        }
        assert_eq!(report.not_by_name, Some(reason));
        assert!(edge.requests().is_empty());
    }
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_is_done() {
    let origin = serve(shared(2));
    for edge in ["edge.example", "ftp://edge.example/", "http://edge/?key=1"] {
        let place = Place::new();
        let mut options = options();
        options.edges = vec![edge.to_owned()];
        let error = place.get(&origin, &options).expect_err("no address");
        assert!(matches!(error, GetError::Remote(_)), "{error}");
        assert!(!place.part().exists());
    }
    assert!(origin.requests().is_empty());
}
