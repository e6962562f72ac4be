//! The bound on disk, eviction, and what survives it.

use std::sync::Arc;

use refrain_store::{ChunkSource, DiskStore, OpeningKey, StoreConfig, StoreError, folder::Folder};

use crate::{
    common::{chunk, config, digest, flow, has, open, open_any, read_after, realm},
    memory_folder::{Fault, MemoryFolder},
};

#[test]
fn the_bound_holds_at_every_moment() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 6);
    for first in 0..100 {
        flow(
            &mut store,
            realm(0),
            Some(OpeningKey(first)),
            first as u32 * 40..first as u32 * 40 + 50,
        );
        assert!(folder.peak_bytes() <= config(6).size_bytes);
        let stat = store.stat();
        assert!(stat.disk.total() <= stat.disk_bytes_max);
    }
    let stat = store.stat();
    assert!(stat.evicted_segments > 20, "{stat:?}");
    assert!(folder.peak_bytes() > config(6).size_bytes / 2, "it is used");
    // The latest are there, the first are gone, and so are their openings.
    assert!(has(&store, realm(0), 100 * 40 - 1) && !has(&store, realm(0), 0));
    assert!(store.openings(realm(0), OpeningKey(1)).is_empty());
    assert!(!store.openings(realm(0), OpeningKey(99)).is_empty());
    assert!(stat.openings < 30 && stat.chunks < 1000, "{stat:?}");

    // What is counted is what there is, also after opening again.
    store.close().expect("closed");
    let reopened = open(&folder, 6).stat();
    let of_both =
        |stat: &refrain_store::StoreStat| (stat.chunks, stat.openings, stat.recipe_entries);
    assert_eq!(of_both(&reopened), of_both(&stat));
}

#[test]
fn a_smaller_bound_holds_as_soon_as_the_store_is_open() {
    let folder = MemoryFolder::new();
    let sized = |size_bytes| StoreConfig {
        size_bytes,
        segment_bytes: Some(size_bytes / 8),
        ..config(8)
    };
    let open = |size_bytes| {
        let folder: Arc<dyn Folder> = Arc::new(folder.clone());
        DiskStore::open_in(folder, sized(size_bytes)).expect("it opens")
    };
    // The head alone is larger than the store is to be, and is not full.
    let mut store = open(8 << 20);
    flow(&mut store, realm(0), None, 0..1500);
    store.close().expect("closed");
    let bound = 512 << 10;
    let store = open(bound);
    let on_disk = |folder: &MemoryFolder| -> u64 {
        let files = folder.list().expect("memory");
        files.iter().map(|(_, bytes)| bytes).sum()
    };
    assert!(on_disk(&folder) <= bound, "{}", on_disk(&folder));
    assert!(store.stat().disk.total() <= bound);
}

#[test]
fn what_comes_every_day_stays() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 10);
    let daily = 0..20;
    for day in 1..200 {
        flow(&mut store, realm(0), None, daily.clone());
        flow(&mut store, realm(0), None, day * 1000..day * 1000 + 15);
    }
    assert!(daily.clone().all(|number| has(&store, realm(0), number)));
    assert_eq!(read_after(&mut store, realm(0), 0).len(), 19);
    let stat = store.stat();
    assert!(
        stat.rewritten_chunks > 0 && stat.evicted_segments > 10,
        "{stat:?}"
    );
    // And would not be copied for ever if it came no more.
    for day in 200..600 {
        flow(&mut store, realm(0), None, day * 1000..day * 1000 + 15);
    }
    assert!(!daily.clone().any(|number| has(&store, realm(0), number)));
}

