//! Files of others as history.

use std::{fs, io::Write, os::unix::fs::symlink, path::Path};

use refrain_codec::chunk::{hash::ChunkHasher, stream::StreamChunks};
use refrain_codec::marker::PackMask;
use refrain_store::{
    AddProgress, AddReport, Appended, ChunkSource, DiskStore, ReadOnlyStore, StoreConfig,
    StoreError, VerifyReport, folder::Folder,
};

use crate::{
    common::{SPAWNING, chunking, config, open, read_all, realm},
    memory_folder::{Fault, MemoryFolder},
};

/// Bytes that no other seed has.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn cut(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mask = PackMask::with_bits(chunking().mask_bits).expect("valid");
    let mut cutter = StreamChunks::new(mask, chunking().bounds);
    let mut ranges = Vec::new();
    cutter.feed(bytes, &mut ranges);
    cutter.finish(&mut ranges);
    let chunk =
        |range: std::ops::Range<u64>| bytes[range.start as usize..range.end as usize].to_vec();
    ranges.into_iter().map(chunk).collect()
}

struct World {
    folder: tempfile::TempDir,
    store: Option<DiskStore>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("files/below")).expect("made");
        let mut world = Self {
            folder,
            store: None,
        };
        world.reopen();
        world
    }

    fn reopen(&mut self) {
        let _spawns_nothing = SPAWNING.read().expect("nobody panics");
        self.store = None;
        self.store = Some(DiskStore::open(&self.store_path(), config(40)).expect("it opens"));
    }

    fn store_path(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }

    fn store(&mut self) -> &mut DiskStore {
        self.store.as_mut().expect("it is open")
    }

    fn files(&self) -> std::path::PathBuf {
        self.folder.path().join("files")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.files().join(name);
        fs::write(&path, bytes).expect("written");
        // Not in the same instant as before, whatever the clock's steps are.
        let later =
            std::time::SystemTime::now() + std::time::Duration::from_secs(bytes.len() as u64);
        fs::File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_modified(later))
            .expect("touched");
    }

    fn add(&mut self) -> AddReport {
        let files = self.files();
        self.store()
            .add_files(&files, realm(0), false, &mut |_| ())
            .expect("added")
    }

    fn verify(&self) -> VerifyReport {
        let mut store = ReadOnlyStore::inspect(&self.store_path()).expect("it opens");
        store.verify(&mut |_| ())
    }

    /// What the store reads onward after the first chunk of these bytes.
    fn follows(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let first = ChunkHasher::default().digest(&cut(bytes)[0]);
        let places = self.store().places_after(realm(0), &first);
        places
            .first()
            .map_or(Vec::new(), |&place| read_all(self.store(), place))
    }
}

#[test]
fn files_are_history_and_only_their_metadata_is_kept() {
    let mut world = World::new();
    let (one, two) = (content(1, 300_000), content(2, 100_000));
    world.write("one", &one);
    world.write("below/two", &two);
    world.write("empty", b"");
    symlink("one", world.files().join("link")).expect("linked");
    let mut told = Vec::new();
    let files = world.files();
    let report = world
        .store()
        .add_files(&files, realm(0), false, &mut |progress| {
            told.push(*progress)
        })
        .expect("added");
    assert_eq!((report.added_files, report.added_bytes), (2, 400_000));
    assert_eq!((report.empty_files, report.symlinks), (1, 1));
    let last = told.last().expect("at least one");
    assert_eq!((last.bytes, last.bytes_total), (400_000, 400_000));
    assert_eq!((last.files, last.files_total), (3, 3));
    for _ in 0..2 {
        assert_eq!(world.follows(&one), cut(&one)[1..]);
        assert_eq!(world.follows(&two), cut(&two)[1..]);
        let stat = world.store().stat();
        assert_eq!((stat.files, stat.disk.chunks), (2, 0));
        assert_eq!(stat.chunks, report.added_chunks);
        world.reopen();
    }

    // A flow that brings the same is known, and in no other realm.
    let recipe = world.store().begin(realm(0), None);
    let other = world.store().begin(realm(1), None);
    let chunk = &cut(&one)[0];
    let digest = ChunkHasher::default().digest(chunk);
    let known = world
        .store()
        .append(recipe, &digest, chunk)
        .expect("appended");
    assert_eq!(known, Appended::Known);
    let stored = world
        .store()
        .append(other, &digest, chunk)
        .expect("appended");
    assert_eq!(stored, Appended::Stored);
}

