//! Servers that send all of the file, whatever was asked for.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use refrain_http_ranges::{Remote, RemoteError, RemoteOptions};

use crate::{
    assert_holds, fetched, options,
    server::{Ending, File, Server},
};

#[test]
fn one_body_brings_all_that_is_read_in_order() {
    let file = File::new(300_000);
    let served = file.clone();
    let server = Server::start(move |_| served.whole());
    let remote = Remote::open(&server.url(), options()).unwrap();
    assert!(!remote.has_ranges());
    assert_eq!(remote.len(), Some(300_000));
    let mut buffer = [0; 100];
    remote.read_at(1_000, &mut buffer).unwrap();
    assert_eq!(&buffer[..], file.part(&(1_000..1_100)));
    let ranges = [5_000..6_000, 200_000..250_000];
    assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
    assert_eq!(remote.tail(99).unwrap(), file.part(&(299_901..300_000)));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(remote.counters().body_bytes, 300_000);
    // Back again: that costs another.
    remote.read_at(1_000, &mut buffer).unwrap();
    assert_eq!(&buffer[..], file.part(&(1_000..1_100)));
    assert_eq!(server.requests().len(), 2);
    assert_eq!(server.requests()[1].header("range"), None);
}

#[test]
fn nothing_is_read_beyond_the_last_need() {
    let file = File::new(64 << 20);
    let served = file.clone();
    let server = Server::start(move |_| served.whole());
    let remote = Remote::open(&server.url(), options()).unwrap();
    let ranges = [10_000..20_000, 30_000..40_000];
    assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
    assert_eq!(remote.counters().body_bytes, 40_000);
    drop(remote);
    assert!(
        server.sent_bytes() < 60 << 20,
        "only what the system buffers was sent"
    );
}

#[test]
fn a_server_that_loses_its_ranges_is_read_in_one_body_from_then_on() {
    let file = File::new(200_000);
    let served = file.clone();
    let server = Server::start(move |request| match request.number {
        0..3 => served.reply(request),
        _ => served.whole(),
    });
    let options = RemoteOptions {
        piece_bytes: 10_000,
        ..options()
    };
    let remote = Remote::open(&server.url(), options).unwrap();
    assert!(remote.has_ranges());
    let ranges = [100..50_000, 60_000..200_000];
    assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
    assert!(!remote.has_ranges());
    let mut buffer = [0; 9];
    remote.read_at(70_000, &mut buffer).unwrap();
    assert_eq!(&buffer[..], file.part(&(70_000..70_009)));
    assert_eq!(server.requests().last().unwrap().header("range"), None);
}

#[test]
fn a_read_uses_the_body_that_came_instead_of_its_range() {
    let file = File::new(9_000);
    let served = file.clone();
    let server = Server::start(move |request| match request.number {
        0 => served.reply(request),
        _ => served.whole(),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let mut buffer = [0; 90];
    remote.read_at(5_000, &mut buffer).unwrap();
    assert_eq!(&buffer[..], file.part(&(5_000..5_090)));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_body_of_unknown_length_is_read_to_its_end() {
    for ending in [Ending::Keep, Ending::Close] {
        let file = File::new(150_000);
        let served = file.clone();
        let server = Server::start(move |_| match ending {
            Ending::Close => served.whole().without("Content-Length").ending(ending),
            _ => served.whole().chunked(),
        });
        let remote = Remote::open(&server.url(), options()).unwrap();
        assert_eq!(remote.len(), None);
        let ranges = [100..200, 149_990..150_000];
        assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
        let error = fetched(&remote, &[149_990..150_001]).unwrap_err();
        assert!(
            matches!(error, RemoteError::BeyondEnd { len: 150_000, .. }),
            "{error}"
        );
        for bytes in [0, 10, 70_000, 150_000, 160_000] {
            let start = file.bytes.len().saturating_sub(bytes);
            assert_eq!(remote.tail(bytes).unwrap(), file.bytes[start..], "{bytes}");
        }
    }
}

#[test]
fn a_file_shorter_than_the_first_bytes_is_opened_too() {
    let file = File::new(10);
    let served = file.clone();
    let server = Server::start(move |_| served.whole().chunked());
    let remote = Remote::open(&server.url(), options()).unwrap();
    assert_eq!(remote.tail(10).unwrap(), file.bytes);
}

#[test]
fn a_body_that_breaks_is_read_again_from_its_beginning() {
    let file = File::new(100_000);
    let served = file.clone();
    let server = Server::start(move |request| match request.number {
        0 => served.whole().ending(Ending::Cut(20_000)),
        1 => served.whole().ending(Ending::Cut(60_000)),
        _ => served.whole(),
    });
    let remote = Remote::open(&server.url(), options()).unwrap();
    let ranges = [100..30_000, 40_000..100_000];
    assert_holds(&fetched(&remote, &ranges).unwrap(), &ranges, &file);
    assert_eq!(remote.counters().retries, 2);
    assert_eq!(remote.counters().body_bytes, 180_000);
}

#[test]
fn a_sink_may_read_the_file_that_it_is_handed() {
    let file = File::new(10_000);
    let served = file.clone();
    let server = Server::start(move |_| served.whole());
    let remote = Remote::open(&server.url(), options()).unwrap();
    let was_here = AtomicBool::new(false);
    remote
        .fetch(&[100..200], &mut |_, _| {
            was_here.store(true, SeqCst);
            remote.read_at(300, &mut [0; 9])
        })
        .unwrap();
    assert!(was_here.load(SeqCst));
}