#[test]
fn a_realm_has_no_more_chunks_than_its_store() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 10);
    // What comes every day is copied before its segment goes; the rest is forgotten and comes anew.
    for day in 1..200 {
        flow(&mut store, realm(0), None, 0..20);
        flow(&mut store, realm(0), None, day * 1000..day * 1000 + 15);
        for number in 0..10 {
            store.forget(realm(0), &digest(&chunk(number)));
        }
    }
    flow(&mut store, realm(0), None, 0..20);
    let stat = store.stat();
    assert!(stat.rewritten_chunks > 0, "{stat:?}");
    let counts = |stat: &refrain_store::StoreStat| (stat.realms[0].chunks, stat.chunks);
    let (of_realm, all) = counts(&stat);
    assert_eq!(of_realm, all);
    store.close().expect("closed");
    let (of_realm, all) = counts(&open(&folder, 10).stat());
    assert_eq!(of_realm, all);
}

#[test]
fn a_flow_outlives_the_segment_it_began_in() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 5);
    let recipe = store.begin(realm(0), Some(OpeningKey(1)));
    for number in 0..3000 {
        let bytes = chunk(number);
        store
            .append(recipe, &digest(&bytes), &bytes)
            .expect("appended");
    }
    store.end(recipe).expect("ended");
    assert!(store.openings(realm(0), OpeningKey(1)).is_empty());
    assert_eq!(read_after(&mut store, realm(0), 2900).len(), 99);
}

#[test]
fn many_realms_take_new_segments() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 20);
    for number in 0..600_u32 {
        let realm = refrain_store::Realm::named(&number.to_string());
        flow(&mut store, realm, None, [1, 2]);
    }
    let store = {
        store.close().expect("closed");
        open(&folder, 20)
    };
    assert_eq!(store.stat().realms.len(), 600);
    for number in 0..600_u32 {
        let realm = refrain_store::Realm::named(&number.to_string());
        assert!(has(&store, realm, 2));
    }
}

#[test]
fn a_smaller_bound_holds_from_the_start() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 20);
    flow(&mut store, realm(0), None, 0..1500);
    store.close().expect("closed");
    let store = open(&folder, 5);
    let stat = store.stat();
    assert!(stat.disk.total() <= 5 * (64 << 10), "{stat:?}");
    assert!(has(&store, realm(0), 1499) && !has(&store, realm(0), 0));
}

#[test]
fn what_a_lower_bound_costs_is_told_before_and_is_what_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let lowered = |segments| DiskStore::lowered(&path, config(segments)).expect("the disk works");
    assert_eq!(lowered(5), None, "there is no store");
    let mut store = DiskStore::open(&path, config(20)).expect("it opens");
    flow(&mut store, realm(0), None, 0..1500);
    let disk = store.stat().disk;
    let held_bytes = disk.total() - disk.other;
    store.close().expect("closed");
    // It takes some fifteen segments, of which the head is one.
    for segments in [20, 30, 19] {
        assert_eq!(lowered(segments), None, "{segments}");
    }
    let before = std::fs::read_dir(&path).expect("listed").count();
    let mut leaving_before = 0;
    for segments in [10, 5] {
        let told = lowered(segments).expect("history goes");
        // A trailer that the head is yet to get is counted.
        assert!(told.held_bytes.abs_diff(held_bytes) < 100, "{told:?}");
        assert!(told.leaving_bytes > leaving_before, "{told:?}");
        leaving_before = told.leaving_bytes;
    }
    assert_eq!(std::fs::read_dir(&path).expect("listed").count(), before);
    let store = DiskStore::open(&path, config(5)).expect("it opens");
    assert_eq!(store.stat().evicted_bytes, leaving_before);
    store.close().expect("closed");
    assert_eq!(lowered(5), None, "the bound is so already");

    // The head alone is more than a segment may be.
    let path = folder.path().join("other");
    let mut store = DiskStore::open(&path, StoreConfig::new(1 << 30)).expect("it opens");
    flow(&mut store, realm(0), None, 0..25_000);
    store.close().expect("closed");
    let small = StoreConfig::new(16 << 20);
    let told = DiskStore::lowered(&path, small).expect("the disk works");
    let store = DiskStore::open(&path, small).expect("it opens");
    let gone = store.stat().evicted_bytes;
    let told = told.expect("history goes").leaving_bytes;
    assert!(
        told.abs_diff(gone) < 100 && gone > 14_000_000,
        "{told} {gone}"
    );
}