#[test]
fn a_file_that_changed_is_noticed_and_never_delivered_from() {
    let mut world = World::new();
    let (one, two) = (content(1, 50_000), content(2, 50_000));
    world.write("one", &one);
    world.write("two", &two);
    world.add();
    let mut changed = one.clone();
    changed[40_000] ^= 1;
    world.write("one", &changed);
    assert_eq!(world.follows(&one), Vec::<Vec<u8>>::new());
    assert_eq!(world.follows(&two), cut(&two)[1..]);
    assert_eq!(world.store().stat().changed_files, 1);

    // One that the system says nothing of: its digests tell.
    let path = world.files().join("two");
    let modified = fs::metadata(&path)
        .and_then(|metadata| metadata.modified())
        .expect("there");
    let mut changed_two = two.clone();
    changed_two[49_999] ^= 1;
    let file = fs::File::options().write(true).open(&path).expect("there");
    std::os::unix::fs::FileExt::write_all_at(&file, &changed_two, 0).expect("written");
    file.set_modified(modified).expect("touched");
    world.reopen();
    let followed = world.follows(&two);
    assert_eq!(followed, cut(&two)[1..cut(&two).len() - 1]);
    let stat = world.store().stat();
    assert_eq!((stat.changed_files, stat.damaged), (1, 0));
}

/// A flow brings these bytes; how many of its chunks were stored.
fn learn(world: &mut World, bytes: &[u8]) -> usize {
    learn_in(world.store(), bytes)
}

fn learn_in(store: &mut DiskStore, bytes: &[u8]) -> usize {
    let recipe = store.begin(realm(0), None);
    let appended = cut(bytes).into_iter().map(|chunk| {
        let digest = ChunkHasher::default().digest(&chunk);
        store.append(recipe, &digest, &chunk).expect("appended")
    });
    let stored = appended
        .filter(|&appended| appended == Appended::Stored)
        .count();
    store.end(recipe).expect("ended");
    stored
}

#[test]
fn what_is_learnt_in_place_of_a_file_that_is_gone_stays() {
    let mut world = World::new();
    let one = content(1, 300_000);
    world.write("one", &one);
    world.add();
    fs::remove_file(world.files().join("one")).expect("removed");
    // The first look finds out.
    assert!(world.follows(&one).is_empty());
    assert_eq!(learn(&mut world, &one), cut(&one).len());
    for _ in 0..3 {
        world.reopen();
        assert_eq!(learn(&mut world, &one), 0);
        assert_eq!(world.follows(&one), cut(&one)[1..]);
        assert_eq!(world.store().stat().disk.chunks, 300_000);
        let report = world.verify();
        assert_eq!((report.bytes, report.changed_chunks), (300_000, 0));
    }
}

#[test]
fn what_the_store_has_itself_stays_when_a_file_has_it_too() {
    let mut world = World::new();
    let one = content(1, 300_000);
    learn(&mut world, &one);
    world.write("one", &one);
    world.add();
    fs::remove_file(world.files().join("one")).expect("removed");
    for _ in 0..2 {
        assert_eq!(world.follows(&one), cut(&one)[1..]);
        world.reopen();
    }
}

#[test]
fn adding_again_replaces_a_damaged_segment_of_files() {
    let mut world = World::new();
    let one = content(1, 50_000);
    world.write("one", &one);
    assert_eq!(world.add().added_files, 1);
    for damaged in ["00000002.index", "00000003.recipes"] {
        world.store = None;
        let path = world.store_path().join(damaged);
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[300] ^= 1;
        fs::write(&path, bytes).expect("written");
        assert_eq!(world.verify().damaged_metadata, 1);
        world.reopen();
        let report = world.add();
        assert_eq!((report.damaged_files, report.added_files), (1, 1));
        assert_eq!(world.follows(&one), cut(&one)[1..]);
        assert_eq!(world.add().unchanged_files, 1);
        let report = world.verify();
        assert_eq!((report.is_whole(), report.bytes), (true, 50_000));
    }
}

