//! Many chunks in a request.

use super::*;

/// A server of an archive, with ranges, whose answers to batches are made by `answer`.
fn server(
    archive: &[u8],
    answer: impl Fn(Vec<u8>, &Request) -> Reply + Send + Sync + 'static,
) -> Server {
    let (chunks, file) = (Chunks::of(archive), crate::file(archive.to_vec()));
    Server::start(move |request| match request.path == "/.czip/chunks" {
        true => answer(chunks.batch(request), request),
        false => file.reply(request),
    })
}

/// What is done to a batch, in words and in deed.
type Lie = (&'static str, fn(Vec<u8>) -> Reply);

fn by_batch() -> GetOptions {
    GetOptions {
        by: FetchBy::Batch,
        ..options()
    }
}

fn batches(server: &Server) -> Vec<Request> {
    let mut requests = server.requests();
    requests.retain(|request| request.method == "POST");
    requests
}

#[test]
fn several_are_under_way_and_each_is_bounded() {
    let content = crate::noise(9, 9 << 20);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let largest = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = largest.clone();
    let server = server(&archive, move |batch, _| {
        seen.fetch_max(batch.len(), std::sync::atomic::Ordering::SeqCst);
        Reply::new(200, batch)
    });
    let place = Place::new();
    let report = place.get(&server, &by_batch()).expect("a file");
    place.assert_is(&content);
    assert_eq!(report.from_server.chunks, 0);
    let batches = batches(&server);
    assert!((5..=6).contains(&batches.len()), "{}", batches.len());
    let largest = largest.load(std::sync::atomic::Ordering::SeqCst);
    assert!(largest < (2 << 20) + 20_000, "{largest}");
    let names: usize = batches.iter().map(|request| request.body.len() / 20).sum();
    assert_eq!(names as u64, report.by_name.chunks);
}

#[test]
fn what_is_not_there_comes_by_ranges() {
    let archive = shared(2);
    let (all, some) = (Chunks::of(&archive), Chunks::of(&shared(1)));
    let file = crate::file(archive.clone());
    let server = Server::start(move |request| match request.path == "/.czip/chunks" {
        true => Reply::new(200, some.batch(request)),
        false => file.reply(request),
    });
    let place = Place::new();
    let report = place.get(&server, &by_batch()).expect("a file");
    place.assert_is(&release(2));
    let [of_server] = &report.named[..] else {
        panic!("{report:?}");
    };
    assert!(of_server.problem.is_none(), "{report:?}");
    assert!(
        of_server.absent > 5 && report.by_name.chunks > 5,
        "{report:?}"
    );
    assert_eq!(report.from_server.chunks, of_server.absent);
    assert_eq!(report.by_name.chunks + of_server.absent, all.len());
}

#[test]
fn a_batch_that_breaks_off_goes_on_behind_what_came() {
    let archive = shared(2);
    // Each answer brings a bit.
    let server = server(&archive, |batch, _| {
        Reply::new(200, batch).ending(Ending::Cut(30_000))
    });
    let place = Place::new();
    let report = place.get(&server, &by_batch()).expect("a file");
    place.assert_is(&release(2));
    assert_eq!(report.from_server.chunks, 0, "{report:?}");
    let batches = batches(&server);
    assert!(batches.len() > 5, "{}", batches.len());
    // What came is not asked for again.
    let names = |request: &Request| request.body.len() / 20;
    let shrinks = batches
        .windows(2)
        .all(|pair| names(&pair[1]) < names(&pair[0]));
    assert!(shrinks);
}

#[test]
fn a_server_whose_batches_are_wrong_is_asked_for_ranges() {
    let archive = shared(2);
    let lies: [Lie; 12] = [
        ("truncated in a length", |batch| {
            Reply::new(200, &batch[..2])
        }),
        ("truncated in a frame", |batch| Reply::new(200, &batch[..9])),
        ("cut in the first frame", |batch| {
            Reply::new(200, batch).ending(Ending::Cut(9))
        }),
        ("a length that is less", |mut batch| {
            batch[0] ^= 1;
            Reply::new(200, batch)
        }),
        ("a length that is too much", |mut batch| {
            batch[3] = 0x7f;
            Reply::new(200, batch)
        }),
        ("a wrong byte", |mut batch| {
            batch[100] ^= 1;
            Reply::new(200, batch)
        }),
        ("frames in another order", |batch| {
            let length = u32::from_le_bytes(*batch.first_chunk().expect("a length")) as usize;
            let (first, rest) = batch.split_at(4 + length);
            Reply::new(200, [rest, first].concat())
        }),
        ("something behind it", |mut batch| {
            batch.push(0);
            Reply::new(200, batch)
        }),
        ("no end", |batch| {
            let mut reply = Reply::new(200, batch).chunked().ending(Ending::Endless);
            reply.body.truncate(reply.body.len() - 5);
            reply
        }),
        ("an error page", |_| {
            Reply::new(200, "<html>".repeat(10_000))
        }),
        ("an error", |_| Reply::new(500, "")),
        ("no such method", |_| Reply::new(405, "")),
    ];
    for (name, lie) in lies {
        let server = server(&archive, move |batch, _| lie(batch));
        let place = Place::new();
        let report = place.get(&server, &by_batch());
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        place.assert_is(&release(2));
        assert!(report.named[0].problem.is_some(), "{name}: {report:?}");
        assert!(batches(&server).len() <= 3 * 4, "{name}");
        let most = 3 * 4 * archive.len() as u64;
        assert!(report.named[0].transfer.bytes < most, "{name}: {report:?}");
    }
}
