//! Files that become others while they are read.

use refrain_http_ranges::{Remote, RemoteError, RemoteOptions, VersionField};

use crate::{
    assert_holds, fetched, options,
    server::{File, Reply, Request, Server},
};

/// Opens a file that `later` answers for from the second request on, and reads of it.
fn read_of(later: fn(&File, &Request) -> Reply) -> Result<(), RemoteError> {
    let file = File::new(5_000);
    let server = Server::start(move |request| match request.number {
        0 => file.reply(request),
        _ => later(&file, request),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let outcome = fetched(&remote, &[1_000..2_000]);
    assert_eq!(
        server.requests().len(),
        2,
        "a change is not asked for again"
    );
    assert_eq!(server.requests()[0].header("if-range"), None);
    assert_eq!(server.requests()[1].header("if-range"), Some("\"first\""));
    outcome.map(drop)
}

fn assert_changed(outcome: Result<(), RemoteError>, what: &str, was: &str, is: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
    for part in [format!("{what} was {was}"), format!("is now {is}")] {
        assert!(error.to_string().contains(&part), "{error}");
    }
}

#[test]
fn a_server_that_sends_the_new_file_is_noticed() {
    let outcome = read_of(|file, request| {
        let etag = "\"second\"";
        File {
            etag,
            ..file.clone()
        }
        .reply(request)
    });
    assert_changed(outcome, "ETag", "\"first\"", "\"second\"");
}

#[test]
fn a_server_that_sends_a_part_of_the_new_file_is_noticed() {
    let outcome = read_of(|file, request| file.reply(request).with("ETag", "\"second\""));
    assert_changed(outcome, "ETag", "\"first\"", "\"second\"");
}

#[test]
fn a_length_that_changes_is_noticed() {
    let outcome = read_of(|file, request| {
        let reply = file.reply(request).without("ETag");
        reply.with("Content-Range", "bytes 1000-1999/5001")
    });
    assert_changed(outcome, "length", "5000", "5001");
    let outcome = read_of(|_, _| File::new(4_000).whole().without("ETag"));
    assert_changed(outcome, "length", "5000", "4000");
    let outcome = read_of(|_, _| Reply::new(416, "").with("Content-Range", "bytes */900"));
    assert_changed(outcome, "length", "5000", "900");
}

#[test]
fn a_time_that_changes_is_noticed_where_there_is_no_etag() {
    let file = File::new(5_000);
    let dated = |reply: Reply, date: &str| reply.without("ETag").with("Last-Modified", date);
    let server = Server::start(move |request| match request.number {
        0 => dated(file.reply(request), "Sun, 06 Nov 1994 08:49:37 GMT"),
        _ => dated(file.whole(), "Mon, 07 Nov 1994 08:49:37 GMT"),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let error = remote.read_at(1_000, &mut [0; 10]).unwrap_err();
    assert!(
        matches!(
            error,
            RemoteError::Changed {
                what: VersionField::LastModified,
                ..
            }
        ),
        "{error}"
    );
    let sent = server.requests()[1].header("if-range").map(str::to_owned);
    assert_eq!(sent.as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
}

#[test]
fn a_file_without_ranges_that_changes_between_two_bodies_is_noticed() {
    let file = File::new(50_000);
    let server = Server::start(move |request| match request.number {
        0 => file.whole(),
        _ => file.whole().with("ETag", "\"second\""),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    remote.read_at(20_000, &mut [0; 10]).unwrap();
    let error = remote.read_at(10_000, &mut [0; 10]).unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
}

#[test]
fn an_error_page_is_no_change() {
    let outcome = read_of(|_, _| Reply::new(404, "gone").with("ETag", "\"page\""));
    assert!(
        matches!(outcome, Err(RemoteError::Status { status: 404, .. })),
        "{outcome:?}"
    );
}

/// One of servers behind an address, each of which calls the same file otherwise.
fn balanced(file: &File, count: usize) -> Server {
    const TAGS: [&str; 5] = ["\"a\"", "\"b\"", "W/\"c\"", "\"d\"", "\"e\""];
    let file = file.clone();
    Server::start(move |request| {
        let etag = TAGS[request.number * 7 % 5 % count];
        File {
            etag,
            ..file.clone()
        }
        .reply(request)
    })
}

fn with_digests() -> RemoteOptions {
    RemoteOptions {
        has_digests: true,
        piece_bytes: 5_000,
        ..options()
    }
}

#[test]
fn equal_files_of_several_servers_are_one_where_digests_check_them() {
    let file = File::new(100_000);
    for count in 1..=5 {
        let server = balanced(&file, count);
        let remote = Remote::open(&server.url(), with_digests()).unwrap();
        for start in [0, 50_000] {
            let ranges = [start..start + 50_000];
            let fetched = fetched(&remote, &ranges).unwrap_or_else(|error| panic!("{error}"));
            assert_holds(&fetched, &ranges, &file);
        }
        // Each name costs a few looks, and each is remembered.
        let asked = server.requests().len();
        assert!(asked <= 21 + 16 * count, "{count}: {asked}");
    }
    // Where nothing else checks them they are others.
    let server = balanced(&file, 2);
    let unchecked = RemoteOptions {
        has_digests: false,
        ..with_digests()
    };
    let remote = Remote::open(&server.url(), unchecked).unwrap();
    let error = fetched(&remote, &[100..90_000]).map(drop).unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
}

#[test]
fn a_file_that_begins_otherwise_or_is_longer_is_another_one() {
    let first = File::new(100_000);
    let mut begins_otherwise = first.clone();
    begins_otherwise.bytes[7] ^= 1;
    for other in [begins_otherwise, File::new(100_001)] {
        let other = File {
            etag: "\"second\"",
            ..other
        };
        for changed_from in [1, 3] {
            let (first, other) = (first.clone(), other.clone());
            let server = Server::start(move |request| match request.number < changed_from {
                true => first.reply(request),
                false => other.reply(request),
            });
            let remote = Remote::open(&server.url(), with_digests()).unwrap();
            let error = fetched(&remote, &[100..90_000]).map(drop).unwrap_err();
            assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
        }
    }
}

#[test]
fn a_server_that_never_says_the_same_is_given_up() {
    let file = File::new(100_000);
    let server = Server::start(move |request| {
        let reply = file.reply(&Request {
            headers: request
                .headers
                .iter()
                .filter(|(name, _)| *name != "if-range")
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            ..request.clone()
        });
        reply.with("ETag", format!("\"{}\"", request.number))
    });
    let remote = Remote::open(&server.url(), with_digests()).unwrap();
    let error = fetched(&remote, &[100..90_000]).map(drop).unwrap_err();
    assert!(matches!(error, RemoteError::Unsteady { .. }), "{error}");
}