#[test]
fn a_bound_for_less_than_four_segments_is_refused() {
    let error = open_any(&MemoryFolder::new(), 3).err().expect("too small");
    assert!(matches!(error, StoreError::TooSmall { .. }), "{error}");
    let folder = std::sync::Arc::new(MemoryFolder::new());
    let store = refrain_store::DiskStore::open_in(folder, StoreConfig::new(16 << 20));
    assert!(store.is_ok(), "16 MiB are enough");
}

#[test]
fn chunks_that_are_cut_otherwise_are_refused() {
    let folder = MemoryFolder::new();
    flow(&mut open(&folder, 5), realm(0), None, 0..10);
    let mut other = config(5);
    other.chunking.mask_bits = 7;
    let open = |config| {
        let folder = std::sync::Arc::new(folder.clone());
        refrain_store::DiskStore::open_in(folder, config)
    };
    let error = open(other).err().expect("refused");
    assert!(matches!(error, StoreError::OtherChunking { .. }), "{error}");
    assert!(open(config(5)).is_ok(), "it is as it was");
}

fn bytes_in(folder: &MemoryFolder) -> u64 {
    let files = folder.list().expect("memory");
    files.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn on_a_disk_that_others_filled_the_new_replaces_the_old() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..600);
    folder.set_fault(Fault::FullAt(bytes_in(&folder) + 1000));
    for first in (1000..4000).step_by(10) {
        flow(&mut store, realm(0), Some(OpeningKey(1)), first..first + 10);
        store.sync().expect("synced");
        assert!(
            has(&store, realm(0), first)
                && has(&store, realm(0), first - 10 * u32::from(first > 1000))
        );
    }
    let stat = store.stat();
    assert!(stat.chunks > 300 && !has(&store, realm(0), 0), "{stat:?}");
    store.close().expect("closed");
    // Also where the bound is made less.
    for segments in [50, 6] {
        let mut store = open(&folder, segments);
        assert_eq!(read_after(&mut store, realm(0), 3990).len(), 9);
    }
}

#[test]
fn on_a_disk_smaller_than_the_bound_the_new_replaces_the_old_as_well() {
    let folder = MemoryFolder::new();
    folder.set_fault(Fault::FullAt(24 << 20));
    // By the bound alone a segment would be larger than the disk.
    let config = StoreConfig {
        segment_bytes: None,
        ..config(1 << 16)
    };
    let mut store = DiskStore::open_in(Arc::new(folder.clone()), config).expect("it opens");
    let numbers = 0..100_000_u32;
    for first in numbers.clone().step_by(1000) {
        flow(&mut store, realm(0), None, first..first + 1000);
        store.sync().expect("synced");
    }
    let bytes_of = |number: u32| chunk(number).len() as u64;
    assert!(numbers.clone().map(bytes_of).sum::<u64>() > 40 << 20);
    let kept = numbers.filter(|&number| has(&store, realm(0), number));
    assert!(kept.map(bytes_of).sum::<u64>() > 12 << 20);
    assert!(has(&store, realm(0), 99_999));
}

#[test]
fn a_disk_that_stays_full_costs_no_more_than_one_segment() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..600);
    store.sync().expect("synced");
    let chunks = store.stat().chunks;
    folder.set_fault(Fault::FullAfter(0));
    let recipe = store.begin(realm(0), None);
    for number in 1000..1400 {
        let bytes = chunk(number);
        assert!(store.append(recipe, &digest(&bytes), &bytes).is_err());
    }
    let stat = store.stat();
    assert_eq!(stat.evicted_segments, 1);
    assert_eq!(stat.chunks + stat.evicted_chunks, chunks);
    folder.set_fault(Fault::None);
    flow(&mut store, realm(0), None, 1000..1400);
    assert_eq!(store.stat().evicted_segments, 1);
}
