//! What was archived is there again.

use std::{
    ffi::OsStr,
    fs::{self, File, FileTimes, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use proptest::{collection::vec, prelude::*};

use super::{archive_of, extracted, go_on, seen};

/// Something in a folder.
#[derive(Clone, Debug)]
enum Made {
    File {
        bytes: Vec<u8>,
        mode: u32,
    },
    Folder {
        mode: u32,
    },
    SymbolicLink {
        target: Vec<u8>,
    },
    /// Another name of the file made before it, if there is one.
    HardLink,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let odd = prop_oneof![Just(b'\n'), Just(b' '), Just(0xff), Just(b'\\'), 1..=255_u8];
    let component = vec(prop_oneof![Just(b'a'), Just(b'b'), odd], 1..4);
    component.prop_filter("a name", |name| {
        !name.contains(&b'/') && name != b"." && name != b".."
    })
}

fn made() -> impl Strategy<Value = Made> {
    let bytes = prop_oneof![
        Just(Vec::new()),
        vec(any::<u8>(), 1..2000),
        (60_000..200_000_usize).prop_map(|bytes| vec![0; bytes]),
    ];
    let mode = prop_oneof![Just(0o644), Just(0o400), Just(0o777), Just(0o600)];
    prop_oneof![
        (bytes, mode).prop_map(|(bytes, mode)| Made::File { bytes, mode }),
        prop_oneof![Just(0o755), Just(0o700), Just(0o500)].prop_map(|mode| Made::Folder { mode }),
        vec(1..=255_u8, 1..20).prop_map(|target| Made::SymbolicLink { target }),
        Just(Made::HardLink),
    ]
}

/// Makes all in `top`, each in one of the folders made before it. What cannot be made is not.
fn make(top: &Path, all: &[(Vec<u8>, usize, Made)]) {
    fs::create_dir(top).expect("made");
    let mut folders = vec![top.to_owned()];
    let mut files = Vec::new();
    for (name, parent, made) in all {
        let path = folders[parent % folders.len()].join(OsStr::from_bytes(name));
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match made {
            Made::File { bytes, .. } => {
                fs::write(&path, bytes).expect("written");
                files.push(path.clone());
            }
            Made::Folder { .. } => {
                fs::create_dir(&path).expect("made");
                folders.push(path.clone());
            }
            Made::SymbolicLink { target } => {
                symlink(OsStr::from_bytes(target), &path).expect("made");
            }
            Made::HardLink => {
                if let Some(file) = files.last() {
                    fs::hard_link(file, &path).expect("made");
                }
            }
        }
        if let Made::File { mode, .. } | Made::Folder { mode } = made {
            fs::set_permissions(&path, Permissions::from_mode(*mode)).expect("ours");
            if !is_root() {
                fs::set_permissions(&path, Permissions::from_mode(mode | 0o600)).expect("ours");
            }
        }
    }
    // Times last, deepest first.
    for (at, path) in files.iter().chain(folders.iter().rev()).enumerate() {
        let time = UNIX_EPOCH + Duration::new(1_000_000_000 + at as u64, 7 + at as u32);
        let file = File::open(path).expect("readable");
        file.set_times(FileTimes::new().set_modified(time))
            .expect("ours");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_folder_is_extracted_as_it_was_and_so_is_it_over_itself(
        all in vec((name(), any::<usize>(), made()), 0..12)
    ) {
        let top = tempfile::tempdir().expect("a folder");
        let source = top.path().join("source");
        make(&source, &all);
        let archive = archive_of(&source);
        let target = top.path().join("target");
        for _ in 0..2 {
            let extracted = extracted(&archive, &target, &[], &mut go_on).expect("extracted");
            prop_assert!(extracted.is_whole);
            let mut expected = seen(&source);
            let mut found = seen(&target.join("source"));
            // The links' own times: nothing sets them before they are archived.
            for seen in expected.iter_mut().chain(&mut found) {
                if seen.is_link {
                    seen.mtime.1 = 0;
                }
            }
            prop_assert_eq!(expected, found);
        }
    }
}

#[test]
fn a_folder_that_nobody_may_write_to_is_filled_and_then_closed() {
    let top = tempfile::tempdir().expect("a folder");
    let source = top.path().join("source");
    fs::create_dir_all(source.join("closed")).expect("made");
    fs::write(source.join("closed/file"), "content").expect("written");
    let closed = Permissions::from_mode(0o555);
    fs::set_permissions(source.join("closed"), closed.clone()).expect("ours");
    let archive = archive_of(&source);
    let target = top.path().join("target");
    extracted(&archive, &target, &[], &mut go_on).expect("extracted");
    let there = target.join("source/closed");
    let mode = fs::metadata(&there).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o555);
    assert_eq!(
        fs::read_to_string(there.join("file")).expect("there"),
        "content"
    );
    for folder in [source.join("closed"), there] {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("ours");
    }
}

#[test]
fn nothing_that_is_extracted_runs_as_another_user() {
    let top = tempfile::tempdir().expect("a folder");
    let source = top.path().join("source");
    fs::create_dir_all(source.join("folder")).expect("made");
    fs::write(source.join("program"), "#!").expect("written");
    for name in ["folder", "program"] {
        let special = Permissions::from_mode(0o7755);
        fs::set_permissions(source.join(name), special).expect("ours");
    }
    let target = top.path().join("target");
    extracted(&archive_of(&source), &target, &[], &mut go_on).expect("extracted");
    for name in ["folder", "program"] {
        let there = fs::metadata(target.join("source").join(name)).expect("there");
        assert_eq!(there.permissions().mode() & 0o7777, 0o755, "{name}");
    }
}

#[test]
fn only_what_is_asked_for_is_extracted_and_a_link_alone_is_its_file() {
    let top = tempfile::tempdir().expect("a folder");
    let source = top.path().join("source");
    fs::create_dir_all(source.join("a")).expect("made");
    fs::create_dir_all(source.join("ab")).expect("made");
    for (name, content) in [("a/one", "1"), ("a/two", "22"), ("ab/three", "333")] {
        fs::write(source.join(name), content).expect("written");
    }
    for name in ["ab/two again", "ab/two once more"] {
        fs::hard_link(source.join("a/two"), source.join(name)).expect("made");
    }
    let archive = archive_of(&source);
    let extracted_names = |paths: &[&str]| {
        let target = top.path().join("target");
        let extracted = extracted(&archive, &target, paths, &mut go_on).expect("extracted");
        assert!(!extracted.is_whole, "its digest cannot be checked");
        let mut names = Vec::new();
        for seen in seen(&target) {
            let content = seen
                .content
                .map(|content| String::from_utf8(content).expect("text"));
            names.push((seen.path.display().to_string(), content, seen.links));
        }
        fs::remove_dir_all(target).expect("ours");
        names
    };
    let there = |name: &str, content: Option<&str>, links| {
        (name.to_owned(), content.map(str::to_owned), links)
    };
    assert_eq!(
        extracted_names(&["source/a/"]),
        [
            there("source", None, 1),
            there("source/a", None, 1),
            there("source/a/one", Some("1"), 1),
            there("source/a/two", Some("22"), 1),
        ]
    );
    assert_eq!(
        extracted_names(&["source/ab"]),
        [
            there("source", None, 1),
            there("source/ab", None, 1),
            there("source/ab/three", Some("333"), 1),
            there("source/ab/two again", Some("22"), 2),
            there("source/ab/two once more", Some("22"), 2),
        ]
    );
}
