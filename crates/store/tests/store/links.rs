//! What whoever has the folder may put there in place of a file, for root to write to another.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{MetadataExt, chown, symlink},
    path::{Path, PathBuf},
    sync::RwLockReadGuard,
};

use refrain_store::{DiskStore, ReadOnlyStore, StoreError};
use tempfile::TempDir;

use crate::common::{SPAWNING, chunks, config, flow, read_after, realm};

const OF_A_GATEWAY: u32 = 65_534;

/// A store with one segment, and a folder beside it.
struct Fixture {
    _folder: TempDir,
    store: PathBuf,
    elsewhere: PathBuf,
    _spawns_nothing: RwLockReadGuard<'static, ()>,
}

impl Fixture {
    fn new() -> Self {
        let spawns_nothing = SPAWNING.read().expect("nobody panics");
        let folder = tempfile::tempdir().expect("a folder");
        let (store, elsewhere) = (folder.path().join("store"), folder.path().join("elsewhere"));
        fs::create_dir(&elsewhere).expect("made");
        let mut opened = DiskStore::open(&store, config(8)).expect("it opens");
        flow(&mut opened, realm(0), None, 0..20);
        opened.name_realm("service 0").expect("named");
        opened.close().expect("closed");
        Self {
            _folder: folder,
            store,
            elsewhere,
            _spawns_nothing: spawns_nothing,
        }
    }

    /// Makes it another user's, if this one may.
    fn give_away(&self) -> bool {
        let files = fs::read_dir(&self.store).expect("a folder");
        let files = files.map(|file| file.expect("listed").path());
        let mut all = files.chain([self.store.clone()]);
        all.all(|path| chown(path, Some(OF_A_GATEWAY), Some(OF_A_GATEWAY)).is_ok())
    }

    /// What opening for all that writes says.
    fn open(&self) -> Option<StoreError> {
        DiskStore::open(&self.store, config(8)).err()
    }
}

/// All that there is to tell of a file.
fn state(path: &Path) -> (Vec<u8>, u32, u32, u32) {
    let file = fs::metadata(path).expect("it is there");
    let bytes = fs::read(path).expect("it is read");
    (bytes, file.uid(), file.gid(), file.mode())
}

