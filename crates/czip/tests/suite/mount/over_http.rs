//! Archives on a web server, mounted.

use std::{
    fs::{self, File},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use refrain_czip::{
    archive::{Archive, CacheBytes, RemoteSource},
    cache::{Cache, CacheOptions},
    create::Input,
};
use refrain_http_ranges::{ProxyChoice, RemoteOptions};

use crate::mount::{
    mounting::{Mount, archive_of, noise, read},
    server::{self, Server},
};

#[test]
fn a_little_of_it_takes_a_few_requests_and_a_change_gives_errors_not_other_bytes() {
    let original = tempfile::tempdir().unwrap();
    let tree = original.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let contents = [1, 2].map(|seed| noise(seed, 6_000_000));
    for (number, content) in contents.iter().enumerate() {
        fs::write(tree.join(number.to_string()), content).unwrap();
    }
    let (_archive, path) = archive_of(vec![Input::Path(tree)]);
    let served = server::File {
        bytes: fs::read(path).unwrap(),
        etag: "\"first\"",
    };
    let has_changed = Arc::new(AtomicBool::new(false));
    let server = Server::start({
        let mut changed = server::File {
            etag: "\"second\"",
            ..served.clone()
        };
        // Equal bytes would be the same file.
        changed.bytes[60] ^= 1;
        let has_changed = has_changed.clone();
        move |request| match has_changed.load(SeqCst) {
            false => served.reply(request),
            true => changed.reply(request),
        }
    });
    let options = RemoteOptions {
        proxy: ProxyChoice::Direct,
        ..RemoteOptions::default()
    };
    let source = RemoteSource::open(&server.url(), options, RemoteSource::CACHE_BYTES).unwrap();
    let archive = Archive::open(source, CacheBytes::default()).unwrap();
    let Some(mount) = Mount::new(archive) else {
        return;
    };
    let file = File::open(mount.path("tree/1")).unwrap();
    assert!(read(&file, 3_000_000, 65_536).unwrap() == contents[1][3_000_000..3_065_536]);
    let requests = server.requests().len();
    assert!(requests <= 6, "{requests} requests");
    assert!(
        server.sent_bytes() < 3_000_000,
        "{} bytes",
        server.sent_bytes()
    );
    assert!(fs::read(mount.path("tree/0")).unwrap() == contents[0]);
    has_changed.store(true, SeqCst);
    let error = fs::read(mount.path("tree/1")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert!(mount.failures.lock().unwrap()[0].contains("changed while it was read"));
    // What the kernel has is of the file that was opened.
    assert!(read(&file, 3_000_000, 65_536).unwrap() == contents[1][3_000_000..3_065_536]);
    assert!(fs::read(mount.path("tree/0")).unwrap() == contents[0]);
}

#[test]
fn a_cache_has_what_another_mount_brought() {
    let original = tempfile::tempdir().unwrap();
    let tree = original.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let content = noise(1, 4_000_000);
    fs::write(tree.join("file"), &content).unwrap();
    let (_archive, path) = archive_of(vec![Input::Path(tree)]);
    let served = server::File {
        bytes: fs::read(path).unwrap(),
        etag: "\"first\"",
    };
    let server = Server::start(move |request| served.reply(request));
    let cache = CacheOptions {
        folder: original.path().join("cache"),
        bytes_max: CacheOptions::BYTES_MAX,
    };
    let mut before = (0, 0);
    for (requests_max, bytes_max) in [(usize::MAX, u64::MAX), (3, 1_000_000)] {
        let options = RemoteOptions {
            proxy: ProxyChoice::Direct,
            ..RemoteOptions::default()
        };
        let source = RemoteSource::open(&server.url(), options, RemoteSource::CACHE_BYTES).unwrap();
        let archive = Archive::open(source, CacheBytes::default()).unwrap();
        let cache = Cache::open(&cache, |_, error| panic!("{error}")).unwrap();
        let Some(mount) = Mount::new(archive.with_cache(Arc::new(cache))) else {
            return;
        };
        assert!(fs::read(mount.path("tree/file")).unwrap() == content);
        let now = (server.requests().len(), server.sent_bytes());
        let (requests, bytes) = (now.0 - before.0, now.1 - before.1);
        assert!(
            requests <= requests_max && bytes <= bytes_max,
            "{bytes} by {requests}"
        );
        before = now;
    }
    assert!(server.sent_bytes() > 4_000_000);
}
