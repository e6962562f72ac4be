//! Verifying and compacting.

use std::sync::Arc;

use refrain_store::{
    ChunkSource, ChunkStore, DiskStore, OpeningKey, ReadOnlyStore, StoreError, VerifyReport,
    folder::{Fault, Folder, MemoryFolder},
};

use crate::{
    common::{
        chunk, chunking, chunks, config, digest, flow, has, open, read_after, read_all, realm,
    },
    watched::WatchedFolder,
};

/// Damages every other chunk of the first segment.
fn damage(folder: &MemoryFolder) {
    let name = "00000001.chunks";
    let mut content = folder.content(name).expect("the first");
    let mut at = 0;
    for number in 0..40 {
        if number % 2 == 0 {
            content[at] ^= 1;
        }
        at += crate::common::chunk(number).len();
    }
    folder.put(name, content);
}

#[test]
fn damage_is_found() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..300);
    store.close().expect("closed");
    let mut store = open(&folder, 50);
    let mut calls = 0;
    let report = store.verify(&mut |_| calls += 1);
    assert!(
        report.is_whole() && report.chunks == 300 && calls == 301,
        "{report:?}"
    );

    damage(&folder);
    let report = store.verify(&mut |_| ());
    assert_eq!((report.damaged_chunks, report.chunks), (20, 280));
    assert!(!report.is_whole() && !has(&store, realm(0), 0) && has(&store, realm(0), 1));
    let again = store.verify(&mut |_| ());
    assert_eq!((again.damaged_chunks, again.chunks), (0, 280));
}

#[test]
fn a_segment_that_cannot_be_read_is_told_and_the_others_are_verified_and_compacted() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..300);
    store.close().expect("closed");
    for (broken, chunks_lost) in [("00000001.chunks", true), ("00000001.index", false)] {
        let folder = folder.copy();
        let mut store = open(&folder, 50);
        folder.set_fault(Fault::ReadsFailOf(broken));
        let report = store.verify(&mut |_| ());
        assert_eq!(
            report.told,
            [format!(
                "cannot read memory/{broken}: the disk does not read"
            )]
        );
        assert!(!report.is_whole() && report.chunks > 100, "{report:?}");
        assert_eq!(report.damaged_chunks > 0, chunks_lost, "{report:?}");
        let known = report.chunks;
        store.compact(&mut |_, _| ()).expect("compacted");
        folder.set_fault(Fault::None);
        store.close().expect("closed");
        let mut store = open(&folder, 50);
        let report = store.verify(&mut |_| ());
        assert!(report.is_whole() && report.chunks == known, "{report:?}");
    }
}

#[test]
fn compacting_gives_back_the_dead_and_keeps_chains() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), Some(OpeningKey(1)), 0..300);
    damage(&folder);
    store.verify(&mut |_| ());
    let before = store.stat();
    let report = store.compact(&mut |_, _| ()).expect("compacted");
    assert!(
        report.segments == 1 && report.freed_bytes > 5000,
        "{report:?}"
    );
    let stat = store.stat();
    assert_eq!((stat.chunks, before.chunks), (280, 280));
    assert!(stat.disk.total() + 5000 < before.disk.total());
    let expected = (0..300).filter(|number| *number >= 40 || number % 2 == 1);
    let expected = chunks(expected);
    for _ in 0..2 {
        let opening = store.openings(realm(0), OpeningKey(1))[0];
        assert_eq!(read_all(&mut store, opening), expected);
        store.close().expect("closed");
        store = open(&folder, 50);
    }
    let again = store.compact(&mut |_, _| ()).expect("compacted");
    assert_eq!(again.moved_chunks, 0, "nothing is dead");
}

#[test]
fn small_segments_are_joined_and_a_cut_between_loses_nothing() {
    let folder = MemoryFolder::new();
    // Each time it crashes, another segment begins.
    for round in 0..6_u32 {
        let mut store = open(&folder, 50);
        flow(&mut store, realm(0), None, round * 100..round * 100 + 10);
        store.close().expect("closed");
        let last = folder.list().expect("memory");
        let last = last
            .iter()
            .rfind(|(name, _)| name.ends_with("index"))
            .expect("one");
        let mut content = folder.content(&last.0).expect("listed");
        content.extend([0; 40]);
        folder.put(&last.0, content);
    }
    let mut store = open(&folder, 50);
    let segments_with_chunks = |folder: &MemoryFolder| {
        let files = folder.list().expect("memory");
        files
            .iter()
            .filter(|(name, bytes)| name.ends_with("chunks") && *bytes > 0)
            .count()
    };
    assert_eq!(segments_with_chunks(&folder), 6);
    store.compact(&mut |_, _| ()).expect("compacted");
    assert_eq!(segments_with_chunks(&folder), 1);
    for seed in 0..20_u8 {
        let mut draw = seed;
        let left = folder.after_power_cut(|| {
            draw = draw.wrapping_mul(77).wrapping_add(13);
            draw
        });
        let mut store = open(&left, 50);
        for round in 0..6 {
            let followed = read_after(&mut store, realm(0), round * 100);
            assert_eq!(followed, chunks(round * 100 + 1..round * 100 + 10));
        }
    }
}

