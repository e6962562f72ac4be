//! Compacting that is interrupted at each of its steps: no sound chunk is lost.

use std::sync::{Arc, Mutex};

use refrain_store::{
    ChunkSource, DiskStore, OpeningKey,
    folder::{Folder, MemoryFolder},
};

use crate::{
    common::{chunk, chunks, config, flow, has, open, read_all, realm},
    watched::WatchedFolder,
};

const CHUNKS: u32 = 160;

/// Chunks of which a bit is flipped: two in the first segment, one in the head.
const DAMAGED: [u32; 3] = [3, 40, 150];

fn damaged() -> MemoryFolder {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, 50);
    flow(&mut store, realm(0), Some(OpeningKey(1)), 0..CHUNKS);
    store.close().expect("closed");
    let mut is_in_head = Vec::new();
    for number in DAMAGED {
        let bytes = chunk(number);
        for name in ["00000001.chunks", "00000002.chunks"] {
            let mut content = folder.content(name).expect("two segments");
            let at = content.windows(bytes.len()).position(|part| part == bytes);
            if let Some(at) = at {
                content[at + 9] ^= 1;
                folder.put(name, content);
                is_in_head.push(name == "00000002.chunks");
            }
        }
    }
    assert_eq!(is_in_head, [false, false, true]);
    folder
}

/// Opens a store, verifies and compacts it, while somebody looks.
fn compact(folder: &MemoryFolder, look: impl Fn(&MemoryFolder) + Send + Sync + 'static) {
    let watched: Arc<dyn Folder> = Arc::new(WatchedFolder::new(folder, look));
    let mut store = DiskStore::open_in(watched, config(50)).expect("it opens");
    store.verify(&mut |_| ());
    store.compact(&mut |_, _| ()).expect("compacted");
    store.close().expect("closed");
}

/// What each of the steps of compacting began with.
fn steps(folder: &MemoryFolder, take: fn(&MemoryFolder) -> MemoryFolder) -> Vec<MemoryFolder> {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let taken_by_look = Arc::clone(&taken);
    compact(&folder.copy(), move |folder| {
        taken_by_look.lock().expect("alone").push(take(folder));
    });
    std::mem::take(&mut taken.lock().expect("alone"))
}

/// What a kill at one step leaves; nothing if there are fewer.
fn killed_at(folder: &MemoryFolder, step: usize) -> Option<MemoryFolder> {
    let (seen, left) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None)));
    let left_by_look = Arc::clone(&left);
    compact(&folder.copy(), move |folder| {
        let mut seen = seen.lock().expect("alone");
        if *seen == step {
            *left_by_look.lock().expect("alone") = Some(folder.copy());
        }
        *seen += 1;
    });
    left.lock().expect("alone").take()
}

/// All sound chunks are found once it is compacted, and nothing else.
#[track_caller]
fn is_mended(folder: &MemoryFolder, what: &str) {
    compact(folder, |_| ());
    let mut store = open(folder, 50);
    let report = store.verify(&mut |_| ());
    let lost: Vec<u32> = (0..CHUNKS)
        .filter(|&number| has(&store, realm(0), number) == DAMAGED.contains(&number))
        .collect();
    assert!(
        lost.is_empty() && report.is_whole(),
        "{what}: {lost:?}, {report:?}"
    );
    let opening = store.openings(realm(0), OpeningKey(1))[0];
    let sound = (0..CHUNKS).filter(|number| !DAMAGED.contains(number));
    assert_eq!(read_all(&mut store, opening), chunks(sound), "{what}");
}

#[test]
fn a_kill_at_any_step_loses_nothing() {
    let steps = steps(&damaged(), MemoryFolder::copy);
    assert!(steps.len() > CHUNKS as usize, "each copy is one");
    for (step, left) in steps.iter().enumerate() {
        is_mended(left, &format!("step {step}"));
    }
}

#[test]
fn a_power_cut_at_any_step_loses_nothing() {
    let cuts: [fn(&MemoryFolder) -> MemoryFolder; 4] = [
        |folder| folder.after_power_cut(|| 0),
        |folder| folder.after_power_cut(|| 255),
        |folder| drawn(folder, 1),
        |folder| drawn(folder, 2),
    ];
    for (number, cut) in cuts.into_iter().enumerate() {
        for (step, left) in steps(&damaged(), cut).iter().enumerate() {
            is_mended(left, &format!("cut {number}, step {step}"));
        }
    }
}

fn drawn(folder: &MemoryFolder, seed: u64) -> MemoryFolder {
    let mut state = seed;
    folder.after_power_cut(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = (state >> 56) as u8;
        // Whole and nothing are likelier than parts.
        match draw {
            0..=80 => 0,
            81..=160 => 255,
            _ => draw,
        }
    })
}

#[test]
fn kills_again_and_again_lose_nothing() {
    for step in (0..).step_by(5) {
        let mut folder = damaged();
        let mut kills = 0;
        while kills < 6
            && let Some(left) = killed_at(&folder, step)
        {
            folder = left;
            kills += 1;
        }
        is_mended(&folder, &format!("step {step}, {kills} kills"));
        if kills == 0 {
            break;
        }
    }
}
