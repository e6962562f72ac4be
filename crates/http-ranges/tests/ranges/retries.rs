//! Servers that are busy, stall, or break off.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use refrain_http_ranges::{OnRetry, Remote, RemoteError, RemoteOptions};

use crate::{
    assert_holds, fetched, options,
    server::{Ending, File, Reply, Server},
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Each connection is cut after so many bytes: nothing is lost, and nothing comes twice.
    #[test]
    fn a_fetch_goes_on_from_the_byte_where_it_broke(
        every in 4_096..40_000usize, piece_bytes in 5_000..60_000u64, is_chunked: bool,
    ) {
        let file = File::new(200_000);
        let served = file.clone();
        let server = Server::start(move |request| {
            let reply = served.reply(request);
            // In chunks the end is clean, and too early.
            match is_chunked && reply.body.len() > every {
                true => {
                    let mut reply = reply;
                    reply.body.truncate(every);
                    reply.chunked()
                }
                false if reply.body.len() > every => reply.ending(Ending::Cut(every)),
                false => reply,
            }
        });
        let options = RemoteOptions { piece_bytes, retries: 1, ..options() };
        let remote = Remote::open(&server.url(), options).unwrap();
        let ranges = [0..90_000, 100_000..200_000];
        assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
        let counters = remote.counters();
        prop_assert_eq!(counters.body_bytes, 190_000);
        let requests = server.requests();
        let cuts = requests.iter().filter_map(|request| request.range(200_000));
        let cuts = cuts.filter(|range| range.end - range.start > every as u64).count();
        prop_assert_eq!(counters.retries, cuts as u64);
    }
}

#[test]
fn a_busy_server_is_asked_again() {
    for status in [429, 500, 502, 503, 504] {
        let file = File::new(50_000);
        let served = file.clone();
        let server = Server::start(move |request| match request.number {
            0 | 2 | 3 => Reply::new(status, "later").with("Retry-After", 0),
            _ => served.reply(request),
        });
        let remote = Remote::open(&server.url(), options()).unwrap();
        let whole = [0..50_000];
        assert_holds(&fetched(&remote, &whole).unwrap(), &whole, &file);
        assert_eq!(remote.counters().retries, 3);
    }
}

#[test]
fn who_is_busy_for_ever_is_given_up() {
    let file = File::new(50_000);
    let server = Server::start(move |request| match request.number {
        0 => file.reply(request),
        _ => Reply::new(503, "never"),
    });
    let options = RemoteOptions {
        retries: 3,
        connections: 1,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    let error = fetched(&remote, &[100..200, 40_000..50_000]).unwrap_err();
    assert!(
        matches!(error, RemoteError::GaveUp { attempts: 4, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("503"), "{error}");
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn each_retry_is_told_as_it_happens() {
    let file = File::new(50_000);
    let server = Server::start(move |request| match request.number {
        0 => file.reply(request),
        _ => Reply::new(503, "never"),
    });
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&told);
    let options = RemoteOptions {
        retries: 2,
        connections: 1,
        on_retry: OnRetry::new(move |retry| {
            let said = (retry.attempt, retry.attempts_max, retry.error.to_string());
            keep.lock().unwrap().push(said);
        }),
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    fetched(&remote, &[40_000..50_000]).unwrap_err();
    let error = format!("{} answers with status 503", server.url());
    let expected = [(2, 3, error.clone()), (3, 3, error)];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_server_that_wants_hours_gets_none() {
    let server = Server::start(|_| Reply::new(429, "").with("Retry-After", 7200));
    let error = Remote::open(&server.url(), options()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("429, and wants the next request in 7200s"),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_is_not_there_is_not_asked_for_again() {
    for status in [400, 401, 403, 404, 410, 204, 304, 501] {
        let server = Server::start(move |_| Reply::new(status, "").without("Content-Length"));
        let error = Remote::open(&server.url(), options()).unwrap_err();
        assert!(
            matches!(error, RemoteError::Status { status: said, .. } if said == status),
            "{error}"
        );
        assert_eq!(server.requests().len(), 1);
    }
    // A range that the file has, refused.
    let file = File::new(5_000);
    let server = Server::start(move |request| match request.number {
        0 => file.reply(request),
        _ => Reply::new(416, "").with("Content-Range", "bytes */5000"),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let error = remote.tail(10).unwrap_err();
    assert!(
        matches!(error, RemoteError::Status { status: 416, .. }),
        "{error}"
    );
}

#[test]
fn a_connection_on_which_nothing_comes_is_left_for_another() {
    let file = File::new(50_000);
    let served = file.clone();
    let server = Server::start(move |request| match request.number {
        1 => served.reply(request).ending(Ending::Stall(20_000)),
        _ => served.reply(request),
    });
    let options = RemoteOptions {
        progress_timeout: Duration::from_millis(300),
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    assert_holds(
        &fetched(&remote, &[100..50_000]).unwrap(),
        &[100..50_000],
        &file,
    );
    assert_eq!(
        server.requests()[2].header("range"),
        Some("bytes=20100-49999")
    );
}

#[test]
fn a_connection_that_breaks_while_nobody_used_it_costs_nothing_but_another() {
    let file = File::new(50_000);
    let served = file.clone();
    // The answer is whole, and says nothing of the connection's end.
    let server = Server::start(move |request| served.reply(request).ending(Ending::Cut(50_000)));
    let remote = Remote::open(&server.url(), options()).unwrap();
    for start in [1_000, 20_000, 40_000] {
        let mut buffer = [0; 1_000];
        remote.read_at(start, &mut buffer).unwrap();
        assert_eq!(&buffer[..], file.part(&(start..start + 1_000)));
    }
}

#[test]
fn a_server_that_takes_no_connection_is_reported_with_the_limit() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.listen(1).unwrap()
    });
    let address = listener.local_addr().unwrap();
    // Nobody accepts them, and the kernel drops what comes after those that it has room for.
    let limit = Duration::from_millis(300);
    let mut waiting = Vec::new();
    while let Ok(connection) = std::net::TcpStream::connect_timeout(&address, limit) {
        waiting.push(connection);
    }
    let options = RemoteOptions {
        connect_timeout: limit,
        retries: 0,
        ..options()
    };
    let url = format!("http://{address}/");
    let error = Remote::open(&url, options).unwrap_err().to_string();
    assert!(
        error.starts_with(&url) && error.contains("no connection") && error.contains("300ms"),
        "{error}"
    );
}

#[test]
fn nobody_at_that_address_is_said_at_once() {
    // Bound, and not listening any more.
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let options = RemoteOptions {
        pause_min: Duration::from_secs(3600),
        pause_max: Duration::from_secs(3600),
        ..options()
    };
    let error = Remote::open(&format!("http://{address}/"), options).unwrap_err();
    assert!(matches!(error, RemoteError::Connection { .. }), "{error}");
}