/// Verifies, compacts and verifies what is opened again, which must be whole; the living chunks
/// before and after.
#[track_caller]
fn mend(folder: &MemoryFolder, segments: u64) -> (VerifyReport, VerifyReport) {
    let mut store = open(folder, segments);
    let found = store.verify(&mut |_| ());
    store.compact(&mut |_, _| ()).expect("compacted");
    let disk = store.stat().disk.total();
    assert!(disk <= config(segments).size_bytes, "{disk}");
    store.close().expect("closed");
    let mut store = open(folder, segments);
    let left = store.verify(&mut |_| ());
    assert!(!found.is_whole() && left.is_whole(), "{found:?} {left:?}");
    let other: Arc<dyn Folder> = Arc::new(folder.clone());
    let mut other = ReadOnlyStore::open_in(other, chunking()).expect("it opens");
    assert!(other.verify(&mut |_| ()).is_whole());
    (found, left)
}

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
fn a_few_damaged_chunks_are_gone_afterwards_also_from_the_head() {
    let folder = filled();
    let head = "00000003.chunks";
    let middle = folder.content(head).expect("three segments").len() / 2;
    flip(&folder, "00000001.chunks", [5]);
    flip(&folder, head, [middle]);
    let (found, left) = mend(&folder, 50);
    assert_eq!((found.damaged_chunks, found.damaged_metadata), (2, 0));
    assert_eq!((found.chunks, left.chunks), (298, 298));
}

#[test]
fn damaged_records_are_gone_afterwards() {
    let folder = filled();
    // In the digest of the third chunk, and in the trailer of the first block.
    flip(&folder, "00000001.index", [64 + 3 * 35]);
    flip(&folder, "00000002.index", [64 + 64 * 35 + 10]);
    let (found, left) = mend(&folder, 50);
    assert_eq!((found.damaged_chunks, found.damaged_metadata), (1, 2));
    assert_eq!(left.chunks, 299);
}

#[test]
fn damaged_recipes_are_gone_afterwards_and_others_lead_on() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    for round in 0..6 {
        flow(&mut store, realm(0), Some(OpeningKey(round)), 0..300);
    }
    flow(&mut store, realm(0), None, 300..500);
    store.close().expect("closed");
    let name = "00000004.recipes";
    let last = folder.content(name).expect("it is there").len() - 1;
    flip(&folder, name, [3000, last]);
    let (found, left) = mend(&folder, 50);
    assert_eq!((found.damaged_chunks, found.damaged_metadata), (0, 2));
    assert_eq!(left.chunks, 500);
    let mut store = open(&folder, 50);
    let opening = store.openings(realm(0), OpeningKey(5))[0];
    assert_eq!(read_all(&mut store, opening), chunks(0..300));
}

#[test]
fn damage_goes_from_a_full_store_too() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 6);
    flow(&mut store, realm(0), None, 0..1500);
    store.close().expect("closed");
    let files = folder.list().expect("memory");
    let mut names = files.iter().map(|(name, _)| name.as_str());
    let [oldest, next] = [(); 2].map(|()| names.find(|name| name.ends_with(".chunks")));
    flip(&folder, oldest.expect("full"), [5]);
    flip(&folder, next.expect("full"), [5]);
    let (found, left) = mend(&folder, 6);
    assert_eq!(found.damaged_chunks, 2);
    // Two segments were moved, and at most as many had to go.
    assert!(left.chunks * 2 >= found.chunks, "{found:?} {left:?}");
}

/// The store of [`filled`] with a chunk damaged in its first segment, and one in its head.
fn damaged_twice() -> MemoryFolder {
    let folder = filled();
    for name in ["00000001.chunks", "00000003.chunks"] {
        flip(&folder, name, [5]);
    }
    folder
}

