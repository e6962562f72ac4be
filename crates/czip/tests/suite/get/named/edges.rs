//! Edges that have what they should, or not all of it, and those that go away.

use super::*;

#[test]
fn each_edge_is_asked_for_its_share_and_nobody_twice() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let edges: Vec<_> = (0..3).map(|_| chunks.edge()).collect();
    let (place, origin) = (Place::new(), serve(archive));
    let report = place.get(&origin, &with_edges(&edges)).expect("a file");
    place.assert_is(&release(2));
    assert_eq!(report.by_name.chunks, chunks.len());
    assert_eq!(report.from_server.chunks, 0);
    let mut asked = Vec::new();
    for (edge, report) in edges.iter().zip(&report.named) {
        let of_edge = asked_chunks(edge);
        assert!(of_edge.len() as u64 > chunks.len() / 6, "{}", of_edge.len());
        assert_eq!(report.url, format!("{}/", base(edge)));
        assert_eq!(report.transfer.requests, of_edge.len() as u64);
        assert_eq!(report.transfer.bytes, edge.sent_bytes());
        assert_eq!(report.chunks.chunks, of_edge.len() as u64);
        // A few connections, which are kept.
        let connections = edge
            .requests()
            .into_iter()
            .map(|request| request.connection);
        assert!(connections.max().expect("some") < 4);
        asked.extend(of_edge);
    }
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len() as u64, chunks.len());
}

#[test]
fn another_client_asks_the_same_edge_for_a_chunk() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let edges: Vec<_> = (0..3).map(|_| chunks.edge()).collect();
    let origin = serve(archive);
    for edges in [[0, 1, 2], [2, 0, 1]].map(|order| order.map(|number: usize| &edges[number])) {
        let place = Place::new();
        place.get(&origin, &with_edges(edges)).expect("a file");
    }
    for edge in &edges {
        let mut asked = asked_chunks(edge);
        let all = asked.len();
        asked.sort();
        asked.dedup();
        assert_eq!(2 * asked.len(), all);
    }
}

#[test]
fn an_edge_may_have_a_path_and_be_named_twice() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let all = chunks.len();
    let edge = Server::start(move |request| {
        let mut request = request.clone();
        let path = request.path.strip_prefix("/some/where");
        request.path = path.expect("the path goes before").to_owned();
        chunks.reply(&request)
    });
    let (place, origin) = (Place::new(), serve(archive));
    let mut options = options();
    options.edges = ["/some/where", "/some/where/"]
        .map(|path| format!("{}{path}", base(&edge)))
        .into();
    let report = place.get(&origin, &options).expect("a file");
    place.assert_is(&release(2));
    assert_eq!((report.named.len(), report.by_name.chunks), (1, all));
}

#[test]
fn an_edge_may_redirect_and_gets_no_secrets() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let all = chunks.len();
    let behind = chunks.edge();
    let to = base(&behind);
    let edge = Server::start(move |request| {
        Reply::new(302, "").with("Location", format!("{to}{}", request.path))
    });
    let (place, origin) = (Place::new(), serve(archive));
    let mut options = with_edges([&edge]);
    options.remote.bearer = Some("secret".to_owned());
    let report = place.get(&origin, &options).expect("a file");
    place.assert_is(&release(2));
    assert_eq!(report.by_name.chunks, all);
    assert!(origin.requests()[0].header("authorization").is_some());
    for server in [&edge, &behind] {
        let requests = server.requests();
        let mut secrets = requests
            .iter()
            .map(|request| request.header("authorization"));
        assert!(secrets.all(|secret| secret.is_none()));
    }
}

#[test]
fn frames_of_another_compressor_are_as_good() {
    let mut creating = creating(Profile::Shared);
    for compression in ["gzip", "none", "bzip2", "zstd:19"] {
        creating.compression = compression.parse().expect("a method");
        let other = archive_of(&release(2), &creating, false);
        let edge = Chunks::of(&other).edge();
        let place = Place::new();
        let report = place.get(&serve(shared(2)), &with_edges([&edge]));
        let report = report.expect("a file");
        place.assert_is(&release(2));
        assert_eq!(report.from_server.chunks, 0, "{report:?}");
        assert!(report.named[0].problem.is_none());
    }
}

