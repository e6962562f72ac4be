//! The files of a chunk store, as somebody else's program, or a disk, may have left them: a store
//! opens, gives out only what hashes to its digest, takes more, and never takes more memory than
//! its files are worth.
//!
//! Input: flags, the lengths of index, recipes and files (two bytes each), then those; the rest
//! are chunks. Flag 1: digests and checks are computed, as whoever writes such files would.
//! Flag 2: there is a segment behind it, so that this one is no head.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use refrain_codec::chunk::hash::ChunkHasher;
use refrain_store::{
    ChunkSource, Chunking, DiskStore, OpeningKey, ReadOnlyStore, Realm, StoreConfig,
};

#[allow(dead_code)]
#[path = "../../crates/store/tests/store/memory_folder.rs"]
mod memory_folder;

use memory_folder::MemoryFolder;

const SEGMENT: u32 = 1;
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 35;
const BLOCK_BYTES: usize = 64 * RECORD_BYTES + 12;

/// What an empty store takes, and its caches.
const MEMORY_BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&[flags, a, b, c, d, e, f], rest)) = input.split_first_chunk() else {
        return;
    };
    let part = |rest: &mut &[u8], low, high| {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        rest.split_off(..len).unwrap_or_default().to_vec()
    };
    let mut rest = rest;
    let (mut index, mut recipes, mut files) = (
        part(&mut rest, a, b),
        part(&mut rest, c, d),
        part(&mut rest, e, f),
    );
    if flags & 1 != 0 {
        mend_index(&mut index, rest);
        mend(&mut recipes, 16, |piece| {
            let optional = usize::from(piece[6] & 1) * 8 + usize::from(piece[6] >> 1 & 1) * 8;
            7 + optional + usize::from(piece[4]) * 5
        });
        mend(&mut files, 32, |part| {
            74 + usize::from(u16::from_le_bytes([part[4], part[5]]))
        });
    }
    let folder = MemoryFolder::new();
    let config = StoreConfig::new(64 << 20);
    let open = || DiskStore::open_in(Arc::new(folder.clone()), config);
    drop(open().expect("an empty one"));
    let allocated = (index.len() + recipes.len() + files.len()) as u64 * 64;
    folder.put("00000001.index", index);
    folder.put("00000001.recipes", recipes);
    folder.put("00000001.chunks", rest.to_vec());
    if !files.is_empty() {
        folder.put("00000001.files", files);
    }
    if flags & 2 != 0 {
        folder.put("00000002.index", Vec::new());
        folder.put("00000002.chunks", Vec::new());
    }

    let mut reader = ReadOnlyStore::open_in(Arc::new(folder.clone()), Chunking::default())
        .expect("its format is right");
    check(&mut reader);
    let mut store = open().expect("whatever is there");
    check(&mut store);
    assert!(store.stat().memory_bytes <= MEMORY_BYTES_MAX + allocated);
    reader.verify(&mut |_| ());
    let realm = Realm([0; 16]);
    let recipe = store.begin(realm, Some(OpeningKey(0)));
    let digest = ChunkHasher::default().digest(b"refrain");
    // An added file may be said to have the chunk, and not have it.
    store.forget(realm, &digest);
    store.append(recipe, &digest, b"refrain").expect("memory");
    store.end(recipe).expect("memory");
    store.close().expect("memory");
    let mut store = open().expect("what a store left");
    assert!(store.contains(realm, &digest));
    let chain = store
        .openings(realm, OpeningKey(0))
        .first()
        .map(|&place| store.read(place, 1, 99));
    assert_eq!(
        chain.expect("it was begun").expect("memory").chunks[0].digest,
        digest
    );
    reader.refresh().expect("memory");
    check(&mut reader);
});

/// Reads chains from the openings that inputs have.
fn check(store: &mut impl ChunkSource) {
    for realm in [Realm([0; 16]), Realm([1; 16])] {
        for key in 0..2 {
            for &place in store.openings(realm, OpeningKey(key)).iter() {
                let mut next = Some(place);
                for _ in 0..16 {
                    let Some(place) = next else { break };
                    let chain = store.read(place, 8, 1 << 20).expect("memory");
                    for chunk in &chain.chunks {
                        assert_eq!(ChunkHasher::default().digest(&chunk.bytes), chunk.digest);
                        assert!(store.contains(realm, &chunk.digest));
                    }
                    next = chain.next;
                }
            }
        }
    }
}

fn put_check(bytes: &mut [u8], parts: &[&[u8]]) {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    bytes[..4].copy_from_slice(&hasher.finalize().as_bytes()[..4]);
}

/// Computes the digests of chunks, the proofs of realms, and the checks.
fn mend_index(index: &mut [u8], chunks: &[u8]) {
    if index.len() < HEADER_BYTES {
        return;
    }
    let (header, blocks) = index.split_at_mut(HEADER_BYTES);
    header[..12].copy_from_slice(b"rfnindex\x02\0\0\0");
    header[12..16].copy_from_slice(&SEGMENT.to_le_bytes());
    let (head, rest) = header.split_at_mut(24);
    put_check(rest, &[head]);
    let mark = [header[32], header[33], header[34], header[35]];
    put_check(&mut header[36..], &[&SEGMENT.to_le_bytes(), &mark]);
    let mut at = 0;
    for (number, block) in blocks.chunks_mut(BLOCK_BYTES).enumerate() {
        let records = (block.len() / RECORD_BYTES).min(64);
        for record in block.chunks_exact_mut(RECORD_BYTES).take(records) {
            if record[34] == 0 {
                let proof = blake3::hash(&record[..16]);
                record[16..32].copy_from_slice(&proof.as_bytes()[..16]);
                continue;
            }
            let bytes = usize::from(u16::from_le_bytes([record[32], record[33]])) + 1;
            if let Some(chunk) = chunks.get(at..at + bytes) {
                record[..32].copy_from_slice(&ChunkHasher::default().digest(chunk).0);
            }
            at += bytes;
        }
        let covered = records * RECORD_BYTES;
        let (records, rest) = block.split_at_mut(covered);
        if let Some((end, check)) = rest.split_at_mut_checked(8)
            && check.len() >= 4
        {
            end.copy_from_slice(&(at as u64).to_le_bytes());
            let block = (number as u32).to_le_bytes();
            put_check(check, &[&SEGMENT.to_le_bytes(), &block, records, end]);
        }
    }
}

/// Computes the checks of pieces behind a header, each as long as `len_of` says.
fn mend(bytes: &mut [u8], header_bytes: usize, len_of: impl Fn(&[u8]) -> usize) {
    let Some((header, mut rest)) = bytes.split_at_mut_checked(header_bytes) else {
        return;
    };
    if header_bytes == 32 {
        header[..12].copy_from_slice(b"rfnfiles\x02\0\0\0");
        header[12..16].copy_from_slice(&SEGMENT.to_le_bytes());
    }
    while rest.len() > 7 {
        let len = len_of(rest).min(rest.len());
        let (piece, others) = rest.split_at_mut(len);
        let (check, covered) = piece.split_at_mut(4);
        put_check(check, &[&SEGMENT.to_le_bytes(), covered]);
        rest = others;
    }
}
