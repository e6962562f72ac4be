//! Catalogs that no honest writer makes.

use std::{
    fs::{self, File},
    ops::ControlFlow,
    os::unix::fs::symlink,
    path::Path,
};

use super::*;
use crate::{
    archive::CacheBytes,
    create::by_hand::{archive_with, archive_with_digest_of},
    format::catalog::{Entry, EntryKind},
};

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry {
        path: path.into(),
        kind,
        mode: 0o755,
        mtime_s: 0,
        mtime_ns: 0,
    }
}

fn file(path: &str) -> Entry {
    entry(path, EntryKind::File { bytes: 4 })
}

fn folder(path: &str) -> Entry {
    entry(path, EntryKind::Folder)
}

fn symbolic_link(path: &str, target: &str) -> Entry {
    let target = target.into();
    entry(path, EntryKind::SymbolicLink { target })
}

fn hard_link(path: &str, target: &str) -> Entry {
    let target = target.into();
    entry(path, EntryKind::HardLink { target })
}

/// Extracts what `entries` say to `top/target`.
fn extracted(top: &Path, entries: &[Entry]) -> Result<Extracted, ExtractError> {
    extracted_paths(top, entries, &[])
}

/// The same of some paths alone.
fn extracted_paths(
    top: &Path,
    entries: &[Entry],
    paths: &[&str],
) -> Result<Extracted, ExtractError> {
    let files = entries.iter();
    let files = files.filter(|entry| matches!(entry.kind, EntryKind::File { .. }));
    let archive = archive_with(&b"evil".repeat(files.count()), entries);
    let archive = Archive::open(archive, CacheBytes::default()).expect("an archive");
    let options = ExtractOptions {
        paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
        ..ExtractOptions::default()
    };
    extract(&archive, &top.join("target"), &options, &mut |_| {
        ControlFlow::Continue(())
    })
}

/// All names below `top`.
fn names(top: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for below in fs::read_dir(folder).expect("a folder") {
            let path = below.expect("readable").path();
            names.push(path.strip_prefix(top).expect("below").display().to_string());
            if fs::symlink_metadata(&path).expect("there").is_dir() {
                folders.push(path);
            }
        }
    }
    names.sort();
    names
}

#[test]
fn catalogs_that_lead_out_or_contradict_themselves_leave_nothing_anywhere() {
    let deep = format!("{}/x", "d".repeat(5000));
    for hostile in [
        vec![file("../out")],
        vec![file("/tmp/out")],
        vec![folder("a"), file("a/../../out")],
        vec![file("a/..")],
        vec![file("a//b")],
        vec![file("./a")],
        vec![file("a\0b")],
        vec![file(&deep)],
        vec![file("a"), file("a")],
        vec![file("a"), folder("a")],
        vec![file("a"), file("")],
        vec![symbolic_link("a", ".."), file("a/out")],
        vec![file("b"), hard_link("a", "b"), file("a/out")],
        vec![file("a/b"), symbolic_link("a", "..")],
        vec![hard_link("a", "../outside")],
        vec![hard_link("a", "b"), file("b")],
        vec![folder("b"), hard_link("a", "b")],
        vec![symbolic_link("b", "../outside"), hard_link("a", "b")],
        vec![file("a"), symbolic_link("b", "")],
    ] {
        let top = tempfile::tempdir().expect("a folder");
        fs::write(top.path().join("outside"), "good").expect("written");
        let error = extracted(top.path(), &hostile).expect_err("refused");
        assert!(
            matches!(error, ExtractError::Read(_)),
            "{hostile:?}: {error}"
        );
        assert_eq!(names(top.path()), ["outside"], "{hostile:?}");
    }
}

#[test]
fn lengths_that_do_not_add_up_to_the_content_are_refused() {
    let top = tempfile::tempdir().expect("a folder");
    for lengths in [vec![3], vec![5], vec![u64::MAX, 5], vec![u64::MAX - 3, 8]] {
        let entries: Vec<Entry> = (lengths.iter().enumerate())
            .map(|(at, &bytes)| entry(&format!("f{at}"), EntryKind::File { bytes }))
            .collect();
        let archive = archive_with(b"evil", &entries);
        let archive = Archive::open(archive, CacheBytes::default()).expect("an archive");
        let options = ExtractOptions::default();
        let extracted = extract(&archive, &top.path().join("target"), &options, &mut |_| {
            ControlFlow::Continue(())
        });
        assert!(
            matches!(extracted, Err(ExtractError::Read(_))),
            "{lengths:?}"
        );
        assert!(names(top.path()).is_empty(), "{lengths:?}");
    }
}