#[test]
fn a_damaged_list_of_files_is_no_changed_file() {
    let mut world = World::new();
    let (one, two) = (content(1, 50_000), content(2, 50_000));
    world.write("one", &one);
    world.write("two", &two);
    world.add();
    world.store = None;
    let path = world.store_path().join("00000002.files");
    let list = fs::read(&path).expect("it is there");
    // In the header, and in the second of its parts.
    for (at, whole_bytes) in [(5, 0), (list.len() - 20, 50_000)] {
        let mut damaged = list.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).expect("written");
        let report = world.verify();
        assert_eq!((report.changed_chunks, report.damaged_metadata), (0, 1));
        assert!(report.damaged_chunks > 0, "{report:?}");
        assert_eq!(report.bytes, whole_bytes);
    }
    world.reopen();
    // What is left of the list is right, and all of it is written anew.
    assert_eq!(world.follows(&one), cut(&one)[1..]);
    assert!(world.follows(&two).is_empty());
    let report = world.add();
    assert_eq!((report.damaged_files, report.added_files), (1, 2));
    assert_eq!(world.follows(&two), cut(&two)[1..]);
    assert!(world.verify().is_whole());
}

#[test]
fn stores_and_private_keys_are_passed_over_unless_they_are_asked_for() {
    let mut world = World::new();
    let key = b"-----BEGIN PRIVATE KEY-----\nMFECAQEwBQYDK2Vw\n";
    world.write("letter", &content(1, 5000));
    world.write("near.key", b"anything");
    world.write("below/named otherwise", key);
    drop(DiskStore::open(&world.files().join("store"), config(40)).expect("it opens"));
    let report = world.add();
    let passed: Vec<(String, &str)> = report
        .told_private
        .iter()
        .map(|(path, what)| {
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), *what)
        })
        .collect();
    assert_eq!((report.private, report.added_files), (3, 1));
    for expected in [
        ("near.key", "a private key"),
        ("named otherwise", "a private key"),
        ("store", "a chunk store"),
    ] {
        let expected = (expected.0.to_owned(), expected.1);
        assert!(passed.contains(&expected), "{expected:?} of {passed:?}");
    }
    let files = world.files();
    let report = world
        .store()
        .add_files(&files, realm(0), true, &mut |_| ())
        .expect("added");
    assert_eq!((report.private, report.unchanged_files), (0, 1));
    assert!(report.added_files >= 4, "{report:?}");
}

#[test]
fn adding_again_updates_what_changed() {
    let mut world = World::new();
    let files: Vec<Vec<u8>> = (0..4).map(|seed| content(seed, 30_000)).collect();
    for (number, bytes) in files.iter().enumerate() {
        world.write(&number.to_string(), bytes);
    }
    assert_eq!(world.add().added_files, 4);
    let again = world.add();
    assert_eq!((again.added_files, again.unchanged_files), (0, 4));

    let changed = content(9, 40_000);
    world.write("1", &changed);
    fs::remove_file(world.files().join("2")).expect("removed");
    let report = world.add();
    let counts = (
        report.added_files,
        report.unchanged_files,
        report.dropped_files,
    );
    assert_eq!(counts, (1, 2, 2));
    for _ in 0..2 {
        for bytes in [&files[0], &files[3], &changed] {
            assert_eq!(world.follows(bytes), cut(bytes)[1..]);
        }
        for bytes in [&files[1], &files[2]] {
            assert!(world.follows(bytes).is_empty());
        }
        assert_eq!(world.store().stat().files, 3);
        world.reopen();
    }
    let files = world.files();
    let of_another = world
        .store()
        .add_files(&files, realm(1), false, &mut |_| ())
        .expect("added");
    assert_eq!(of_another.added_files, 3);
}

#[test]
fn others_stores_are_read_without_their_files() {
    let mut world = World::new();
    let one = content(1, 50_000);
    world.write("one", &one);
    world.add();
    let path = world.store_path();
    let other = ReadOnlyStore::open(&path, chunking()).expect("it opens");
    assert_eq!(other.stat().files, 0);
    let mut inspected = ReadOnlyStore::inspect(&path).expect("it opens");
    let report = inspected.verify(&mut |_| ());
    assert!(report.is_whole() && report.bytes == 50_000, "{report:?}");
    world.write("one", b"other");
    let mut inspected = ReadOnlyStore::inspect(&path).expect("it opens");
    let report = inspected.verify(&mut |_| ());
    assert!(report.is_whole() && report.changed_chunks > 0, "{report:?}");
}

