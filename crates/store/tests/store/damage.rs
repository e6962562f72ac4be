//! Damage: found by verifying, and gone with its segment.

use refrain_store::{Appended, ChunkSource, OpeningKey};

use crate::{
    common::{chunk, chunks, flow, has, open, read_all, reader, realm, verify},
    memory_folder::{Fault, MemoryFolder},
};

fn flip(folder: &MemoryFolder, name: &str, places: impl IntoIterator<Item = usize>) {
    let mut content = folder.content(name).expect("it is there");
    places.into_iter().for_each(|at| content[at] ^= 1);
    folder.put(name, content);
}

/// A store of 300 chunks, three segments, the last of them its head.
fn filled() -> MemoryFolder {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), Some(OpeningKey(1)), 0..300);
    store.close().expect("closed");
    folder
}

#[test]
fn damage_is_found() {
    let folder = filled();
    let mut calls = 0;
    let report = reader(&folder).verify(&mut |_| calls += 1);
    assert!(
        report.is_whole() && report.chunks == 300 && calls == 301,
        "{report:?}"
    );
    // Every other one of the first chunks.
    let lens = (0..40).map(|number| chunk(number).len());
    let starts: Vec<usize> = lens
        .scan(0, |at, len| Some(std::mem::replace(at, *at + len)))
        .collect();
    flip(&folder, "00000001.chunks", starts.into_iter().step_by(2));
    for _ in 0..2 {
        let report = verify(&folder);
        assert_eq!((report.damaged_chunks, report.chunks), (20, 280));
        assert!(!report.is_whole());
    }
}

#[test]
fn a_segment_that_cannot_be_read_is_reported_and_the_others_are_verified() {
    for (broken, chunks_lost) in [("00000001.chunks", true), ("00000001.index", false)] {
        let folder = filled();
        let mut reader = reader(&folder);
        folder.set_fault(Fault::ReadsFailOf(broken));
        let report = reader.verify(&mut |_| ());
        let told = format!("\"memory/{broken}\": the disk does not read");
        assert!(
            report.told.len() == 1 && report.told[0].ends_with(&told),
            "{report:?}"
        );
        assert!(!report.is_whole() && report.chunks > 100, "{report:?}");
        assert_eq!(report.damaged_chunks > 0, chunks_lost, "{report:?}");
    }
}

#[test]
fn damaged_chunks_are_stored_again_and_a_damaged_segment_is_evicted_whole() {
    // A chunk, the digest of a record, the trailer of a block, a piece of a recipe.
    for (name, at, chunks_lost) in [
        ("00000001.chunks", 5, 1),
        ("00000001.index", 64 + 3 * 35, 1),
        ("00000001.index", 64 + 64 * 35 + 10, 0),
        ("00000001.recipes", 40, 0),
    ] {
        let what = format!("{name}, {at}");
        let folder = MemoryFolder::new();
        let mut store = open(&folder, 6);
        flow(&mut store, realm(0), Some(OpeningKey(1)), 0..300);
        store.close().expect("closed");
        flip(&folder, name, [at]);
        assert!(!verify(&folder).is_whole(), "{what}");

        let mut store = open(&folder, 6);
        let is_wrong = |chunk: &Vec<u8>| !chunks(0..300).contains(chunk);
        for place in store.openings(realm(0), OpeningKey(1)) {
            assert!(!read_all(&mut store, place).iter().any(is_wrong), "{what}");
        }
        let again = flow(&mut store, realm(0), Some(OpeningKey(1)), 0..300);
        let stored = again.iter().filter(|&&it| it == Appended::Stored).count();
        assert_eq!(stored, chunks_lost, "{what}");
        let opening = store.openings(realm(0), OpeningKey(1))[0];
        assert_eq!(read_all(&mut store, opening), chunks(0..300), "{what}");

        // The bound takes the segment, and the damage with it.
        let mut number = 1000;
        while folder.content("00000001.chunks").is_some() {
            flow(&mut store, realm(0), None, [number]);
            number += 1;
        }
        assert!(has(&store, realm(0), number - 1), "{what}");
        store.close().expect("closed");
        let report = verify(&folder);
        assert!(
            report.is_whole() && report.chunks > 100,
            "{what}: {report:?}"
        );
        assert_eq!(open(&folder, 6).stat().damaged, 0, "{what}");
    }
}

#[test]
fn chunks_are_counted_by_realm() {
    let counts = |store: &dyn ChunkSource| {
        let mut counts = store.stat().realms;
        counts.sort_by_key(|realm| realm.chunks);
        let counts: Vec<u64> = counts.iter().map(|realm| realm.chunks).collect();
        counts
    };
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..200);
    flow(&mut store, realm(1), None, 0..10);
    assert_eq!(counts(&store), [10, 200]);
    store.sync().expect("synced");
    let mut other = reader(&folder);
    // Nothing counts twice: not what is known, not what a reader looks at again.
    flow(&mut store, realm(0), None, 100..300);
    assert_eq!(counts(&store), [10, 300]);
    store.sync().expect("synced");
    for _ in 0..2 {
        other.refresh().expect("memory");
        assert_eq!(counts(&other), [10, 300]);
    }
    store.close().expect("closed");
    assert_eq!(counts(&open(&folder, 50)), [10, 300]);
}
