//! Files that are other ones later.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use refrain_czip::get::GetError;
use refrain_czip_format::header::Profile;

use crate::get::{
    Place, archive_of, creating, file, noise, options, release, serve,
    server::{File, Server},
};

#[test]
fn what_still_fits_of_another_version_is_used() {
    for profile in [Profile::Shared, Profile::Small] {
        let old = file(archive_of(&release(1), &creating(profile), false));
        let new = archive_of(&release(2), &creating(profile), false);
        let place = Place::new();
        let mut options = options();
        options.remote.retries = 0;
        let last = old.len() * 3 / 4;
        let dying = Server::start(move |request| match request.range(old.len()) {
            Some(range) if range.end <= last => old.reply(request),
            Some(range) => {
                let left = last.saturating_sub(range.start) as usize;
                old.reply(request).ending(crate::server::Ending::Cut(left))
            }
            None => old.reply(request),
        });
        place.get(&dying, &options).expect_err("it breaks off");
        let report = place.get(&serve(new), &options).expect("a file");
        place.assert_is(&release(2));
        assert!(report.from_earlier.chunks > 20, "{report:?}");
    }
}

/// A server whose file is another one from some request on.
fn changing_server(versions: Vec<File>, at: usize) -> (Server, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let server = Server::start(move |request| {
        let number = counter.fetch_add(1, SeqCst);
        versions[(number / at).min(versions.len() - 1)].reply(request)
    });
    (server, asked)
}

#[test]
fn a_file_that_changes_meanwhile_is_fetched_as_it_is_then() {
    let version = |number, etag| File {
        bytes: archive_of(&release(number), &creating(Profile::Shared), false),
        etag,
    };
    let whole = Place::new().get(&serve(version(2, "").bytes), &options());
    let all = whole.expect("a file").from_server;
    for at in 1..5 {
        let versions = vec![version(1, "\"first\""), version(2, "\"second\"")];
        let (server, _) = changing_server(versions, at);
        let place = Place::new();
        let mut options = options();
        options.remote.piece_bytes = 60_000;
        let report = place.get(&server, &options).expect("a file");
        place.assert_is(&release(2));
        assert_eq!(report.changes, 1, "{at}");
        let (before, then) = (report.from_earlier, report.from_server);
        let counted = (before.chunks + then.chunks, before.bytes + then.bytes);
        assert_eq!(counted, (all.chunks, all.bytes), "{at}: each counts once");
    }
}

#[test]
fn a_file_that_never_stays_is_given_up() {
    // Each takes more requests than a version is there for, and has nothing of another.
    let versions = [(0, "\"0\""), (1, "\"1\""), (2, "\"2\"")].map(|(number, etag)| File {
        bytes: archive_of(&noise(number, 1 << 20), &creating(Profile::Shared), false),
        etag,
    });
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let server = Server::start(move |request| {
        let number = counter.fetch_add(1, SeqCst);
        versions[number / 2 % versions.len()].reply(request)
    });
    let place = Place::new();
    let mut options = options();
    options.remote.piece_bytes = 60_000;
    let error = place.get(&server, &options).expect_err("it never stays");
    assert!(matches!(error, GetError::Remote(_)), "{error}");
    assert!(asked.load(SeqCst) < 200);
    assert!(!place.output().exists());
}

#[test]
fn a_change_that_no_header_tells_gives_an_error_or_the_new_file() {
    let old = archive_of(&release(1), &creating(Profile::Shared), false);
    let new = archive_of(&release(2), &creating(Profile::Shared), false);
    for at in 1..6 {
        let strip = |bytes: &Vec<u8>| file(bytes.clone());
        let (server, _) = changing_server(vec![strip(&old), strip(&new)], at);
        let place = Place::new();
        let mut options = options();
        options.remote.piece_bytes = 60_000;
        match place.get(&server, &options) {
            Ok(_) => place.assert_is(&release(2)),
            Err(_) => {
                assert!(!place.output().exists());
                // Now it stays as it is.
                place.get(&serve(new.clone()), &options).expect("a file");
                place.assert_is(&release(2));
            }
        }
    }
}

#[test]
fn equal_archives_behind_one_address_are_one_whatever_they_are_called() {
    for profile in [Profile::Shared, Profile::Small] {
        let archive = archive_of(&release(2), &creating(profile), false);
        for count in [2, 3, 5] {
            let mirrors: Vec<File> = ["\"a\"", "\"b\"", "\"c\"", "\"d\"", "\"e\""][..count]
                .iter()
                .map(|etag| File {
                    bytes: archive.clone(),
                    etag,
                })
                .collect();
            let asked = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&asked);
            let server = Server::start(move |request| {
                let number = counter.fetch_add(1, SeqCst);
                // In no order that a client could know.
                mirrors[number * number % 7 % mirrors.len()].reply(request)
            });
            let place = Place::new();
            let mut options = options();
            options.remote.piece_bytes = 60_000;
            let report = place.get(&server, &options).expect("a file");
            place.assert_is(&release(2));
            assert_eq!(report.changes, 0, "{report:?}");
        }
    }
}
