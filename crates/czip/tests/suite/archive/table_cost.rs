//! What the table takes: at most 40 bytes a unique chunk and 4 a reference, all that is no frame counted.

use refrain_czip::{archive::Archive, create::CreateOptions};
use refrain_czip_format::{
    Stream,
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
};

use crate::archive::{
    archive_of,
    encryption::{encrypted, pair},
    noise, open, options,
};

const PROFILES: [Profile; 2] = [Profile::Small, Profile::Shared];

/// All that is not frames.
fn table_bytes(archive: &Archive<Vec<u8>>) -> u64 {
    archive.header().archive_bytes - archive.root().summary.stored_bytes
}

fn cut(method: ChunkingMethod, chunk_bytes: u32, profile: Profile) -> CreateOptions {
    CreateOptions {
        profile,
        chunking: Chunking::new(method, chunk_bytes).expect("a power of two"),
        ..options()
    }
}

#[test]
fn a_unique_chunk_takes_at_most_forty_bytes() {
    let content = noise(11, 24 << 20);
    for profile in PROFILES {
        // Frames of single chunks have rows of their own, as many as chunks.
        for frame_bytes in [256 << 10, 0] {
            for chunk_bytes in [1 << 10, 8 << 10] {
                let options = CreateOptions {
                    frame_bytes,
                    ..cut(ChunkingMethod::default(), chunk_bytes, profile)
                };
                let archive = open(archive_of(&content, &options));
                let chunks = archive.header().chunks;
                assert!(chunks > 1_500);
                let bytes = table_bytes(&archive) as f64 / chunks as f64;
                assert!(
                    bytes <= 40.0,
                    "{profile} {frame_bytes} {chunk_bytes}: {bytes}"
                );
            }
        }
    }
}

#[test]
fn an_encrypted_chunk_takes_at_most_forty_bytes_and_its_key() {
    let content = noise(11, 24 << 20);
    let (recipient, identities) = pair();
    for profile in PROFILES {
        for chunk_bytes in [1 << 10, 8 << 10] {
            let options = CreateOptions {
                encryption: encrypted(&recipient, false, false).encryption,
                ..cut(ChunkingMethod::default(), chunk_bytes, profile)
            };
            let mut archive = open(archive_of(&content, &options));
            let unlocked = archive.unlock(&identities, None, &mut |_| None);
            unlocked.expect("a recipient");
            let keys = Stream::ALL.map(|of| &archive.root().stream(of).keys);
            let rows = keys.iter().flat_map(|list| list.rows());
            let keys: u64 = rows.map(|row| u64::from(row.place.stored_bytes)).sum();
            let others = table_bytes(&archive) - keys - u64::from(archive.header().keys.bytes);
            let bytes = others as f64 / archive.header().chunks as f64;
            println!("{profile} {chunk_bytes}: {bytes:.2}");
            assert!(bytes <= 40.0, "{profile} {chunk_bytes}: {bytes}");
        }
    }
}

#[test]
fn a_reference_takes_at_most_four_bytes() {
    const CHUNK_BYTES: usize = 1 << 10;
    let unique = noise(12, 4 << 20);
    let chunks: Vec<&[u8]> = unique.chunks(CHUNK_BYTES).collect();
    let order = noise(13, 4 * 8 * chunks.len());
    let repeats = order.as_chunks::<4>().0.iter();
    let repeats = repeats.flat_map(|at| chunks[u32::from_le_bytes(*at) as usize % chunks.len()]);
    let all: Vec<u8> = unique.iter().chain(repeats).copied().collect();
    for profile in PROFILES {
        let options = cut(ChunkingMethod::Fixed, CHUNK_BYTES as u32, profile);
        let [without, with] = [&unique, &all].map(|content| open(archive_of(content, &options)));
        let in_content =
            |archive: &Archive<Vec<u8>>| archive.root().stream(Stream::Content).chunks.items();
        assert_eq!(in_content(&with), in_content(&without));
        let references = with.header().references - without.header().references;
        assert!(references >= 8 * chunks.len() as u64);
        let bytes = table_bytes(&with) - table_bytes(&without);
        let bytes = bytes as f64 / references as f64;
        assert!(bytes <= 4.0, "{profile}: {bytes}");
    }
}
