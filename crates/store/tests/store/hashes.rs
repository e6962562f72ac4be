//! Stores whose chunks are named by another hash than usual.

use std::sync::Arc;

use refrain_codec::chunk::hash::ChunkHasher;
use refrain_store::{
    Appended, ChunkSource, Chunking, DiskStore, ReadOnlyStore, StoreConfig, StoreError,
};

use crate::{
    common::{chunk, chunking, chunks, config, realm},
    memory_folder::MemoryFolder,
};

fn named_by(hasher: ChunkHasher) -> Chunking {
    Chunking {
        hasher,
        ..chunking()
    }
}

fn open(folder: &MemoryFolder, hasher: ChunkHasher) -> Result<DiskStore, StoreError> {
    let config = StoreConfig {
        chunking: named_by(hasher),
        ..config(100)
    };
    DiskStore::open_in(Arc::new(folder.clone()), config)
}

fn open_to_read(folder: &MemoryFolder, hasher: ChunkHasher) -> Result<ReadOnlyStore, StoreError> {
    ReadOnlyStore::open_in(Arc::new(folder.clone()), named_by(hasher))
}

/// Holds what followed the first of 400 chunks that are named by SHA-1 against the others.
#[track_caller]
fn assert_all_there(store: &mut impl ChunkSource) {
    let first = ChunkHasher::Sha1.digest(&chunk(0));
    let mut next = store.places_after(realm(0), &first).first().copied();
    let mut read = Vec::new();
    while let Some(place) = next {
        let chain = store.read(place, 7, 4000).expect("a chain is read");
        for chunk in &chain.chunks {
            assert_eq!(chunk.digest, ChunkHasher::Sha1.digest(&chunk.bytes));
        }
        next = chain.next;
        read.extend(chain.chunks.into_iter().map(|chunk| chunk.bytes.to_vec()));
    }
    assert_eq!(read, chunks(1..400));
    let stat = store.stat();
    assert_eq!((stat.chunks, stat.damaged), (400, 0));
}

#[test]
fn chunks_named_by_sha1_are_kept_like_any_others() {
    let folder = MemoryFolder::new();
    let mut store = open(&folder, ChunkHasher::Sha1).expect("it opens");
    for expected in [Appended::Stored, Appended::Known] {
        let recipe = store.begin(realm(0), None);
        for number in 0..400 {
            let bytes = chunk(number);
            let digest = ChunkHasher::Sha1.digest(&bytes);
            let appended = store.append(recipe, &digest, &bytes);
            assert_eq!(appended.expect("appended"), expected, "{number}");
        }
        store.end(recipe).expect("ended");
    }
    assert_all_there(&mut store);
    store.close().expect("closed");

    let mut reopened = open(&folder, ChunkHasher::Sha1).expect("it opens again");
    assert_all_there(&mut reopened);
    let mut reader = open_to_read(&folder, ChunkHasher::Sha1).expect("it is there");
    assert!(reader.verify(&mut |_| ()).is_whole());
    assert_all_there(&mut reader);
    let another = ChunkHasher::Blake3.digest(&chunk(0));
    assert!(!reopened.contains(realm(0), &another), "another name");
}

#[test]
fn a_store_of_one_hash_is_refused_to_who_asks_for_another() {
    use ChunkHasher::{Blake3, Sha1};
    for (stored, asked) in [(Sha1, Blake3), (Blake3, Sha1)] {
        let folder = MemoryFolder::new();
        drop(open(&folder, stored).expect("it opens"));
        let refusals = [
            open(&folder, asked).err(),
            open_to_read(&folder, asked).err(),
        ];
        for refused in refusals {
            let refused = refused.expect("refused");
            assert!(matches!(refused, StoreError::OtherChunking { .. }));
            let said = refused.to_string();
            for part in [
                format!("made with --chunk-hash {stored}"),
                format!("not with --chunk-hash {asked}"),
            ] {
                assert!(said.contains(&part), "{part:?} is not in {said:?}");
            }
        }
        assert!(open(&folder, stored).is_ok(), "it is as it was");
    }
}
