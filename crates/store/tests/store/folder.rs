//! The folder of a store: whose it is, and whether it is there.

use std::fs;

use refrain_store::{DiskStore, StoreError};

use crate::common::{SPAWNING, chunks, config, flow, read_after, realm};

#[test]
fn a_folder_of_something_else_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("letter"), "dear").expect("written");
    let error = DiskStore::open(folder.path(), config(8)).err();
    assert!(
        matches!(error, Some(StoreError::NotAStore { .. })),
        "{error:?}"
    );
    let files = fs::read_dir(folder.path()).expect("a folder");
    let names: Vec<_> = files
        .map(|file| file.expect("listed").file_name())
        .collect();
    assert_eq!(names, ["letter"]);
}

#[test]
fn who_has_a_store_can_be_asked_without_taking_it() {
    let _spawns_nothing = SPAWNING.read().expect("nobody panics");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    assert!(DiskStore::check_free(&path).is_ok() && !path.exists());
    let store = DiskStore::open(&path, config(8)).expect("it opens");
    let owner = match DiskStore::check_free(&path) {
        Err(StoreError::InUse { owner, .. }) => owner,
        other => panic!("{other:?}"),
    };
    assert_eq!(owner, Some(std::process::id()));
    drop(store);
    assert!(DiskStore::check_free(&path).is_ok());
    DiskStore::open(&path, config(8)).expect("it opens");
}

#[test]
fn a_folder_that_went_away_or_was_replaced_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, elsewhere) = (folder.path().join("store"), folder.path().join("elsewhere"));
    let mut store = DiskStore::open(&path, config(8)).expect("it opens");
    flow(&mut store, realm(0), None, 0..3);
    assert!(store.check_there().is_ok());
    fs::rename(&path, &elsewhere).expect("moved");
    assert!(matches!(store.check_there(), Err(StoreError::Gone { .. })));
    let other = DiskStore::open(&path, config(8)).expect("it opens");
    assert!(matches!(store.check_there(), Err(StoreError::Gone { .. })));
    drop(other);
    fs::remove_dir_all(&path).expect("removed");
    fs::rename(&elsewhere, &path).expect("moved");
    assert!(store.check_there().is_ok());
    assert_eq!(read_after(&mut store, realm(0), 0), chunks(1..3));
}

/// As when root adds files to the store of a gateway that has a user of its own.
#[test]
fn files_belong_to_who_has_the_folder() {
    use std::os::unix::fs::{MetadataExt, chown};

    let folder = tempfile::tempdir().expect("a folder");
    if chown(folder.path(), Some(65_534), Some(65_534)).is_err() {
        eprintln!("skipped: files_belong_to_who_has_the_folder needs root");
        return;
    }
    let mut store = DiskStore::open(folder.path(), config(8)).expect("it opens");
    flow(&mut store, realm(0), None, 0..20);
    store.close().expect("closed");
    for file in fs::read_dir(folder.path()).expect("a folder") {
        let file = file.expect("listed");
        let owner = file.metadata().expect("it is there").uid();
        assert_eq!(owner, 65_534, "{}", file.path().display());
    }
}
