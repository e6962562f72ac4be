//! What a store on disk endures: kills, power cuts, damage, full disks.

use proptest::prelude::*;
use refrain_store::{ChunkSource, folder::Folder};

use crate::{
    common::{chunk, chunks, digest, flow, has, open, open_any, read_after, read_all, realm},
    memory_folder::{Fault, MemoryFolder},
};

/// What was synced is there and follows as it did.
fn assert_whole(store: &mut impl ChunkSource, numbers: std::ops::Range<u32>) {
    for number in numbers.clone() {
        assert!(has(store, realm(0), number), "{number} is lost");
    }
    let followed = read_after(store, realm(0), numbers.start);
    let expected = chunks(numbers.start + 1..numbers.end);
    assert_eq!(&followed[..expected.len()], &expected[..]);
}

#[test]
fn a_kill_loses_what_was_not_yet_written_at_most() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    let recipe = store.begin(realm(0), None);
    for number in 0..500 {
        let bytes = chunk(number);
        store
            .append(recipe, &digest(&bytes), &bytes)
            .expect("appended");
        if number == 299 {
            store.sync().expect("synced");
        }
        if number % 17 == 0 {
            let mut killed = open(&folder.copy(), 100);
            if number >= 299 {
                assert_whole(&mut killed, 0..300);
            }
            // It goes on.
            flow(&mut killed, realm(0), None, 5000..5100);
            assert_eq!(read_after(&mut killed, realm(0), 5000), chunks(5001..5100));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_power_cut_loses_what_was_not_synced_at_most(
        synced in 1_u32..400, after in 0_u32..300, seed: u64, sync_twice: bool,
    ) {
        let folder = MemoryFolder::new();
        let mut store = open(&folder, 100);
        flow(&mut store, realm(0), None, 0..synced);
        store.sync().expect("synced");
        if sync_twice {
            flow(&mut store, realm(1), None, 0..3);
            store.sync().expect("synced");
        }
        flow(&mut store, realm(0), None, 1000..1000 + after);
        flow(&mut store, realm(2), None, 1000..1000 + after);
        let mut state = seed;
        let left = folder.after_power_cut(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = (state >> 56) as u8;
            // Whole and nothing are likelier than parts.
            match draw { 0..=80 => 0, 81..=160 => 255, _ => draw }
        });
        let mut rest = open(&left, 100);
        assert_whole(&mut rest, 0..synced);
        for number in 1000..1000 + after {
            // Whatever is there of it is right: `read_all` checks each digest.
            read_after(&mut rest, realm(0), number);
        }
        // Nothing of what was cut comes back under another realm.
        flow(&mut rest, realm(3), None, 2000..2100);
        prop_assert_eq!(read_after(&mut rest, realm(3), 2000), chunks(2001..2100));
        prop_assert!(!has(&rest, realm(3), 1000));
        rest.close().expect("closed");
        let mut again = open(&left, 100);
        assert_whole(&mut again, 0..synced);
        prop_assert_eq!(read_after(&mut again, realm(3), 2000), chunks(2001..2100));
    }
}

/// A store with a few segments, and the names of its files.
fn small_store() -> (MemoryFolder, Vec<(String, u64)>) {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(
        &mut store,
        realm(0),
        Some(refrain_store::OpeningKey(1)),
        0..150,
    );
    flow(&mut store, realm(1), None, 100..220);
    store.close().expect("closed");
    let files = folder.list().expect("memory");
    (folder, files)
}

/// Opens what is left of a store; whatever opens reads right and can be written.
fn survives(folder: &MemoryFolder, what: &str) {
    let Ok(mut store) = open_any(folder, 100) else {
        assert!(what.starts_with("format"), "{what}");
        return;
    };
    for (number, realm) in [(0, realm(0)), (149, realm(0)), (100, realm(1))] {
        read_after(&mut store, realm, number);
    }
    let openings = store.openings(realm(0), refrain_store::OpeningKey(1));
    openings.iter().for_each(|&place| {
        read_all(&mut store, place);
    });
    flow(&mut store, realm(1), None, [1, 2, 900]);
    assert_eq!(
        read_after(&mut store, realm(1), 1),
        chunks([2, 900]),
        "{what}"
    );
}

#[test]
fn files_cut_at_any_length_are_endured() {
    let (folder, files) = small_store();
    for (name, bytes) in files {
        let content = folder.content(&name).expect("listed");
        let is_of_chunks = name.ends_with("chunks");
        // Within chunks and within the middle of records, all lengths are alike.
        let step = if is_of_chunks { 397 } else { 5 };
        for len in
            (0..bytes as usize).filter(|len| len % step == 0 || (!is_of_chunks && *len < 300))
        {
            let cut = folder.copy();
            cut.put(&name, content[..len].to_vec());
            survives(&cut, &format!("{name} cut at {len}"));
        }
    }
}

#[test]
fn flipped_bits_are_endured() {
    let (folder, files) = small_store();
    for (name, bytes) in files {
        let content = folder.content(&name).expect("listed");
        let step = if name.ends_with("chunks") { 811 } else { 11 };
        for at in (0..bytes as usize).step_by(step) {
            let mut flipped = content.clone();
            flipped[at] ^= 1 << (at % 8);
            let damaged = folder.copy();
            damaged.put(&name, flipped);
            survives(&damaged, &format!("{name} damaged at {at}"));
        }
    }
}

