//! Archives' bytes in blocks, from a server.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use crate::server::{File, Server, options};
use proptest::{collection::vec, prelude::*};
use refrain_czip::archive::{RemoteSource, RemoteSourceError, Source};
use refrain_http_ranges::{RemoteError, RemoteOptions};

const BLOCK: usize = 256 << 10;

fn open(server: &Server, cache_bytes: u64) -> RemoteSource {
    let options = RemoteOptions {
        retries: 0,
        ..options()
    };
    RemoteSource::open(&server.url(), options, cache_bytes).unwrap()
}

fn read(source: &RemoteSource, offset: usize, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    source.read_exact_at(&mut buffer, offset as u64)?;
    Ok(buffer)
}

/// A server of a file of so many bytes.
fn serve(bytes: usize) -> (File, Server) {
    let file = File::new(bytes);
    let served = file.clone();
    (file, Server::start(move |request| served.reply(request)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn what_is_read_is_the_file_wherever_and_however_often(
        reads in vec((0..5 * BLOCK, 0..3 * BLOCK), 1..12),
        bytes in 1..5 * BLOCK,
        cache_blocks in 0..4u64,
    ) {
        let (file, server) = serve(bytes);
        let source = open(&server, cache_blocks * BLOCK as u64);
        prop_assert_eq!(source.bytes().unwrap(), bytes as u64);
        for (offset, wanted) in reads {
            let end = offset + wanted;
            match read(&source, offset, wanted) {
                Ok(read) => prop_assert_eq!(&read[..], &file.bytes[offset..end]),
                Err(error) => {
                    prop_assert!(end > bytes, "{}", error);
                    prop_assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
                }
            }
        }
    }
}

#[test]
fn opening_and_the_first_block_take_one_request_and_others_one_each() {
    let (_, server) = serve(20 * BLOCK);
    let source = open(&server, RemoteSource::CACHE_BYTES);
    read(&source, 0, BLOCK).unwrap();
    read(&source, 300, 5000).unwrap();
    assert_eq!(server.requests().len(), 1);
    read(&source, 10 * BLOCK + 5, 4000).unwrap();
    read(&source, 10 * BLOCK + 90_000, 4000).unwrap();
    assert_eq!(server.requests().len(), 2);
    // Two blocks that lie together.
    read(&source, 15 * BLOCK - 5, 10).unwrap();
    assert_eq!(server.requests().len(), 3);
    assert_eq!(server.sent_bytes(), 4 * BLOCK as u64);
}

#[test]
fn who_reads_on_and_on_gets_more_and_more_at_once() {
    let (file, server) = serve(64 * BLOCK + 77);
    let source = open(&server, RemoteSource::CACHE_BYTES);
    let pieces: Vec<u8> = (0..file.bytes.len())
        .step_by(10_000)
        .flat_map(|at| read(&source, at, 10_000.min(file.bytes.len() - at)).unwrap())
        .collect();
    assert!(pieces == file.bytes);
    // 1, 2, 4, 8 and then 16 blocks.
    assert_eq!(server.requests().len(), 8);
    assert_eq!(server.sent_bytes(), file.len());
}

#[test]
fn threads_that_want_the_same_wait_for_one_request() {
    let (file, server) = serve(40 * BLOCK);
    let source = open(&server, RemoteSource::CACHE_BYTES);
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for block in (1..40).step_by(3) {
                    let at = block * BLOCK;
                    assert!(read(&source, at, BLOCK).unwrap() == file.bytes[at..at + BLOCK]);
                }
            });
        }
    });
    assert_eq!(server.requests().len(), 1 + 13);
}

#[test]
fn what_is_forgotten_is_asked_for_again() {
    let (file, server) = serve(8 * BLOCK);
    let source = open(&server, RemoteSource::CACHE_BYTES);
    let read = |block: usize| {
        let at = block * BLOCK;
        assert!(read(&source, at, BLOCK).unwrap() == file.bytes[at..at + BLOCK]);
    };
    for block in [2, 3, 4] {
        read(block);
    }
    let before = server.requests().len();
    // A byte of the third, and one of the fourth.
    assert!(source.forget(4 * BLOCK as u64 - 1..4 * BLOCK as u64 + 1));
    read(2);
    assert_eq!(server.requests().len(), before);
    for block in [3, 4] {
        read(block);
    }
    assert_eq!(server.requests().len(), before + 2);
    // Of what came when it was opened.
    read(0);
    assert_eq!(server.requests().len(), before + 2);
    assert!(source.forget(1000..1001));
    read(0);
    let last = server.requests().last().cloned().expect("one");
    assert_eq!(last.range(u64::MAX), Some(1000..BLOCK as u64));
}

#[test]
fn a_file_that_changes_is_an_error_and_what_was_read_before_stays() {
    let file = File::new(8 * BLOCK);
    let has_changed = Arc::new(AtomicBool::new(false));
    let server = Server::start({
        let (file, has_changed) = (file.clone(), has_changed.clone());
        let changed = File {
            etag: "\"second\"",
            bytes: vec![0; file.bytes.len()],
        };
        move |request| match has_changed.load(SeqCst) {
            false => file.reply(request),
            true => changed.reply(request),
        }
    });
    let source = open(&server, RemoteSource::CACHE_BYTES);
    read(&source, 3 * BLOCK, 10).unwrap();
    has_changed.store(true, SeqCst);
    let error = read(&source, 4 * BLOCK - 1, 2).unwrap_err();
    let error = error.downcast::<RemoteError>().unwrap();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
    assert!(read(&source, 3 * BLOCK, BLOCK).unwrap() == file.bytes[3 * BLOCK..4 * BLOCK]);
    // A failure is not kept.
    has_changed.store(false, SeqCst);
    assert!(read(&source, 4 * BLOCK, 9).unwrap() == file.bytes[4 * BLOCK..4 * BLOCK + 9]);
}

#[test]
fn a_server_without_ranges_is_refused() {
    for (begin, is_archive) in [(b"\x89CZIP\r\n\x1a", true), (b"<!DOCTYP", false)] {
        let mut file = File::new(3 * BLOCK);
        file.bytes[..8].copy_from_slice(begin);
        let server = Server::start(move |_| file.whole());
        let error = RemoteSource::open(&server.url(), options(), 0).err();
        let is_about_ranges = matches!(error, Some(RemoteSourceError::NoRanges));
        assert_eq!(is_about_ranges, is_archive, "{error:?}");
        let is_none = matches!(error, Some(RemoteSourceError::NotAnArchive(_)));
        assert_eq!(is_none, !is_archive, "{error:?}");
    }
}
