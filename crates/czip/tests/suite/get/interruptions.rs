//! Gets that end early, and go on later.

use std::{
    fs,
    ops::ControlFlow,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use refrain_czip::get::{GetError, get};
use refrain_czip_format::header::Profile;

use crate::get::{
    Place, archive_of, creating, file, options, release, serve,
    server::{Ending, Server},
};

/// A server that sends so many bytes in all, and then breaks off whatever is asked.
pub(crate) fn dying_server(archive: Vec<u8>, bytes: u64) -> Server {
    let (file, left) = (file(archive), AtomicU64::new(bytes));
    Server::start(move |request| {
        let reply = file.reply(request);
        let bytes = reply.body.len() as u64;
        let left = left.fetch_update(SeqCst, SeqCst, |left| Some(left.saturating_sub(bytes)));
        match left.expect("it is always updated") {
            left if left >= bytes => reply,
            left => reply.ending(Ending::Cut(left as usize)),
        }
    })
}

#[test]
fn a_get_that_was_cut_anywhere_goes_on_with_what_came() {
    let content = release(2);
    for profile in [Profile::Shared, Profile::Small] {
        let archive = archive_of(&content, &creating(profile), false);
        let whole = {
            let place = Place::new();
            let report = place.get(&serve(archive.clone()), &options());
            report.expect("a file").transferred().bytes
        };
        for cut in (0..24).map(|step| whole * step / 24) {
            let place = Place::new();
            let mut options = options();
            options.remote.connections = 1;
            options.remote.retries = 0;
            options.remote.piece_bytes = 50_000;
            let dying = dying_server(archive.clone(), cut);
            let error = place.get(&dying, &options).expect_err("it breaks off");
            assert!(matches!(error, GetError::Remote(_)), "{cut}: {error}");
            assert!(!place.output().exists());
            let came = dying.sent_bytes();
            let server = serve(archive.clone());
            let report = place.get(&server, &options).expect("a file");
            place.assert_is(&content);
            // The header is asked for again, and the block in which it broke.
            let again = (64 << 10) + (64 << 10);
            let asked = report.transferred().bytes;
            assert!(
                asked + came <= whole + again,
                "{cut}: {asked} {came} {whole}"
            );
        }
    }
}

#[test]
fn a_get_that_is_told_to_stop_goes_on_from_there() {
    let content = release(2);
    for profile in [Profile::Shared, Profile::Small] {
        let server = serve(archive_of(&content, &creating(profile), false));
        let place = Place::new();
        let mut options = options();
        options.seeds = vec![place.with("seed", &release(1))];
        let mut stops = 0;
        for patience in 0.. {
            let mut left = patience;
            let got = get(&server.url(), &place.output(), &options, &mut |_| {
                left -= 1;
                match left < 0 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            match got {
                Ok(_) => break,
                Err(GetError::Interrupted) => stops += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(!place.output().exists());
        }
        place.assert_is(&content);
        assert!(stops > 8, "{stops}");
    }
}

#[test]
fn what_a_crash_left_is_not_believed() {
    let content = release(2);
    for profile in [Profile::Shared, Profile::Small] {
        let archive = archive_of(&content, &creating(profile), false);
        for name in ["archive", "chunks", "header", "whole"] {
            for damage in 0..4 {
                let place = Place::new();
                let mut options = options();
                options.remote.retries = 0;
                let cut = archive.len() as u64 * 3 / 4;
                let dying = dying_server(archive.clone(), cut);
                place.get(&dying, &options).expect_err("it breaks off");
                let path = place.part().join(name);
                let mut bytes = fs::read(&path).unwrap_or_default();
                match damage {
                    0 => bytes.iter_mut().step_by(5_000).for_each(|byte| *byte ^= 1),
                    1 => bytes.truncate(bytes.len() / 2),
                    2 => bytes.fill(0),
                    _ => bytes.clear(),
                }
                fs::write(&path, bytes).expect("it can be written");
                let server = serve(archive.clone());
                place.get(&server, &options).expect("a file");
                place.assert_is(&content);
            }
        }
    }
}

#[test]
fn what_a_crash_left_of_another_version_is_not_believed() {
    for profile in [Profile::Shared, Profile::Small] {
        let [old, new] =
            [1, 2].map(|number| archive_of(&release(number), &creating(profile), false));
        for name in ["archive", "chunks"] {
            let place = Place::new();
            let mut options = options();
            options.remote.retries = 0;
            let cut = old.len() as u64 * 3 / 4;
            place
                .get(&dying_server(old.clone(), cut), &options)
                .expect_err("it breaks off");
            let path = place.part().join(name);
            let mut bytes = fs::read(&path).expect("it was begun");
            bytes.iter_mut().step_by(50_000).for_each(|byte| *byte ^= 1);
            fs::write(&path, bytes).expect("it can be written");
            let report = place.get(&serve(new.clone()), &options).expect("a file");
            place.assert_is(&release(2));
            // Of an archive that is damaged nothing is known.
            if name == "chunks" {
                assert!(report.from_earlier.chunks > 20, "{report:?}");
            }
        }
    }
}

#[test]
fn an_output_that_was_there_stays_until_the_new_one_is_whole() {
    let content = release(2);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let place = Place::new();
    place.with("output", b"old");
    let dying = dying_server(archive.clone(), 100_000);
    let mut options = options();
    options.remote.retries = 0;
    place.get(&dying, &options).expect_err("it breaks off");
    assert_eq!(fs::read(place.output()).expect("the old one"), b"old");
    place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&content);
}

#[test]
fn an_output_that_cannot_be_is_an_error_before_anything_is_fetched() {
    let server = serve(archive_of(&release(2), &creating(Profile::Shared), false));
    let place = Place::new();
    fs::create_dir(place.output()).expect("a new folder");
    let error = place.get(&server, &options()).expect_err("it is a folder");
    assert!(matches!(error, GetError::Local { .. }), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn two_gets_of_one_file_do_not_disturb_each_other() {
    let archive = archive_of(&release(2), &creating(Profile::Shared), false);
    let (server, place) = (serve(archive), Place::new());
    let mut second = None;
    let first = get(&server.url(), &place.output(), &options(), &mut |_| {
        second.get_or_insert_with(|| place.get(&server, &options()));
        ControlFlow::Continue(())
    });
    first.expect("a file");
    assert!(
        matches!(second, Some(Err(GetError::Busy { .. }))),
        "{second:?}"
    );
    place.assert_is(&release(2));
}
