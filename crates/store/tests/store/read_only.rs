//! A store that is read by another while its owner writes.

use std::sync::Arc;

use refrain_store::{ChunkSource, Chunking, OpeningKey, ReadOnlyStore, StoreError};

use crate::{
    common::{chunk, chunking, chunks, digest, flow, has, open, read_after, read_all, realm},
    memory_folder::MemoryFolder,
};

fn reader(folder: &MemoryFolder) -> ReadOnlyStore {
    ReadOnlyStore::open_in(Arc::new(folder.clone()), chunking()).expect("it is there")
}

#[test]
fn it_sees_what_was_synced_and_what_comes() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..10);
    store.sync().expect("synced");
    let mut reader = reader(&folder);
    assert_eq!(read_after(&mut reader, realm(0), 0), chunks(1..10));

    let recipe = store.begin(realm(0), Some(OpeningKey(1)));
    for step in 0..40 {
        for number in 100 + step * 20..120 + step * 20 {
            let bytes = chunk(number);
            store
                .append(recipe, &digest(&bytes), &bytes)
                .expect("appended");
        }
        store.sync().expect("synced");
        reader.refresh().expect("refreshed");
        assert_eq!(
            read_after(&mut reader, realm(0), 100).len() as u32,
            19 + step * 20
        );
        assert_eq!(reader.openings(realm(0), OpeningKey(1)).len(), 1);
    }
    assert_eq!(reader.stat().chunks, store.stat().chunks);
    assert_eq!(reader.stat().damaged, 0);
}

#[test]
fn a_reader_forgets_for_itself() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..10);
    store.sync().expect("synced");
    let mut reader = reader(&folder);
    reader.forget(realm(0), &digest(&chunk(5)));
    reader.refresh().expect("refreshed");
    let expected = chunks([1, 2, 3, 4, 6, 7, 8, 9]);
    assert_eq!(read_after(&mut reader, realm(0), 0), expected);
    assert_eq!(read_after(&mut store, realm(0), 0), chunks(1..10));
}

#[test]
fn a_reader_gives_nothing_across_realms() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    let key = OpeningKey(7);
    flow(&mut store, realm(0), Some(key), [1, 2, 3]);
    flow(&mut store, realm(1), Some(key), [1, 9]);
    store.sync().expect("synced");
    let mut reader = reader(&folder);
    for (number, followers) in [(0, &[2, 3][..]), (1, &[9])] {
        let of = realm(number);
        let followed = chunks(followers.iter().copied());
        assert_eq!(read_after(&mut reader, of, 1), followed);
        let openings = reader.openings(of, key);
        assert_eq!(openings.len(), 1);
        assert_eq!(read_all(&mut reader, openings[0])[1..], followed);
        let seen = [2, 3, 9].map(|number| has(&reader, of, number));
        assert_eq!(seen, [2, 3, 9].map(|number| followers.contains(&number)));
    }
    assert!(reader.openings(realm(2), key).is_empty());
    assert!(reader.places_after(realm(2), &digest(&chunk(1))).is_empty());
    assert!(!has(&reader, realm(2), 1));
}

#[test]
fn what_is_evicted_goes() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 5);
    flow(&mut store, realm(0), None, 0..200);
    store.sync().expect("synced");
    let mut reader = reader(&folder);
    assert!(has(&reader, realm(0), 0));
    let place = reader.places_after(realm(0), &digest(&chunk(0)))[0];
    flow(&mut store, realm(0), None, 1000..3000);
    store.sync().expect("synced");
    // Not yet known, but nothing wrong is read.
    for chunk in reader.read(place, 50, 50_000).expect("read").chunks {
        assert_eq!(digest(&chunk.bytes), chunk.digest);
    }
    reader.refresh().expect("refreshed");
    assert!(!has(&reader, realm(0), 0));
    assert_eq!(reader.read(place, 9, 9000).expect("read").chunks, []);
    assert_eq!(read_after(&mut reader, realm(0), 2950), chunks(2951..3000));
    assert_eq!(reader.stat().chunks, store.stat().chunks);
}

#[test]
fn it_follows_an_owner_that_crashed() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..100);
    store.sync().expect("synced");
    flow(&mut store, realm(0), None, 100..200);
    let left = folder.after_power_cut(|| 0);
    let mut reader = reader(&left);
    let mut store = open(&left, 100);
    flow(&mut store, realm(0), None, 300..500);
    store.sync().expect("synced");
    reader.refresh().expect("refreshed");
    assert_eq!(read_after(&mut reader, realm(0), 300), chunks(301..500));
    assert_eq!(read_after(&mut reader, realm(0), 0), chunks(1..100));
}

#[test]
fn no_store_and_another_kind_are_errors() {
    let folder = MemoryFolder::new();
    let open_as = |chunking| ReadOnlyStore::open_in(Arc::new(folder.clone()), chunking).err();
    assert!(matches!(
        open_as(chunking()),
        Some(StoreError::NoStore { .. })
    ));
    drop(open(&folder, 5));
    let other = open_as(Chunking::default());
    assert!(matches!(other, Some(StoreError::OtherChunking { .. })));
    for version in [1, 3] {
        let format = format!("refrain chunk store\nversion = {version}\n");
        folder.put("format", format.into_bytes());
        let refused = open_as(chunking());
        assert!(matches!(
            &refused,
            Some(StoreError::OtherVersion { found, .. }) if *found == version
        ));
        let said = refused.expect("refused").to_string();
        let found = format!("has format {version}");
        assert!(said.contains(&found) && said.contains("reads 2"), "{said}");
    }
}
