//! Bad sectors: what the disk cannot read is given up, and no more than that.

use refrain_store::ChunkSource;

use crate::{
    common::{chunk, chunks, digest, flow, has, open, open_any, read_all, realm, verify},
    memory_folder::{Fault, MemoryFolder},
};

/// Where a chunk lies in the first segment.
fn offset_of(number: u32) -> u64 {
    (0..number).map(|number| chunk(number).len() as u64).sum()
}

#[test]
fn what_cannot_be_copied_goes_with_its_segment_and_learning_goes_on() {
    for bad in [
        Fault::ReadsFailAt("00000001.chunks", offset_of(3)),
        Fault::ReadsFailAt("00000001.index", 100),
        Fault::ReadsFailAt("00000001.recipes", 100),
    ] {
        let folder = MemoryFolder::new();
        let mut store = open(&folder, 6);
        flow(&mut store, realm(0), None, 0..20);
        folder.set_fault(bad);
        let mut round = 10_000;
        // So often that they would be copied.
        while store.stat().evicted_segments == 0 {
            flow(&mut store, realm(0), None, [3, 4, round]);
            round += 1;
        }
        let stat = store.stat();
        if bad == Fault::ReadsFailAt("00000001.chunks", offset_of(3)) {
            assert_eq!((stat.rewritten_chunks, stat.damaged), (1, 1), "{bad:?}");
        }
        flow(&mut store, realm(0), None, [3, 4]);
        assert!(
            [3, 4, round - 1]
                .into_iter()
                .all(|n| has(&store, realm(0), n))
        );
        store.close().expect("closed");
        assert!(verify(&folder).is_whole(), "{bad:?}");
    }
}

#[test]
fn a_chunk_that_cannot_be_read_is_passed_over_and_learnt_anew() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..20);
    store.sync().expect("synced");
    folder.set_fault(Fault::ReadsFailAt("00000001.chunks", offset_of(5)));
    let place = store.places_after(realm(0), &digest(&chunk(0)))[0];
    let others = chunks((1..20).filter(|&number| number != 5));
    assert_eq!(read_all(&mut store, place), others);
    assert_eq!(store.stat().damaged, 1);
    flow(&mut store, realm(0), None, [5]);
    assert_eq!(read_all(&mut store, place), chunks(1..20));
}

#[test]
fn a_chunk_whose_record_cannot_be_read_is_learnt_anew() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..300);
    store.close().expect("closed");
    let mut store = open(&folder, 50);
    folder.set_fault(Fault::ReadsFailOf("00000001.index"));
    flow(&mut store, realm(0), None, 0..10);
    assert!(has(&store, realm(0), 5));
}

#[test]
fn what_this_user_may_not_read_is_not_given_up() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), None, 0..20);
    store.close().expect("closed");
    let mut store = open(&folder, 50);
    let place = store.places_after(realm(0), &digest(&chunk(0)))[0];
    folder.set_fault(Fault::Forbidden("00000001.chunks"));
    assert!(store.read(place, 20, 1 << 20).is_err());
    assert!(!verify(&folder).is_whole());
    folder.set_fault(Fault::None);
    assert_eq!(read_all(&mut store, place), chunks(1..20));
    assert!(verify(&folder).is_whole());
}

#[test]
fn a_store_opens_and_learns_whatever_sector_is_bad() {
    let filled = MemoryFolder::new();
    let mut store = open(&filled, 50);
    flow(&mut store, realm(0), None, 0..300);
    store.sync().expect("synced");
    // As a kill leaves it: the last sync is yet to be proved.
    let crashed = filled.copy();
    for bad in [
        ("00000001.index", 10),
        ("00000001.index", 3000),
        ("00000001.recipes", 100),
        ("00000003.index", 10),
        ("00000003.index", 100),
        ("00000003.recipes", 100),
        ("00000003.chunks", 100),
    ] {
        let folder = crashed.copy();
        folder.set_fault(Fault::ReadsFailAt(bad.0, bad.1));
        let mut store = open(&folder, 50);
        // What is in the other segments is there.
        assert!(has(&store, realm(0), 150), "{bad:?}");
        flow(&mut store, realm(0), None, 0..300);
        let place = store.places_after(realm(0), &digest(&chunk(0)))[0];
        read_all(&mut store, place);
        flow(&mut store, realm(0), None, 0..300);
        assert_eq!(read_all(&mut store, place), chunks(1..300), "{bad:?}");
        store.close().expect("closed");
        let store = open(&folder, 50);
        assert!(
            (0..300).all(|number| has(&store, realm(0), number)),
            "{bad:?}"
        );
        // Nothing was removed that may be read another time.
        for name in ["00000001.index", "00000001.chunks"] {
            assert_eq!(folder.content(name), crashed.content(name), "{bad:?}");
        }
    }
}

#[test]
fn a_store_that_this_user_may_not_read_does_not_open() {
    let folder = MemoryFolder::new();
    flow(&mut open(&folder, 50), realm(0), None, 0..20);
    folder.set_fault(Fault::Forbidden("00000001.index"));
    assert!(open_any(&folder, 50).is_err());
    folder.set_fault(Fault::None);
    assert!(has(&open(&folder, 50), realm(0), 5));
}
