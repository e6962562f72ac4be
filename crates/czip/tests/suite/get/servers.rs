//! Servers that have no ranges, or lie about them, or have no archive.

use refrain_czip::get::GetError;
use refrain_czip_format::header::Profile;

use crate::get::{
    Place, archive_of, creating, file, options, release, serve,
    server::{Ending, Reply, Server},
};

#[test]
fn a_server_without_ranges_sends_the_archive_once() {
    let content = release(2);
    for profile in [Profile::Shared, Profile::Small] {
        for has_footer in [false, true] {
            for says_length in [true, false] {
                let archive = archive_of(&content, &creating(profile), has_footer);
                let file = file(archive);
                let server = Server::start(move |_| match says_length {
                    true => file.whole(),
                    false => file.whole().chunked(),
                });
                let place = Place::new();
                place.get(&server, &options()).expect("a file");
                place.assert_is(&content);
                // A footer has to be reached before anything else is known, and where that is may
                // have to be found out.
                let most = match (has_footer, says_length) {
                    (true, true) => 2,
                    (true, false) => 3,
                    (false, _) => 1,
                };
                assert!(server.requests().len() <= most, "{profile} {has_footer}");
            }
        }
    }
}

#[test]
fn what_is_damaged_on_its_way_is_asked_for_again() {
    let content = release(2);
    for (profile, keeps_archive) in [
        (Profile::Shared, false),
        (Profile::Small, false),
        (Profile::Small, true),
    ] {
        let archive = archive_of(&content, &creating(profile), false);
        let expected = if keeps_archive { &archive } else { &content };
        let mut options = options();
        options.keeps_archive = keeps_archive;
        let damaging = |answers: fn(usize) -> bool| {
            let file = file(archive.clone());
            Server::start(move |request| {
                let mut reply = file.reply(request);
                if answers(request.number) {
                    // Of the first answer, a frame: the root is far in front.
                    *reply.body.last_mut().expect("not empty") ^= 1;
                }
                reply
            })
        };
        let place = Place::new();
        let report = place.get(&damaging(|number| number < 3), &options);
        let report = report.expect("a file");
        place.assert_is(expected);
        assert!((1..=3).contains(&report.damaged), "{report:?}");
        // A server that has no other bytes is not asked for ever.
        let place = Place::new();
        let server = damaging(|_| true);
        let error = place.get(&server, &options).expect_err("it is damaged");
        assert!(matches!(error, GetError::Archive(_)), "{error}");
        assert!(server.requests().len() < 20, "asked for ever");
        assert!(!place.output().exists());
    }
}

#[test]
fn what_is_no_archive_is_told_and_leaves_nothing() {
    for body in [
        &b"<html>not found</html>"[..],
        &[],
        &[0; 100_000],
        &b"\x89CZIP\r\n"[..],
    ] {
        let place = Place::new();
        let error = place.get(&serve(body.to_vec()), &options());
        let error = error.expect_err("no archive");
        assert!(matches!(error, GetError::NotAnArchive { .. }), "{error}");
        assert!(!place.output().exists());
        assert!(!place.part().exists());
    }
}

#[test]
fn a_status_that_is_an_error_is_one() {
    let server = Server::start(|_| Reply::new(404, "not here"));
    let place = Place::new();
    let error = place.get(&server, &options()).expect_err("no file");
    assert!(error.to_string().contains("404"), "{error}");
    assert!(!place.part().exists());
}

#[test]
fn a_server_that_lies_about_ranges_never_gives_a_wrong_file() {
    let content = release(2);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    for lie in 0..6 {
        for at in 0..4 {
            let file = file(archive.clone());
            let server = Server::start(move |request| {
                let reply = file.reply(request);
                if request.number != at {
                    return reply;
                }
                let named = |first: u64, last: u64| format!("bytes {first}-{last}/{}", file.len());
                match lie {
                    0 => reply.with("Content-Range", named(5, 100)),
                    1 => reply.without("Content-Range"),
                    2 => Reply::new(206, file.bytes.clone())
                        .with("Content-Range", named(0, file.len() - 1)),
                    3 => {
                        let mut other = reply;
                        other.body.iter_mut().for_each(|byte| *byte ^= 0x55);
                        other
                    }
                    4 => reply.with("Content-Encoding", "gzip"),
                    _ => reply.ending(Ending::Cut(10)),
                }
            });
            let place = Place::new();
            let mut options = options();
            options.remote.piece_bytes = 60_000;
            match place.get(&server, &options) {
                Ok(_) => place.assert_is(&content),
                Err(_) => assert!(!place.output().exists()),
            }
        }
    }
}