fn bytes_of(folder: &MemoryFolder) -> u64 {
    let files = folder.list().expect("memory");
    files.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn a_disk_without_room_is_told_what_compacting_needs_and_keeps_all_as_it_was() {
    let folder = damaged_twice();
    let names = || folder.list().expect("memory");
    let before = names();
    folder.set_fault(Fault::FullAt(bytes_of(&folder) + 10_000));
    let mut store = open(&folder, 50);
    store.verify(&mut |_| ());
    let error = store.compact(&mut |_, _| ()).err();
    let Some(StoreError::NoRoomToCompact {
        needed_bytes,
        free_bytes: 10_000,
        ..
    }) = error
    else {
        panic!("{error:?}");
    };
    drop(store);
    assert_eq!(names(), before);
    // That much is enough, and no more than a few files beside what is copied.
    let held = folder.content("00000001.chunks").expect("it is there");
    assert!(needed_bytes < held.len() as u64 + 50_000, "{needed_bytes}");
    folder.set_fault(Fault::FullAt(bytes_of(&folder) + needed_bytes));
    let (_, left) = mend(&folder, 50);
    assert_eq!(left.chunks, 298);
}

/// A segment of 20 chunks that nothing is added to: a crash left what is no record in its index.
fn short_segment() -> MemoryFolder {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..20);
    store.close().expect("closed");
    let mut index = folder.content("00000001.index").expect("it is there");
    index.extend([0; 40]);
    folder.put("00000001.index", index);
    folder
}

#[test]
fn small_segments_stay_where_the_disk_has_no_room_to_join_them() {
    let folder = short_segment();
    let mut store = open(&folder, 50);
    folder.set_fault(Fault::FullAt(bytes_of(&folder) + 1000));
    let report = store.compact(&mut |_, _| ()).expect("nothing has to be");
    assert_eq!((report.left_segments, report.segments), (1, 0));
}

#[test]
fn a_disk_that_fills_while_compacting_costs_nothing() {
    for room in (0..80_000).step_by(3001) {
        let folder = damaged_twice();
        let of_others: Arc<dyn Folder> = Arc::new(WatchedFolder::new(&folder, |_| ()));
        let mut store = DiskStore::open_in(of_others, config(50)).expect("it opens");
        store.verify(&mut |_| ());
        folder.set_fault(Fault::FullAfter(room));
        let error = store.compact(&mut |_, _| ()).err();
        assert!(
            matches!(error, Some(StoreError::NoRoomToCompact { .. })),
            "{room}: {error:?}"
        );
        drop(store);
        folder.set_fault(Fault::None);
        let (_, left) = mend(&folder, 50);
        assert_eq!(left.chunks, 298, "{room}");
    }
}

#[test]
fn what_was_seen_again_stays_where_a_full_store_is_compacted_on_a_full_disk() {
    let full = MemoryFolder::new();
    let mut store = open(&full, 6);
    flow(&mut store, realm(0), None, 0..1500);
    let oldest = (0..1500).find(|&number| has(&store, realm(0), number));
    let oldest = oldest.expect("it holds some");
    let again = oldest..oldest + 20;
    flow(&mut store, realm(0), None, again.clone());
    store.close().expect("closed");
    let files = full.list().expect("memory");
    let mut names = files.iter().map(|(name, _)| name.as_str());
    let second = names
        .by_ref()
        .filter(|name| name.ends_with(".chunks"))
        .nth(1);
    flip(&full, second.expect("full"), [5]);
    for room in (0..90_000).step_by(1009) {
        let folder = full.copy();
        let of_others: Arc<dyn Folder> = Arc::new(WatchedFolder::new(&folder, |_| ()));
        let mut store = DiskStore::open_in(of_others, config(6)).expect("it opens");
        store.verify(&mut |_| ());
        folder.set_fault(Fault::FullAfter(room));
        // The bound costs the oldest segment, after what was seen again was copied.
        let _ = store.compact(&mut |_, _| ());
        drop(store);
        folder.set_fault(Fault::None);
        let store = open(&folder, 6);
        let lost: Vec<u32> = again
            .clone()
            .filter(|&number| !has(&store, realm(0), number))
            .collect();
        assert!(lost.is_empty(), "{room}: {lost:?}");
    }
}

#[test]
fn a_store_that_could_not_be_compacted_gives_way_again_to_what_comes() {
    let folder = damaged_twice();
    let mut store = open(&folder, 50);
    store.verify(&mut |_| ());
    folder.set_fault(Fault::FullAt(bytes_of(&folder)));
    assert!(store.compact(&mut |_, _| ()).is_err());
    flow(&mut store, realm(0), None, 1000..1020);
    assert_eq!(store.stat().evicted_segments, 1);
    assert!(has(&store, realm(0), 1019));
}

