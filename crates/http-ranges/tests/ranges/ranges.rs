//! What is asked for comes, and with few requests.

use proptest::{collection::vec, prelude::*};
use refrain_http_ranges::{Remote, RemoteError, RemoteOptions};

use crate::{
    assert_holds, fetched, options,
    server::{File, Server},
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_fetch_hands_on_its_ranges_once_and_in_order(
        ranges in vec((0..60_000u64, 0..9_000u64), 0..12),
        gap_bytes in 0..5_000u64,
        requests_max in 1..8usize,
        piece_bytes in 1_000..20_000u64,
        window_bytes in 0..30_000usize,
        connections in 1..5usize,
        first_bytes in 0..2_000usize,
        has_ranges: bool,
    ) {
        let file = File::new(70_000);
        let served = file.clone();
        let server = Server::start(move |request| match has_ranges {
            true => served.reply(request),
            false => served.whole(),
        });
        let options = RemoteOptions {
            gap_bytes, requests_max, piece_bytes, window_bytes, connections, first_bytes, ..options()
        };
        let remote = Remote::open(&server.url(), options).unwrap();
        let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
        assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
        prop_assert_eq!(remote.has_ranges(), has_ranges);
        prop_assert!(remote.counters().held_bytes_max <= window_bytes.max(2) as u64);
        prop_assert_eq!(remote.counters().retries, 0);
        prop_assert_eq!(remote.counters().requests, server.requests().len() as u64);
    }

    #[test]
    fn a_read_fills_its_buffer_wherever_it_is(
        start in 0..3_000u64, len in 0..900usize, first_bytes in 1..2_000usize, has_ranges: bool,
    ) {
        let file = File::new(4_000);
        let served = file.clone();
        let server = Server::start(move |request| match has_ranges {
            true => served.reply(request),
            false => served.whole(),
        });
        let remote = Remote::open(&server.url(), RemoteOptions { first_bytes, ..options() }).unwrap();
        let mut buffer = vec![0; len];
        remote.read_at(start, &mut buffer).unwrap();
        let end = start + len as u64;
        prop_assert_eq!(&buffer[..], file.part(&(start..end)));
        let tail = remote.tail(len).unwrap();
        prop_assert_eq!(&tail[..], file.part(&(4_000 - len as u64..4_000)));
    }
}

#[test]
fn what_came_when_it_was_opened_needs_no_other_request() {
    let file = File::new(5_000);
    let served = file.clone();
    let server = Server::start(move |request| served.reply(request));
    let options = RemoteOptions {
        first_bytes: 1_000,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    assert_eq!(remote.len(), Some(5_000));
    let mut header = [0; 1_000];
    remote.read_at(0, &mut header).unwrap();
    assert_holds(&fetched(&remote, &[0..1_000]).unwrap(), &[0..1_000], &file);
    assert_eq!(server.requests().len(), 1);
    // What lies further costs one, for that alone.
    remote.read_at(500, &mut header).unwrap();
    assert_eq!(&header[..], file.part(&(500..1_500)));
    assert_eq!(
        server.requests()[1].header("range"),
        Some("bytes=1000-1499")
    );
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_gap_that_is_too_long_is_not_fetched_however_short_all_of_it_is() {
    let file = File::new(100_000);
    let served = file.clone();
    let server = Server::start(move |request| served.reply(request));
    let remote = Remote::open(&server.url(), options()).unwrap();
    let ranges = [2_000..2_010, 10_000..10_010];
    assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
    assert_eq!(server.requests().len(), 3);
    assert_eq!(remote.counters().body_bytes, 16 + 20);
}

#[test]
fn ranges_that_lie_close_come_with_one_request_and_each_request_names_one() {
    let file = File::new(100_000);
    let served = file.clone();
    let server = Server::start(move |request| served.reply(request));
    let remote = Remote::open(&server.url(), options()).unwrap();
    let ranges = [2_000..2_100, 2_150..2_200, 50_000..50_010, 90_000..90_001];
    assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
    let requests = server.requests();
    let mut asked: Vec<&str> = requests[1..]
        .iter()
        .filter_map(|r| r.header("range"))
        .collect();
    asked.sort_unstable();
    assert_eq!(
        asked,
        ["bytes=2000-2199", "bytes=50000-50009", "bytes=90000-90000"]
    );
    // The gap of 50 is counted, and not handed on.
    assert_eq!(remote.counters().body_bytes, 16 + 200 + 10 + 1);
}

#[test]
fn the_end_of_the_file_is_known_before_anything_is_asked_for() {
    let file = File::new(1_000);
    let server = Server::start(move |request| file.reply(request));
    let remote = Remote::open(&server.url(), options()).unwrap();
    for range in [999..1_001, 1_000..1_001, u64::MAX - 1..u64::MAX] {
        let error = fetched(&remote, &[0..500, range.clone()]).unwrap_err();
        assert!(
            matches!(error, RemoteError::BeyondEnd { len: 1_000, .. }),
            "{error}"
        );
        let error = remote.read_at(range.start, &mut [0; 9]).unwrap_err();
        assert!(
            matches!(error, RemoteError::BeyondEnd { len: 1_000, .. }),
            "{error}"
        );
    }
    assert_eq!(remote.tail(5_000).unwrap().len(), 1_000);
    assert_eq!(server.requests().len(), 2, "{:?}", server.requests());
}

#[test]
fn an_empty_file_is_one_whether_it_has_ranges_or_not() {
    for has_ranges in [true, false] {
        let file = File::new(0);
        let server = Server::start(move |request| match has_ranges {
            true => file.reply(request),
            false => file.whole(),
        });
        let remote = Remote::open(&server.url(), options()).unwrap();
        assert_eq!(remote.len(), Some(0));
        assert!(remote.tail(10).unwrap().is_empty());
        assert!(fetched(&remote, &[]).unwrap().is_empty());
        assert!(remote.read_at(0, &mut [0]).is_err());
    }
}

#[test]
fn a_file_whose_length_ranges_do_not_say_is_read_as_a_whole() {
    let file = File::new(3_000);
    let served = file.clone();
    let server = Server::start(move |request| {
        let reply = served.reply(request);
        let said = reply
            .headers
            .iter()
            .find(|(name, _)| name == "Content-Range");
        match said.map(|(_, said)| said.replace("/3000", "/*")) {
            Some(said) => reply.with("Content-Range", said),
            None => reply,
        }
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    assert_eq!(remote.len(), Some(3_000));
    assert_eq!(remote.tail(10).unwrap(), file.part(&(2_990..3_000)));
    assert!(!remote.has_ranges());
}

#[test]
fn progress_is_told_in_the_thread_that_waits() {
    use std::sync::{Arc, Mutex};
    let file = File::new(100_000);
    let server = Server::start(move |request| file.reply(request));
    let told = Arc::new(Mutex::new(Vec::new()));
    let (telling, here) = (told.clone(), std::thread::current().id());
    let remote = Remote::open(&server.url(), options())
        .unwrap()
        .with_progress(move |counters| {
            assert_eq!(std::thread::current().id(), here);
            telling.lock().unwrap().push(counters.body_bytes);
        });
    fetched(&remote, &[0..100_000]).unwrap();
    let told = told.lock().unwrap();
    assert!(
        told.is_sorted() && told.last() == Some(&100_000),
        "{told:?}"
    );
}