#[test]
fn chunks_that_are_not_there_come_by_ranges() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let all = chunks.len();
    // One in five.
    let lacks = |path: &str| path.ends_with(['1', '2', '3']);
    let edges: Vec<_> = (0..2)
        .map(|_| {
            let chunks = chunks.clone();
            Server::start(move |request| match lacks(&request.path) {
                true => Reply::new(404, "x".repeat(100)),
                false => chunks.reply(request),
            })
        })
        .collect();
    let (place, origin) = (Place::new(), serve(archive));
    let report = place.get(&origin, &with_edges(&edges)).expect("a file");
    place.assert_is(&release(2));
    let absent: u64 = report.named.iter().map(|edge| edge.absent).sum();
    assert!(absent > 3, "{absent}");
    assert_eq!(report.from_server.chunks, absent);
    assert_eq!(report.by_name.chunks, all - absent);
    for (edge, report) in edges.iter().zip(&report.named) {
        assert!(report.problem.is_none(), "{report:?}");
        let connections = edge
            .requests()
            .into_iter()
            .map(|request| request.connection);
        assert!(connections.max().expect("some") < 4, "not kept after a 404");
    }
    // Nobody is asked for what another edge does not have.
    let asked: usize = edges.iter().map(|edge| asked_chunks(edge).len()).sum();
    assert_eq!(asked as u64, all);
}

#[test]
fn an_edge_that_dies_in_the_middle_is_left_to_the_others() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let all = chunks.len();
    let dying = {
        let chunks = chunks.clone();
        Server::start(move |request| match request.number < 8 {
            true => chunks.reply(request),
            false => chunks.reply(request).ending(Ending::Cut(20)),
        })
    };
    let edges = [chunks.edge(), dying, chunks.edge()];
    let (place, origin) = (Place::new(), serve(archive));
    let report = place.get(&origin, &with_edges(&edges)).expect("a file");
    place.assert_is(&release(2));
    assert_eq!(report.by_name.chunks, all);
    assert_eq!(report.from_server.chunks, 0);
    let left: Vec<_> = report
        .named
        .iter()
        .map(|edge| edge.problem.is_some())
        .collect();
    assert_eq!(left, [false, true, false]);
    assert_eq!(report.named[1].chunks.chunks, 8);
    // Its connections try for as long as its chunks' attempts last, and no longer.
    assert!(edges[1].requests().len() <= 8 + 4 * 3, "{report:?}");
}

#[test]
fn where_all_edges_are_gone_the_server_is_asked() {
    let archive = shared(2);
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it is bound")
    };
    let refusing = Server::start(|_| Reply::new(403, "no"));
    let (place, origin) = (Place::new(), serve(archive));
    let mut options = with_edges([&refusing]);
    options.edges.push(format!("http://{gone}"));
    let report = place.get(&origin, &options).expect("a file");
    place.assert_is(&release(2));
    assert!(report.named.iter().all(|edge| edge.problem.is_some()));
    assert_eq!(report.by_name.chunks, 0);
    assert!(report.from_server.chunks > 0);
}

#[test]
fn what_came_by_name_is_kept_for_the_next_get() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let edge = chunks.edge();
    let origin = serve(archive);
    let place = Place::new();
    let mut stops = 0;
    for patience in (0..).step_by(7) {
        let mut left = patience;
        let got = get(
            &origin.url(),
            &place.output(),
            &with_edges([&edge]),
            &mut |_| {
                left -= 1;
                match left < 0 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        );
        match got {
            Ok(_) => break,
            Err(GetError::Interrupted) => stops += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(!place.output().exists());
    }
    place.assert_is(&release(2));
    assert!(stops > 8, "{stops}");
    // What was under way when it stopped is lost: of each connection a chunk, and what waited.
    let again = asked_chunks(&edge).len() as u64 - chunks.len();
    assert!(again <= stops * 12, "{again} of {stops} stops");
}

#[test]
fn what_came_by_name_is_in_the_cache() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    let (edge, origin) = (chunks.edge(), serve(archive));
    let cache = Place::new();
    for is_first in [true, false] {
        let place = Place::new();
        let mut options = with_edges([&edge]);
        options.cache = Some(refrain_czip::get::CacheOptions {
            folder: cache.0.path().join("cache"),
            bytes_max: 1 << 30,
        });
        let report = place.get(&origin, &options).expect("a file");
        place.assert_is(&release(2));
        let expected = if is_first { chunks.len() } else { 0 };
        assert_eq!(report.by_name.chunks, expected);
    }
}

