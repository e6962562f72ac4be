//! A reader in Python that was written from `docs/czip-format.md` alone finds in every archive what
//! ours finds. So the page is enough.
//!
//! Without `python3` and `zstd` these tests say that they were skipped; with
//! `REFRAIN_REQUIRE_PROGRAMS=1` they fail.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use refrain_czip::{
    archive::{Archive, CacheBytes},
    crypt::unwrap,
};

use crate::vectors::{features, kept, programs::are_installed};

/// Runs the reader; of an encrypted archive with its keys, if `with_keys`.
fn read(archive: &Path, into: Option<&Path>, with_keys: bool) -> Output {
    let reader = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/suite/vectors/second_reader.py"
    );
    Command::new("python3")
        .arg(reader)
        .arg(archive)
        .args(into)
        .args(if with_keys { keys(archive) } else { Vec::new() })
        .output()
        .unwrap()
}

/// The keys of an archive as the reader is told them: the keys section is age's.
fn keys(archive: &Path) -> Vec<String> {
    let bytes = fs::read(archive).unwrap();
    let opened = Archive::open(bytes.clone(), CacheBytes::default()).unwrap();
    let (header, place) = (opened.header(), opened.header().keys);
    let Some(how) = header.encryption else {
        return Vec::new();
    };
    let section = &bytes[place.offset as usize..][..place.bytes as usize];
    let key = unwrap(section, &features::identities(), &mut |_| None).unwrap();
    let hex: String = key
        .as_bytes()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    let mut keys = vec![format!("--archive-key={hex}")];
    if how.has_group_secret {
        keys.push(format!("--group-secret={}", features::SECRET));
    }
    keys
}

#[track_caller]
fn assert_reads(archive: &Path, into: Option<&Path>, expected: &str) {
    let output = read(archive, into, true);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", archive.display());
    let found = String::from_utf8_lossy(&output.stdout);
    assert_eq!(found, expected, "{}", archive.display());
}

#[test]
fn the_second_reader_finds_in_every_vector_what_ours_does() {
    if !are_installed(&["python3", "zstd"]) {
        return;
    }
    for feature in features::all() {
        let (_, expected) = kept::vector(&feature);
        let archive = kept::testdata(&format!("{}.czip", feature.name));
        assert_reads(&archive, None, &expected);
    }
}

#[test]
fn the_second_reader_finds_in_todays_archives_what_it_finds_in_the_vectors() {
    if !are_installed(&["python3", "zstd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for feature in features::all() {
        let (_, expected) = kept::vector(&feature);
        let archive = folder.path().join(feature.name);
        fs::write(&archive, feature.make()).unwrap();
        assert_reads(&archive, None, &expected);
    }
}

#[test]
fn the_second_reader_extracts_files_folders_and_links() {
    if !are_installed(&["python3", "zstd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let all = features::all();
    let feature = all.iter().find(|one| one.name == "tree").unwrap();
    let (_, expected) = kept::vector(feature);
    assert_reads(&kept::testdata("tree.czip"), Some(folder.path()), &expected);
    let tree = folder.path().join("tree");
    let first = fs::read(tree.join("a")).unwrap();
    assert_eq!(first, features::text(1500, 6));
    assert_eq!(fs::read(tree.join("zz")).unwrap(), first);
    let target = fs::read_link(tree.join("link")).unwrap();
    assert_eq!(target, Path::new("../outside"));
    assert!(tree.join("folder/empty").is_dir());
}

#[test]
fn the_second_reader_refuses_any_byte_of_another_value() {
    if !are_installed(&["python3", "zstd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    // Encrypted ones without their keys: of them all is checked, too.
    for name in ["none", "encrypted-shared"] {
        let bytes = fs::read(kept::testdata(&format!("{name}.czip"))).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 16) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, damaged).unwrap();
            let output = read(&path, None, false);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == Some(1) && said.starts_with("refused: "),
                "{name}, byte {at}: {said}"
            );
        }
    }
}
