//! How what was read is laid out in an archive.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{Cursor, Write},
    time::{Duration, SystemTime},
};

use super::by_hand::archive_with;
use super::*;
use crate::{
    archive::{Archive, CacheBytes, FileSource},
    format::{
        catalog::{Entry, EntryKind},
        header::{Encryption, Header, PlainSummary},
    },
};

const FILES: u64 = 60;
const FILE_BYTES: usize = 3000;

pub(super) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut noise);
    noise
}

/// When a file was written: two times take turns.
fn mtime(file: u64) -> u64 {
    1_700_000_000 + file % 2
}

/// The frames that chunks of content are in, of one half and of the other: each file is a chunk.
fn frames_of_halves(input: Input) -> [HashSet<u64>; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("archive");
    let options = CreateOptions {
        frame_bytes: 16 << 10,
        ..CreateOptions::default()
    };
    let go_on = &mut |_: CreateProgress| ControlFlow::Continue(());
    create(vec![input], Output::File(path.clone()), &options, go_on).expect("an archive");
    let source = FileSource::new(File::open(path).expect("a file")).expect("a file");
    let archive = Archive::open(source, CacheBytes::default()).expect("an archive");
    let parts = archive.root().stream(Stream::Content).lengths.rows().len();
    let places: Vec<_> = (0..parts)
        .flat_map(|part| archive.chunk_places(Stream::Content, part).expect("a part"))
        .collect();
    assert_eq!(places.len() as u64, FILES);
    let half = |of| {
        let places = places.iter().skip(of).step_by(2);
        places.map(|(_, place)| place.frame).collect()
    };
    [half(0), half(1)]
}

fn assert_are_apart([one, other]: [HashSet<u64>; 2]) {
    assert!(one.len() > 4 && other.len() > 4);
    // What is left in the end may be together.
    assert!(one.intersection(&other).count() <= 1);
}

#[test]
fn files_of_a_folder_that_were_written_together_are_in_frames_together() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in 0..FILES {
        let path = folder.path().join(format!("{file:02}"));
        fs::write(&path, noise(file, FILE_BYTES)).expect("room");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(mtime(file));
        let file = File::options().write(true).open(path).expect("a file");
        file.set_modified(time).expect("a file system with times");
    }
    assert_are_apart(frames_of_halves(Input::Path(folder.path().to_owned())));
}

#[test]
fn members_of_a_tar_archive_that_were_written_together_are_in_frames_together() {
    let mut tar = tar::Builder::new(Vec::new());
    for file in 0..FILES {
        let mut header = tar::Header::new_ustar();
        header.set_size(FILE_BYTES as u64);
        header.set_mtime(mtime(file));
        let content = noise(file, FILE_BYTES);
        tar.append_data(&mut header, format!("{file:02}"), &content[..])
            .expect("memory takes it");
    }
    let tar = tar.into_inner().expect("memory takes it");
    assert_are_apart(frames_of_halves(Input::Stream(Box::new(Cursor::new(tar)))));
}

/// The files that are told to have changed, if `change` is done to the only one in the middle.
fn changed_by(change: fn(&File)) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, vec![7; 3 * PIECE_BYTES]).expect("room");
    let file = File::options().write(true).open(&path).expect("there");
    // Whatever clock the file system has, a change shows.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let set = file.set_modified(long_ago);
    set.expect("a file system with times");
    let mut changed = 0;
    let inputs = vec![Input::Path(path.clone())];
    let output = Output::File(folder.path().join("archive"));
    let options = CreateOptions::default();
    create(inputs, output, &options, &mut |now| {
        match now.left_out {
            Some(LeftOut::Changed { path: told }) if told == path => changed += 1,
            Some(other) => panic!("{other:?}"),
            None if now.plain_bytes == PIECE_BYTES as u64 => change(&file),
            None => {}
        }
        ControlFlow::Continue(())
    })
    .expect("an archive");
    changed
}

#[test]
fn a_file_that_changes_while_it_is_read_is_told() {
    assert_eq!(changed_by(|_| {}), 0);
    let shorter = |file: &File| file.set_len(PIECE_BYTES as u64).expect("shorter");
    assert_eq!(changed_by(shorter), 1);
    let other = |mut file: &File| file.write_all(b"other").expect("written");
    assert_eq!(changed_by(other), 1);
}

#[test]
fn each_number_of_the_header_is_held_against_the_table() {
    let entry = Entry {
        path: Vec::new(),
        kind: EntryKind::File { bytes: 7 },
        mode: 0,
        mtime_s: 0,
        mtime_ns: 0,
    };
    let archive = archive_with(b"content", &[entry]);
    let archive = Archive::open(archive, CacheBytes::default()).expect("an archive");
    let (root, header) = (archive.root(), archive.header());
    assert_eq!(root.check_header(header), Ok(()));
    let lies: [fn(&mut Header); 7] = [
        |header| header.chunks += 1,
        |header| header.references += 1,
        |header| header.summary.plain_bytes += 1,
        |header| header.summary.unique_bytes += 1,
        |header| header.summary.stored_bytes += 1,
        |header| header.summary.entries += 1,
        |header| header.summary.digest[31] ^= 1,
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut header = header.clone();
        lie(&mut header);
        assert!(root.check_header(&header).is_err(), "{number}");
    }
    // If it is encrypted, the private root says what the header does not.
    let mut header = header.clone();
    header.encryption = Some(Encryption {
        is_padded: false,
        has_group_secret: false,
    });
    header.summary = PlainSummary::default();
    assert_eq!(root.check_header(&header), Ok(()));
    let lies: [fn(&mut PlainSummary); 2] = [
        |summary| summary.unique_bytes += 1,
        |summary| summary.stored_bytes += 1,
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut root = root.clone();
        lie(&mut root.summary);
        assert!(root.check_header(&header).is_err(), "{number}");
    }
}