#[test]
fn missing_files_are_endured() {
    let (folder, files) = small_store();
    for (name, _) in files {
        let rest = folder.copy();
        rest.remove(&name).expect("listed");
        survives(&rest, &format!("{name} missing"));
    }
}

#[test]
fn damage_costs_what_is_damaged_only() {
    let (folder, _) = small_store();
    let mut content = folder.content("00000001.chunks").expect("the first");
    content[50] ^= 1;
    folder.put("00000001.chunks", content);
    let mut store = open(&folder, 100);
    let opening = store.openings(realm(0), refrain_store::OpeningKey(1))[0];
    assert_eq!(read_all(&mut store, opening), chunks(1..150));
    assert_eq!(store.stat().damaged, 1);
    // It is stored again when it comes again.
    flow(&mut store, realm(0), None, [0]);
    assert_eq!(read_all(&mut store, opening), chunks(0..150));
}

#[test]
fn damage_to_what_a_kill_left_costs_what_is_damaged_only() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..40);
    store.sync().expect("synced");
    for (kind, at) in [("chunks", 50), ("index", 64 + 40)] {
        let damaged = folder.copy();
        let name = &format!("00000001.{kind}");
        let mut content = damaged.content(name).expect("the head");
        content[at] ^= 1;
        damaged.put(name, content);
        let mut store = open(&damaged, 100);
        let lost = |store: &_| (0..40).filter(|&it| !has(store, realm(0), it)).count();
        assert_eq!(lost(&store), 1, "{name}");
        assert_eq!(store.stat().damaged, 1, "{name}");
        // It is learnt again, and what followed it is still known.
        flow(&mut store, realm(0), None, 0..40);
        assert_eq!(lost(&store), 0, "{name}");
        store.close().expect("closed");
        assert_eq!(lost(&open(&damaged, 100)), 0, "{name}");
    }
}

#[test]
fn what_was_synced_stays_known_as_that() {
    let mark = |folder: &MemoryFolder| {
        let index = folder.content("00000001.index");
        let index = index.expect("the head");
        u32::from_le_bytes(index[32..36].try_into().expect("four bytes"))
    };
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..40);
    store.close().expect("closed");
    let closed = mark(&folder);
    assert!(closed > 0);
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 1000..1003);
    store.sync().expect("synced");
    assert_eq!(mark(&folder), closed);
    store.close().expect("closed");
    assert!(mark(&folder) > closed);
}

#[test]
fn a_full_disk_costs_the_oldest_segment_at_most_and_can_be_emptied() {
    for room in (0..40_000).step_by(1717) {
        let folder = MemoryFolder::new();
        let mut store = open(&folder, 100);
        flow(&mut store, realm(0), None, 5000..5150);
        flow(&mut store, realm(0), None, 0..100);
        store.sync().expect("synced");
        folder.set_fault(Fault::FullAfter(room));
        let recipe = store.begin(realm(0), None);
        let mut appended = Vec::new();
        for number in 1000..1100 {
            let bytes = chunk(number);
            if store.append(recipe, &digest(&bytes), &bytes).is_ok() {
                appended.push(number);
            }
        }
        assert!(appended.len() < 100, "it never was full");
        let error = store.sync().err();
        assert_whole(&mut store, 0..100);
        folder.set_fault(Fault::None);
        for number in 1100..1110 {
            let bytes = chunk(number);
            store
                .append(recipe, &digest(&bytes), &bytes)
                .expect("there is room again");
            appended.push(number);
        }
        store.end(recipe).expect("ended");
        store.sync().expect("there is room again");
        let first = appended[0];
        let rest = chunks(appended[1..].iter().copied());
        assert_eq!(
            read_after(&mut store, realm(0), first),
            rest,
            "{room}, {error:?}"
        );
        drop(store);
        let mut store = open(&folder, 100);
        assert_whole(&mut store, 0..100);
        assert_eq!(read_after(&mut store, realm(0), first), rest, "{room}");
    }
}

#[test]
fn short_writes_are_completed() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    folder.set_fault(Fault::ShortWrites);
    flow(&mut store, realm(0), None, 0..200);
    store.close().expect("closed");
    assert_whole(&mut open(&folder, 100), 0..200);
}

#[test]
fn a_disk_that_does_not_sync_says_so_each_time() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..20);
    folder.set_fault(Fault::SyncFails);
    assert!(store.sync().is_err() && store.sync().is_err());
    folder.set_fault(Fault::None);
    store.sync().expect("it syncs again");
    let left = folder.after_power_cut(|| 0);
    assert_whole(&mut open(&left, 100), 0..20);
}

#[test]
fn a_disk_that_does_not_read_is_an_error_and_no_damage() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 100);
    flow(&mut store, realm(0), None, 0..200);
    let place = store.places_after(realm(0), &digest(&chunk(0)))[0];
    folder.set_fault(Fault::ReadsFail);
    assert!(store.read(place, 9, 9000).is_err());
    folder.set_fault(Fault::None);
    assert_whole(&mut store, 0..200);
    assert_eq!(store.stat().damaged, 0);
}