#[test]
fn links_that_lead_out_are_made_and_nothing_is_written_through_them() {
    let top = tempfile::tempdir().expect("a folder");
    fs::write(top.path().join("outside"), "good").expect("written");
    let entries = [
        symbolic_link("link", "../outside"),
        symbolic_link("up", ".."),
        file("x"),
    ];
    extracted(top.path(), &entries).expect("no harm");
    // Once more, now that the links are there: what is in their place replaces them.
    extracted(top.path(), &[file("link"), file("x")]).expect("no harm");
    let is_link = |name: &str| {
        let path = top.path().join("target").join(name);
        fs::symlink_metadata(path).expect("there").is_symlink()
    };
    assert!(is_link("up") && !is_link("link"));
    let outside = fs::read_to_string(top.path().join("outside")).expect("there");
    assert_eq!(outside, "good");
    let expected = ["outside", "target", "target/link", "target/up", "target/x"];
    assert_eq!(names(top.path()), expected);
    // Below a link that is there, nothing.
    let error = extracted(top.path(), &[folder("up"), file("up/out")]).expect_err("a link");
    assert!(matches!(error, ExtractError::NoFolder { .. }), "{error}");
    // Nor if that folder itself is not asked for.
    let error = extracted_paths(top.path(), &[folder("up"), file("up/out")], &["up/out"])
        .expect_err("a link");
    assert!(matches!(error, ExtractError::NoFolder { .. }), "{error}");
    assert_eq!(names(top.path()), expected);
}

#[test]
fn content_without_the_digest_of_the_whole_gets_no_names() {
    let top = tempfile::tempdir().expect("a folder");
    let entries = [folder("a"), file("a/b"), symbolic_link("c", "a")];
    let archive = archive_with_digest_of(b"good", b"evil", &entries);
    let archive = Archive::open(archive, CacheBytes::default()).expect("an archive");
    let options = ExtractOptions::default();
    let extracted = extract(&archive, &top.path().join("target"), &options, &mut |_| {
        ControlFlow::Continue(())
    });
    let error = extracted.expect_err("another digest").to_string();
    assert!(error.contains("checksum of the content"), "{error}");
    assert!(names(top.path()).is_empty());
}

/// A record that says that there are temporary files in `folders`.
fn put_record(target: &Path, tag: &str, folders: &[&str]) -> File {
    let mut content = leftovers::RECORD_BEGINS.to_vec();
    content.extend(
        folders
            .iter()
            .flat_map(|folder| format!("{folder}\0").into_bytes()),
    );
    let path = target.join(format!(".refrain-{tag}"));
    fs::write(&path, content).expect("written");
    File::open(path).expect("there")
}

#[test]
fn what_a_killed_extraction_left_is_removed_by_the_next_one() {
    let top = tempfile::tempdir().expect("a folder");
    let target = top.path().join("target");
    fs::create_dir_all(target.join("a/b")).expect("made");
    let tag = "0123456789abcdef";
    let left = [
        format!(".refrain-{tag}-0"),
        format!("a/.refrain-{tag}-1"),
        format!("a/b/.refrain-{tag}-27"),
    ];
    for left in &left {
        fs::write(target.join(left), "half").expect("written");
    }
    let record = put_record(&target, tag, &["", "a", "a/b", "gone"]);
    // As long as somebody is at work on them, they stay.
    record.lock().expect("nobody has it");
    extracted(top.path(), &[file("x")]).expect("extracted");
    for left in &left {
        assert!(target.join(left).exists(), "{left}");
    }
    drop(record);
    // Of one that was killed while it wrote its record.
    for (tag, bytes) in [("0000000000000000", 0), ("0000000000000001", 10)] {
        let begun = &leftovers::RECORD_BEGINS[..bytes];
        fs::write(target.join(format!(".refrain-{tag}")), begun).expect("written");
    }
    extracted(top.path(), &[file("x")]).expect("extracted");
    let expected = ["target", "target/a", "target/a/b", "target/x"];
    assert_eq!(names(top.path()), expected);
}

#[test]
fn a_forged_record_removes_nothing_but_what_is_called_as_its_temporary_files_are() {
    let top = tempfile::tempdir().expect("a folder");
    let target = top.path().join("target");
    fs::create_dir_all(target.join("a")).expect("made");
    fs::create_dir_all(top.path().join("outside")).expect("made");
    symlink("../outside", target.join("link")).expect("made");
    let tag = "0123456789abcdef";
    let kept = [
        format!("outside/.refrain-{tag}-0"),
        format!("target/a/.refrain-{tag}-"),
        format!("target/a/.refrain-{tag}-1x"),
        format!("target/a/.refrain-{tag}.1"),
        format!("target/a/x.refrain-{tag}-1"),
        "target/a/.refrain-0123456789abcdee-1".to_owned(),
        "target/a/.refrain-1".to_owned(),
        "target/.refrain-0123456789abcde".to_owned(),
        "target/.refrain-0123456789abcdefx".to_owned(),
        "target/.refrain-0123456789abcdeg".to_owned(),
        "target/.refrain-0000000000000000".to_owned(),
    ];
    for kept in &kept {
        fs::write(top.path().join(kept), "good").expect("written");
    }
    // A folder of that name is not removed, nor is a record that is a link followed.
    fs::create_dir(target.join(format!("a/.refrain-{tag}-2"))).expect("made");
    fs::write(top.path().join("outside/record"), "a\0").expect("written");
    symlink(
        "../outside/record",
        target.join(".refrain-aaaaaaaaaaaaaaaa"),
    )
    .expect("made");
    fs::write(target.join("a/.refrain-aaaaaaaaaaaaaaaa-1"), "good").expect("written");
    let before = names(top.path());
    put_record(
        &target,
        tag,
        &["../outside", "link", "/", "a/../../outside", "a", "a/", "."],
    );
    extracted(top.path(), &[file("x")]).expect("extracted");
    let mut after = names(top.path());
    after.retain(|name| name != "target/x");
    assert_eq!(after, before);
}
