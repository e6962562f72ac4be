//! The ends of mounts.

use std::{
    fs::{self, File},
    io::Cursor,
    path::Path,
    process::Command,
};

use refrain_czip::{
    create::Input,
    mount::{MountError, MountOptions, mount},
};

use crate::mount::mounting::{Mount, archive_of, noise, open, read};

fn stream() -> (tempfile::TempDir, std::path::PathBuf) {
    archive_of(vec![Input::Stream(Box::new(Cursor::new(noise(
        1, 5_000_000,
    ))))])
}

#[test]
fn what_is_open_can_be_read_until_it_is_closed() {
    let (_archive, path) = stream();
    let Some(mut mount) = Mount::new(open(&path)) else {
        return;
    };
    let file = File::open(mount.path("content")).unwrap();
    mount.unmounter.unmount().unwrap();
    assert_eq!(fs::read_dir(mount.at.path()).unwrap().count(), 0);
    assert!(mount.is_served());
    assert!(read(&file, 4_000_000, 9).unwrap() == noise(1, 5_000_000)[4_000_000..4_000_009]);
    drop(file);
    mount.join().unwrap();
    mount
        .unmounter
        .unmount()
        .expect("there is nothing left to do");
}

#[test]
fn a_later_mount_that_gets_the_number_is_not_taken_for_it() {
    let (_archive, path) = stream();
    let Some(mut first) = Mount::new(open(&path)) else {
        return;
    };
    first.unmounter.unmount().unwrap();
    let second = Mount::new(open(&path)).unwrap();
    first.unmounter.unmount().unwrap();
    first.join().unwrap();
    let third = Mount::new(open(&path)).unwrap();
    first.unmounter.unmount().unwrap();
    for mount in [second, third] {
        assert!(mount.path("content").exists());
    }
}

#[test]
fn who_unmounts_it_from_outside_ends_it() {
    let (_archive, path) = stream();
    let Some(mut mount) = Mount::new(open(&path)) else {
        return;
    };
    let at = mount.at.path().to_owned();
    let ended = Command::new("umount").arg(&at).status();
    let ended = match ended {
        Ok(status) if status.success() => Ok(status),
        _ => Command::new("fusermount3").arg("-u").arg(&at).status(),
    };
    assert!(ended.expect("a program that unmounts").success());
    mount.join().unwrap();
}

#[test]
fn tables_of_mounts_say_what_it_is() {
    let (_archive, path) = stream();
    let Some(mount) = Mount::new(open(&path)) else {
        return;
    };
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let at = mount.at.path().to_str().unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(at))
        .expect("a line");
    assert!(
        line.starts_with("a\\040test_\\040of\\040mounting "),
        "{line}"
    );
    for option in ["ro", "nosuid", "nodev", "default_permissions"] {
        let mut options = line.split([' ', ',']);
        assert!(options.any(|other| other == option), "{line}: {option}");
    }
}

#[test]
fn what_is_no_folder_is_not_mounted_on() {
    let (_archive, path) = stream();
    for at in [Path::new("/nowhere/at/all"), &path] {
        let options = MountOptions {
            name: String::new(),
            allow_other: false,
            covers_mount: false,
            failed: Box::new(|_| {}),
        };
        let outcome = mount(open(&path), at, options);
        assert!(matches!(outcome, Err(MountError::Place { .. })));
    }
}
