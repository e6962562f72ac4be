//! Folders that something wanted lies in, and are not wanted themselves.

use std::{
    fs::{self, Permissions},
    ops::ControlFlow,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use refrain_czip::extract::ExtractError;

use super::{archive_of, extracted, go_on};

/// An archive of `s/open/private/deep/file`, with modes and times of their own.
fn archive(top: &Path) -> Vec<u8> {
    let deep = top.join("s/open/private/deep");
    fs::create_dir_all(&deep).expect("made");
    fs::write(deep.join("file"), "content").expect("written");
    for (folder, mode, age_s) in [
        ("s/open/private/deep", 0o555, 4000),
        ("s/open/private", 0o700, 3000),
        ("s/open", 0o775, 2000),
        ("s", 0o751, 1000),
    ] {
        let folder = top.join(folder);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(age_s);
        let opened = fs::File::open(&folder).expect("there");
        opened.set_modified(time).expect("ours");
        fs::set_permissions(folder, Permissions::from_mode(mode)).expect("ours");
    }
    archive_of(&top.join("s"))
}

/// The modes and times of the folders down to `deep`.
fn folders(target: &Path) -> [(u32, i64); 4] {
    ["s", "s/open", "s/open/private", "s/open/private/deep"].map(|folder| {
        let metadata = fs::metadata(target.join(folder)).expect("there");
        (metadata.mode() & 0o7777, metadata.mtime())
    })
}

#[test]
fn folders_above_what_is_wanted_are_as_the_archive_says() {
    let top = tempfile::tempdir().expect("a folder");
    let archive = archive(top.path());
    for path in [
        "s",
        "s/open",
        "s/open/private",
        "s/open/private/deep",
        "s/open/private/deep/file",
    ] {
        let target = top.path().join("target").join(path.replace('/', "-"));
        let done = extracted(&archive, &target, &[path], &mut go_on).expect("extracted");
        let expected = [(0o751, 1000), (0o775, 2000), (0o700, 3000), (0o555, 4000)];
        assert_eq!(folders(&target), expected, "{path}");
        assert_eq!(done.folders, 5 - path.split('/').count() as u64, "{path}");
    }
}

#[test]
fn folders_above_what_is_wanted_that_are_there_stay_as_they_are() {
    let top = tempfile::tempdir().expect("a folder");
    let archive = archive(top.path());
    let target = top.path().join("target");
    fs::create_dir_all(target.join("s/open")).expect("made");
    fs::set_permissions(target.join("s/open"), Permissions::from_mode(0o711)).expect("ours");
    let file = "s/open/private/deep/file";
    extracted(&archive, &target, &[file], &mut go_on).expect("extracted");
    let [top_folder, open, private, deep] = folders(&target);
    assert!(top_folder.1 > 4000, "made by somebody else");
    assert_eq!(open.0, 0o711);
    assert_eq!((private, deep), ((0o700, 3000), (0o555, 4000)));
}

#[test]
fn if_one_cannot_have_its_name_all_is_as_it_was() {
    let top = tempfile::tempdir().expect("a folder");
    let source = top.path().join("s");
    fs::create_dir_all(source.join("a")).expect("made");
    for (name, content) in [
        ("a/file", "content"),
        ("b", "new"),
        ("c", "new"),
        ("z", "more"),
    ] {
        fs::write(source.join(name), content).expect("written");
    }
    symlink("b", source.join("link")).expect("made");
    let archive = archive_of(&source);
    let target = top.path().join("target");
    fs::create_dir_all(target.join("s")).expect("made");
    fs::write(target.join("s/b"), "old").expect("written");
    symlink("nowhere", target.join("s/link")).expect("made");
    let failed = extracted(&archive, &target, &[], &mut |now| {
        if now.is_syncing {
            // Where a file is to be, behind all others.
            fs::create_dir(target.join("s/z")).expect("made");
            fs::write(target.join("s/z/inside"), "mine").expect("written");
        }
        ControlFlow::Continue(())
    });
    let error = failed.expect_err("a file cannot replace a folder");
    assert!(matches!(error, ExtractError::At { .. }), "{error}");
    let names = fs::read_dir(target.join("s")).expect("there");
    let mut names: Vec<_> = names.map(|name| name.expect("there").file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "link", "z"]);
    let content = |name: &str| fs::read_to_string(target.join("s").join(name)).expect("there");
    assert_eq!(
        (content("b"), content("z/inside")),
        ("old".into(), "mine".into())
    );
    let leads_to = fs::read_link(target.join("s/link")).expect("there");
    assert_eq!(leads_to, Path::new("nowhere"));
}