#[test]
fn a_head_of_which_an_eighth_is_dead_is_compacted_too() {
    let len =
        |numbers: std::ops::Range<u32>| -> usize { chunks(numbers).iter().map(Vec::len).sum() };
    // So many of 60 chunks are stored a second time that their first copies are an eighth of all.
    let eighth = (0..60).find(|&it| len(0..it) * 7 >= len(0..60));
    let eighth = eighth.expect("all are half");
    for again in [eighth - 1, eighth] {
        let folder = MemoryFolder::new();
        let mut store = open(&folder, 50);
        flow(&mut store, realm(0), Some(OpeningKey(1)), 0..60);
        for number in 0..again {
            store.forget(realm(0), &digest(&chunk(number)));
        }
        flow(&mut store, realm(0), None, 0..again);
        let report = store.compact(&mut |_, _| ()).expect("compacted");
        let is_eighth = again == eighth;
        assert_eq!(report.moved_chunks, if is_eighth { 60 } else { 0 });
        assert_eq!(report.damaged_chunks, 0);
        if is_eighth {
            let dead = len(0..again) as u64;
            assert!(report.freed_bytes + 1000 > dead, "{report:?}");
            store.close().expect("closed");
            let mut store = open(&folder, 50);
            let opening = store.openings(realm(0), OpeningKey(1))[0];
            assert_eq!(read_all(&mut store, opening), chunks(0..60));
            let report = store.compact(&mut |_, _| ()).expect("compacted");
            assert_eq!(report.moved_chunks, 0, "nothing is dead");
        }
    }
}

#[test]
fn a_dead_head_stays_where_the_bound_leaves_no_room_to_move_it() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 6);
    // Of the last flow each chunk comes twice.
    flow(&mut store, realm(0), None, 0..1500);
    for number in 2000..2020 {
        flow(&mut store, realm(0), None, [number]);
        store.forget(realm(0), &digest(&chunk(number)));
        flow(&mut store, realm(0), None, [number]);
    }
    let evicted = store.stat().evicted_segments;
    let report = store.compact(&mut |_, _| ()).expect("compacted");
    assert_eq!((report.segments, report.left_segments), (0, 1));
    assert_eq!(store.stat().evicted_segments, evicted);
}

#[test]
fn damaged_chunks_that_are_dropped_are_counted() {
    let damaged = damaged_twice();
    let mut store = open(&damaged, 50);
    store.verify(&mut |_| ());
    let report = store.compact(&mut |_, _| ()).expect("compacted");
    assert_eq!(report.damaged_chunks, 2);

    // Also one that is found only when it is to be moved.
    let folder = short_segment();
    let mut store = open(&folder, 50);
    flip(&folder, "00000001.chunks", [5]);
    let report = store.compact(&mut |_, _| ()).expect("compacted");
    assert_eq!((report.moved_chunks, report.damaged_chunks), (19, 1));
    assert_eq!(store.stat().chunks, 19);
}

#[test]
fn a_chunk_is_living_where_only_its_later_copy_is_damaged() {
    let folder = filled();
    let mut store = open(&folder, 50);
    store.forget(realm(0), &digest(&chunk(7)));
    flow(&mut store, realm(0), None, [7]);
    store.close().expect("closed");
    // The third segment was full.
    let head = "00000004.chunks";
    let last = folder.content(head).expect("it is there").len() - 1;
    flip(&folder, head, [last]);
    flip(&folder, "00000001.chunks", [5]);
    let (found, left) = mend(&folder, 50);
    assert_eq!((found.damaged_chunks, found.chunks), (2, 298));
    assert_eq!(left.chunks, 299);
    assert!(has(&open(&folder, 50), realm(0), 7));
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
    let other: Arc<dyn Folder> = Arc::new(folder.clone());
    let mut other = ReadOnlyStore::open_in(other, chunking()).expect("it opens");
    // Nothing counts twice: not what is known, not what a reader looks at again.
    flow(&mut store, realm(0), None, 100..300);
    assert_eq!(counts(&store), [10, 300]);
    store.sync().expect("synced");
    for _ in 0..2 {
        other.refresh().expect("memory");
        assert_eq!(counts(&other), [10, 300]);
    }
    damage(&folder);
    store.verify(&mut |_| ());
    store.compact(&mut |_, _| ()).expect("compacted");
    assert_eq!(counts(&store), [10, 280]);
    store.close().expect("closed");
    assert_eq!(counts(&open(&folder, 50)), [10, 280]);
}
