//! Edges that send something else, or nothing.

use super::*;

type Lie = (&'static str, fn(Reply, &Chunks) -> Reply);

const LIES: [Lie; 19] = [
    ("wrong bytes", |mut reply, _| {
        let middle = reply.body.len() / 2;
        reply.body[middle] ^= 1;
        reply
    }),
    ("too short", |mut reply, _| {
        reply.body.pop();
        Reply::new(200, reply.body)
    }),
    ("too long", |mut reply, _| {
        reply.body.push(0);
        Reply::new(200, reply.body)
    }),
    ("nothing", |_, _| Reply::new(200, "")),
    ("another chunk", |_, chunks| {
        let least = chunks.0.iter().min().expect("there are some");
        Reply::new(200, least.1.clone())
    }),
    ("an error page", |_, _| {
        Reply::new(200, "<html>Please log in</html>")
    }),
    ("an error page that is long", |_, _| {
        Reply::new(200, "<html>".repeat(100_000))
    }),
    ("a length that nobody has", |reply, _| {
        reply
            .with("Content-Length", u64::MAX / 2)
            .ending(Ending::Stall(usize::MAX))
    }),
    ("no end, of unknown length", |reply, _| {
        reply
            .without("Content-Length")
            .with("Connection", "close")
            .ending(Ending::Endless)
    }),
    ("no end, in chunks", |reply, _| {
        let mut reply = reply.chunked().ending(Ending::Endless);
        reply.body.truncate(reply.body.len() - 5);
        reply
    }),
    ("an end too early", |reply, _| reply.ending(Ending::Cut(7))),
    ("no answer", |reply, _| reply.ending(Ending::Stall(0))),
    ("a byte at a time", |reply, _| {
        reply.ending(Ending::Drip(Duration::from_millis(3)))
    }),
    ("an error", |_, _| Reply::new(500, "")),
    ("a refusal", |_, _| Reply::new(403, "")),
    ("a part", |reply, _| {
        let named = format!("bytes 0-{}/{}", reply.body.len() - 1, reply.body.len());
        Reply::new(206, reply.body).with("Content-Range", named)
    }),
    ("a coding", |reply, _| {
        reply.with("Content-Encoding", "gzip")
    }),
    ("a redirect to itself", |_, _| {
        Reply::new(302, "").with("Location", "/.czip/chunk/0")
    }),
    ("much that is nothing", |_, _| {
        // A zstd frame that says that it holds a gigabyte.
        let frame = [
            &[1, 0x28, 0xb5, 0x2f, 0xfd, 0xa0][..],
            &[0, 0, 0, 0x40],
            &[1, 0, 0],
        ];
        Reply::new(200, frame.concat())
    }),
];

#[test]
fn an_edge_that_lies_is_left_and_nothing_of_it_is_used() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    for (name, lie) in LIES {
        let lying = {
            let chunks = chunks.clone();
            // It begins well.
            Server::start(move |request| match chunks.reply(request) {
                reply if request.number >= 5 || reply.status != 200 => lie(reply, &chunks),
                reply => reply,
            })
        };
        let honest = chunks.edge();
        let (place, origin) = (Place::new(), serve(archive.clone()));
        let mut options = with_edges([&lying, &honest]);
        options.remote.progress_timeout = Duration::from_millis(700);
        let report = place.get(&origin, &options);
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        place.assert_is(&release(2));
        assert!(report.named[0].problem.is_some(), "{name}: {report:?}");
        assert!(report.named[0].chunks.chunks <= 9, "{name}: {report:?}");
        // No more is read of it than chunks can have, by a few connections a few times.
        let most = 5 * 20_000 + 4 * 3 * 40_000;
        assert!(report.named[0].transfer.bytes < most, "{name}: {report:?}");
    }
}

#[test]
fn where_all_lie_the_server_is_asked() {
    let archive = shared(2);
    let chunks = Chunks::of(&archive);
    for (name, lie) in LIES {
        // Slow ones take their time, which the test before has taken already.
        if name.contains("answer") || name.contains("time") || name.contains("nobody") {
            continue;
        }
        let lying = [(); 2].map(|()| {
            let chunks = chunks.clone();
            Server::start(move |request| lie(chunks.reply(request), &chunks))
        });
        let (place, origin) = (Place::new(), serve(archive.clone()));
        let report = place.get(&origin, &with_edges(&lying));
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        place.assert_is(&release(2));
        assert!(report.from_server.chunks > 10, "{name}: {report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn whatever_edges_do_the_file_is_right(
        behaviours in proptest::collection::vec(
            proptest::collection::vec(0..12_u8, 1..40),
            1..4,
        ),
        has_seed: bool,
    ) {
        let archive = shared(2);
        let chunks = Chunks::of(&archive);
        let edges: Vec<_> = behaviours
            .into_iter()
            .map(|behaviour| {
                let chunks = chunks.clone();
                Server::start(move |request| {
                    let reply = chunks.reply(request);
                    match behaviour[request.number % behaviour.len()] {
                        0 => Reply::new(404, ""),
                        1 => Reply::new(503, ""),
                        2 => reply.ending(Ending::Cut(10)),
                        3 => reply.ending(Ending::Close),
                        4 => reply.chunked(),
                        _ => reply,
                    }
                })
            })
            .collect();
        let (place, origin) = (Place::new(), serve(archive));
        let mut options = with_edges(&edges);
        if has_seed {
            options.seeds = vec![place.with("seed", &release(1))];
        }
        place.get(&origin, &options).expect("a file");
        place.assert_is(&release(2));
    }
}
