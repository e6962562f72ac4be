//! What others may have put where a get keeps what it has, in a folder that all may write to.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    path::PathBuf,
    process::Command,
};

use refrain_czip::get::GetError;
use refrain_czip_format::header::Profile;
use rustix::process::geteuid;

use crate::get::{Place, archive_of, creating, options, release, serve, server::Ending};

/// What stands for somebody's file that the get may write to, and its owner must not lose.
const PRECIOUS: &[u8] = b"precious";

/// All files that a get has in its folder.
const FILES: [&str; 7] = [
    "lock",
    "header",
    "archive",
    "chunks",
    "whole",
    "archive.old",
    "chunks.old",
];

#[track_caller]
fn assert_refused(place: &Place) {
    let server = serve(archive_of(&release(2), &creating(Profile::Shared), false));
    for keeps_archive in [false, true] {
        let mut options = options();
        options.keeps_archive = keeps_archive;
        let error = place.get(&server, &options).expect_err("it is not safe");
        assert!(matches!(error, GetError::UnsafePart { .. }), "{error}");
        assert!(error.to_string().contains("output.part"), "{error}");
    }
    assert_eq!(server.requests().len(), 0);
    assert!(!place.output().exists());
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    for mode in [0o777, 0o770, 0o707, 0o1777, 0o720] {
        let place = Place::new();
        fs::create_dir(place.part()).expect("made");
        fs::set_permissions(place.part(), Permissions::from_mode(mode)).expect("ours");
        assert_refused(&place);
    }
}

#[test]
fn a_folder_of_another_user_is_refused() {
    if !geteuid().is_root() {
        println!("skipped: only root can make a folder of another user");
        return;
    }
    let place = Place::new();
    fs::create_dir(place.part()).expect("made");
    chown(place.part(), Some(65534), None).expect("root may");
    assert_refused(&place);
}

#[test]
fn a_link_or_a_file_in_the_place_of_the_folder_is_refused() {
    let place = Place::new();
    let elsewhere = place.part().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    symlink(&elsewhere, place.part()).expect("made");
    assert_refused(&place);
    assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0);
    fs::remove_file(place.part()).expect("there");
    fs::write(place.part(), PRECIOUS).expect("written");
    assert_refused(&place);
    assert_eq!(fs::read(place.part()).expect("there"), PRECIOUS);
}

/// Whatever became of the get.
fn get_past(plant: impl Fn(&PathBuf)) -> Vec<Result<(), GetError>> {
    let content = release(2);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let mut got = Vec::new();
    for name in FILES {
        for keeps_archive in [false, true] {
            let place = Place::new();
            fs::create_dir(place.part()).expect("made");
            plant(&place.part().join(name));
            let mut options = options();
            options.keeps_archive = keeps_archive;
            let outcome = place.get(&serve(archive.clone()), &options);
            if outcome.is_ok() {
                let expected = if keeps_archive { &archive } else { &content };
                assert!(
                    fs::read(place.output()).expect("there") == *expected,
                    "{name}"
                );
                assert!(
                    fs::symlink_metadata(place.output())
                        .expect("there")
                        .is_file()
                );
            }
            got.push(outcome.map(|_| ()));
        }
    }
    got
}

#[test]
fn no_link_in_the_folder_is_followed() {
    let victims = tempfile::tempdir().expect("a folder");
    let victim = victims.path().join("victim");
    fs::write(&victim, PRECIOUS).expect("written");
    let got = get_past(|path| symlink(&victim, path).expect("made"));
    assert_eq!(fs::read(&victim).expect("there"), PRECIOUS);
    assert!(got.iter().any(Result::is_ok));
    // One that leads nowhere makes nothing there.
    let absent = victims.path().join("absent");
    get_past(|path| symlink(&absent, path).expect("made"));
    assert!(!absent.exists());
}

#[test]
fn pipes_sockets_and_folders_in_it_are_not_waited_for() {
    let got = get_past(|path| {
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo is there").success());
    });
    assert!(got.iter().any(Result::is_ok));
    get_past(|path| drop(UnixListener::bind(path).expect("made")));
    get_past(|path| fs::create_dir(path).expect("made"));
}

#[test]
fn the_folder_is_for_its_owner_only_and_goes_with_all_that_was_in_it() {
    let content = release(2);
    let archive = archive_of(&content, &creating(Profile::Shared), false);
    let place = Place::new();
    let mut options = options();
    options.remote.retries = 0;
    let file = crate::get::file(archive.clone());
    let dying = crate::get::Server::start(move |request| {
        let reply = file.reply(request);
        match request.number {
            0 => reply,
            _ => reply.ending(Ending::Cut(1000)),
        }
    });
    place.get(&dying, &options).expect_err("it breaks off");
    let there = fs::metadata(place.part()).expect("there");
    assert_eq!(there.mode() & 0o777, 0o700);
    place.get(&serve(archive), &options).expect("a file");
    place.assert_is(&content);
}