#[test]
fn metadata_of_files_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let (files, store) = (folder.path().join("files"), folder.path().join("store"));
    fs::create_dir(&files).expect("made");
    fs::write(files.join("large"), content(1, 6 << 20)).expect("written");
    let small = StoreConfig {
        size_bytes: 512 << 10,
        ..config(4)
    };
    let mut store = DiskStore::open(&store, small).expect("it opens");
    let error = store.add_files(&files, realm(0), false, &mut |_| ()).err();
    assert!(
        matches!(error, Some(StoreError::TooManyFiles { .. })),
        "{error:?}"
    );
    let stat = store.stat();
    assert!(stat.files == 0 && stat.disk.total() <= small.size_bytes);
    let missing = store.add_files(Path::new("/nowhere/at/all"), realm(0), false, &mut |_| ());
    assert!(matches!(missing, Err(StoreError::Io { .. })));
}

#[test]
fn a_bound_without_room_beside_what_is_known_of_files_is_refused_and_nothing_goes() {
    let _spawns_nothing = SPAWNING.read().expect("nobody panics");
    let folder = tempfile::tempdir().expect("a folder");
    let (files, path) = (folder.path().join("files"), folder.path().join("store"));
    fs::create_dir(&files).expect("made");
    fs::write(files.join("large"), content(1, 2 << 20)).expect("written");
    let mut store = DiskStore::open(&path, config(64)).expect("it opens");
    store
        .add_files(&files, realm(0), false, &mut |_| ())
        .expect("added");
    learn_in(&mut store, &content(2, 1 << 20));
    let chunks = store.stat().chunks;
    store.close().expect("closed");
    for refused in [
        DiskStore::check(&path, config(6)).err(),
        DiskStore::open(&path, config(6)).err(),
    ] {
        let refused = refused.expect("no room");
        assert!(
            matches!(refused, StoreError::TooManyFiles { .. }),
            "{refused}"
        );
    }
    let kept = StoreConfig::of(&path).expect("a disk").expect("a store");
    assert_eq!(kept.size_bytes, config(64).size_bytes);
    let store = DiskStore::open(&path, config(64)).expect("it opens");
    assert_eq!(store.stat().chunks, chunks);
}

#[test]
fn numbers_of_segments_are_not_used_again() {
    let mut world = World::new();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..5 {
        world.write("one", &content(seed, 5000));
        world.add();
        let names = fs::read_dir(world.store_path()).expect("a store");
        let names = names.map(|file| file.expect("listed").file_name());
        let mut lists = names.filter(|name| name.to_string_lossy().ends_with(".files"));
        let list = lists.next().expect("one");
        assert!(seen.insert(list), "{seen:?}");
        fs::remove_file(world.files().join("one")).expect("removed");
        world.add();
        assert_eq!(world.store().stat().files, 0);
        if seed == 2 {
            world.reopen();
        }
    }
}

#[test]
fn what_a_full_disk_does_not_take_leaves_nothing_behind() {
    let files = tempfile::tempdir().expect("a folder");
    fs::write(files.path().join("one"), content(1, 50_000)).expect("written");
    let add = |store: &mut DiskStore| store.add_files(files.path(), realm(0), false, &mut |_| ());
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 40);
    let before = folder.list().expect("memory");
    let mut room = 0;
    loop {
        folder.set_fault(Fault::FullAfter(room));
        let added = add(&mut store);
        if added.is_ok() {
            break;
        }
        assert_eq!(folder.list().expect("memory"), before, "{room}");
        assert_eq!(store.stat().chunks, 0);
        room += 997;
    }
    assert!(room > 10_000 && store.stat().files == 1);
    store.close().expect("closed");
    assert_eq!(open(&folder, 40).stat().files, 1);
}

#[test]
fn a_file_that_grows_while_it_is_read_ends_where_it_ended_and_is_reported() {
    const BYTES: usize = 3 << 20;
    let mut world = World::new();
    world.write("log", &content(1, BYTES));
    let files = world.files();
    let mut log = fs::File::options()
        .append(true)
        .open(files.join("log"))
        .expect("there");
    let mut appended = 0;
    let mut read = 0;
    let mut append = |progress: &AddProgress| {
        read = progress.bytes;
        // As much as it reads at once, for as long as it reads.
        if appended < 100 {
            log.write_all(&content(2, 1 << 20)).expect("room");
            appended += 1;
        }
    };
    let report = world
        .store()
        .add_files(&files, realm(0), false, &mut append)
        .expect("added");
    assert_eq!(read, BYTES as u64);
    assert_eq!((report.added_files, report.changed_while_read), (0, 1));
}