#[test]
fn little_is_held_however_much_comes() {
    let content = crate::get::noise(3, 3 << 20);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let chunks = Chunks::of(&archive);
    let edges: Vec<_> = (0..2).map(|_| chunks.edge()).collect();
    for window_bytes in [1, 20 << 10] {
        let place = Place::new();
        let mut options = with_edges(&edges);
        options.remote.window_bytes = window_bytes;
        place
            .get(&serve(archive.clone()), &options)
            .expect("a file");
        place.assert_is(&content);
    }
}

/// Content so long that its table is not in what is asked for first.
fn long() -> Vec<u8> {
    crate::get::noise(4, 3 << 20)
}

/// An edge that has the archive too, with answers for it that `change` makes.
fn edge_of(archive: &[u8], change: fn(Reply) -> Reply) -> Server {
    let (chunks, file) = (Chunks::of(archive), crate::get::file(archive.to_vec()));
    Server::start(move |request| match request.path == "/file" {
        true => change(file.reply(request)),
        false => chunks.reply(request),
    })
}

#[test]
fn all_clients_ask_one_edge_for_the_table() {
    let archive = archive_of(&long(), &creating(Profile::Shared), false);
    let edges = [(); 3].map(|()| edge_of(&archive, |reply| reply));
    let origin = serve(archive);
    for _ in 0..2 {
        let place = Place::new();
        let report = place.get(&origin, &with_edges(&edges)).expect("a file");
        place.assert_is(&long());
        assert_eq!((report.table.requests, report.header.requests), (0, 1));
        assert_eq!(report.header.bytes, 16 << 10);
        let sent = report.named.iter().map(|edge| edge.transfer.bytes);
        assert_eq!(report.transferred().bytes, sent.sum::<u64>() + (16 << 10));
    }
    let asked = edges.iter().filter(|edge| {
        let mut requests = edge.requests().into_iter();
        requests.any(|request| request.path == "/file")
    });
    assert_eq!(asked.count(), 1);
}

#[test]
fn no_edge_can_make_up_a_table() {
    let archive = archive_of(&long(), &creating(Profile::Shared), false);
    let other = archive_of(
        &crate::get::noise(5, 3 << 20),
        &creating(Profile::Shared),
        false,
    );
    let honest: fn(Reply) -> Reply = |reply| reply;
    let changes: [fn(Reply) -> Reply; 6] = [
        honest,
        |_| Reply::new(404, ""),
        |_| Reply::new(500, ""),
        |reply| reply.ending(Ending::Cut(0)),
        // All but the header.
        |mut reply| {
            let is_header = reply.body.len() == 256;
            let change = |byte: &mut u8| *byte ^= u8::from(!is_header);
            reply.body.iter_mut().step_by(100).for_each(change);
            reply
        },
        |mut reply| {
            reply.body[100] ^= 1;
            reply
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        // The first has another archive at that address.
        let edge = edge_of(if number == 0 { &other } else { &archive }, change);
        let (place, origin) = (Place::new(), serve(archive.clone()));
        let report = place.get(&origin, &with_edges([&edge])).expect("a file");
        place.assert_is(&long());
        assert!(report.table.requests > 0, "{number}: {report:?}");
        // Where the archive differs, or is not there, chunks may be right still.
        let is_left = report.named[0].problem.is_some();
        assert_eq!(
            is_left,
            number == 0 || number == 2 || number == 3,
            "{number}"
        );
    }
}