#[track_caller]
fn assert_refused(error: Option<StoreError>, path: &Path, why: &str) {
    let error = error.unwrap_or_else(|| panic!("{} is taken", path.display()));
    let StoreError::Io {
        path: told, source, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(told, path, "{error}");
    assert_eq!(source.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_symbolic_link_is_refused_and_what_it_leads_to_stays_as_it_is() {
    for name in [
        "lock",
        "format",
        "00000001.chunks",
        "00000001.index",
        "00000001.recipes",
    ] {
        let fixture = Fixture::new();
        fixture.give_away();
        let (link, target) = (fixture.store.join(name), fixture.elsewhere.join(name));
        // As it would be read, if the link was followed.
        fs::copy(&link, &target).expect("copied");
        fs::remove_file(&link).expect("removed");
        symlink(&target, &link).expect("a link");
        let before = state(&target);
        assert_refused(fixture.open(), &link, "symbolic link");
        assert_eq!(state(&target), before, "{name}");
        // What is refused is no damage, for which it would be given up.
        assert!(link.is_symlink(), "{name}");
    }
}

#[test]
fn what_is_begun_anew_follows_no_symbolic_link() {
    let fixture = Fixture::new();
    let target = fixture.elsewhere.join("target");
    for name in ["format.new", "realms.new"] {
        let link = fixture.store.join(name);
        // The second time one to nowhere.
        for is_there in [true, false] {
            symlink(&target, &link).expect("a link");
            if is_there {
                fs::write(&target, "of others").expect("written");
            }
            let error = match name {
                "format.new" => DiskStore::open(&fixture.store, config(9)).err(),
                _ => {
                    fs::remove_file(&link).expect("removed");
                    let mut store = DiskStore::open(&fixture.store, config(8)).expect("it opens");
                    symlink(&target, &link).expect("a link");
                    store.name_realm("another").err()
                }
            };
            assert_refused(error, &link, "symbolic link");
            if is_there {
                assert_eq!(fs::read(&target).expect("there"), b"of others", "{name}");
                fs::remove_file(&target).expect("removed");
            }
            assert!(!target.exists(), "{name}");
            fs::remove_file(&link).expect("removed");
        }
    }
}

#[test]
fn who_only_reads_follows_no_symbolic_link() {
    for name in ["format", "00000001.index", "00000001.recipes"] {
        let fixture = Fixture::new();
        let (link, target) = (fixture.store.join(name), fixture.elsewhere.join(name));
        fs::rename(&link, &target).expect("moved");
        symlink(&target, &link).expect("a link");
        assert_refused(
            ReadOnlyStore::inspect(&fixture.store).err(),
            &link,
            "symbolic link",
        );
    }
    let fixture = Fixture::new();
    let (link, target) = (
        fixture.store.join("00000001.chunks"),
        fixture.elsewhere.join("chunks"),
    );
    fs::rename(&link, &target).expect("moved");
    symlink(&target, &link).expect("a link");
    let mut store = ReadOnlyStore::inspect(&fixture.store).expect("it opens");
    let report = store.verify(&mut |_| ());
    assert_eq!((report.chunks, report.damaged_chunks), (0, 20));
    assert!(report.told[0].contains("00000001.chunks\": it is a symbolic link"));
}

#[test]
fn a_folder_may_be_named_by_a_symbolic_link() {
    let fixture = Fixture::new();
    let link = fixture.elsewhere.join("link");
    symlink(&fixture.store, &link).expect("a link");
    let mut store = DiskStore::open(&link, config(8)).expect("it opens");
    assert_eq!(read_after(&mut store, realm(0), 0), chunks(1..20));
    flow(&mut store, realm(0), None, 20..30);
    store.close().expect("closed");
    let mut store = ReadOnlyStore::open(&link, config(8).chunking).expect("it opens");
    assert_eq!(read_after(&mut store, realm(0), 20), chunks(21..30));
}

#[test]
fn a_lock_that_became_a_link_to_itself_is_gone() {
    let fixture = Fixture::new();
    let store = DiskStore::open(&fixture.store, config(8)).expect("it opens");
    let (link, target) = (fixture.store.join("lock"), fixture.elsewhere.join("lock"));
    fs::rename(&link, &target).expect("moved");
    symlink(&target, &link).expect("a link");
    assert!(matches!(store.check_there(), Err(StoreError::Gone { .. })));
    assert!(DiskStore::check_free(&fixture.store).is_ok());
}

/// A hang is what fails here.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    use rustix::fs::{CWD, Mode, mkfifoat};

    for name in [
        "lock",
        "format",
        "realms",
        "00000001.chunks",
        "00000001.index",
        "00000001.recipes",
    ] {
        let fixture = Fixture::new();
        let pipe = fixture.store.join(name);
        fs::remove_file(&pipe).expect("removed");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("made");
        let why = "not a regular file";
        match name {
            // It says what realms are called, and nothing needs it.
            "realms" => {
                let mut store = DiskStore::open(&fixture.store, config(8)).expect("it opens");
                assert_refused(store.name_realm("another").err(), &pipe, why);
            }
            _ => assert_refused(fixture.open(), &pipe, why),
        }
        assert!(DiskStore::check_free(&fixture.store).is_ok());
        match name {
            "format" => assert_refused(
                refrain_store::StoreConfig::of(&fixture.store).err(),
                &pipe,
                why,
            ),
            "00000001.index" | "00000001.recipes" => {
                assert_refused(ReadOnlyStore::inspect(&fixture.store).err(), &pipe, why);
            }
            _ => {
                let mut store = ReadOnlyStore::inspect(&fixture.store).expect("it opens");
                store.verify(&mut |_| ());
            }
        }
    }
}

#[test]
fn a_folder_in_place_of_a_file_is_refused() {
    let fixture = Fixture::new();
    let lock = fixture.store.join("lock");
    fs::remove_file(&lock).expect("removed");
    fs::create_dir(&lock).expect("made");
    assert_refused(fixture.open(), &lock, "not a regular file");
}

#[test]
fn root_writes_to_no_file_that_may_be_anothers() {
    for name in [
        "lock",
        "00000001.chunks",
        "00000001.index",
        "00000001.recipes",
    ] {
        let fixture = Fixture::new();
        if !fixture.give_away() {
            eprintln!("skipped: root_writes_to_no_file_that_may_be_anothers needs root");
            return;
        }
        let (path, other_name) = (fixture.store.join(name), fixture.elsewhere.join(name));
        fs::hard_link(&path, &other_name).expect("linked");
        let before = state(&path);
        assert_refused(fixture.open(), &path, "hard link");
        assert_eq!(state(&path), before, "{name}");
        fs::remove_file(&other_name).expect("removed");

        chown(&path, Some(0), Some(0)).expect("this is root");
        let before = state(&path);
        assert_refused(
            fixture.open(),
            &path,
            "its owner is not the directory's owner",
        );
        assert_eq!(state(&path), before, "{name}");

        chown(&path, Some(OF_A_GATEWAY), Some(OF_A_GATEWAY)).expect("this is root");
        let mut store = DiskStore::open(&fixture.store, config(8)).expect("it opens");
        store
            .add_files(&fixture.elsewhere, realm(1), false, &mut |_| ())
            .expect("added");
    }
}
