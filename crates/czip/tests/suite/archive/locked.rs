//! Encrypted archives without a key: as a cache has them, or who passes them on.

use std::ops::ControlFlow;

use refrain_czip::{
    archive::{Archive, CacheBytes, ReadError},
    create::CreateOptions,
    verify::verify,
};
use refrain_czip_format::{
    Stream,
    chunker::{Chunking, ChunkingMethod},
    header::Profile,
};

use crate::archive::{
    archive_of,
    encryption::{encrypted, pair},
    noise, open, piped_archive_of, tar_of,
};

fn check(archive: Vec<u8>) -> Result<(), ReadError> {
    let archive = Archive::open(archive, CacheBytes::default())?;
    assert!(archive.is_locked());
    verify(&archive, 1, &|_| ControlFlow::Continue(())).map(|_| ())
}

#[test]
fn a_byte_of_another_value_is_found_without_a_key() {
    let (recipient, _) = pair();
    let files: Vec<_> = (0..3)
        .map(|file| (format!("release/{file}"), noise(file % 2, 300)))
        .collect();
    let content = tar_of(&files, 1_700_000_000);
    for (profile, is_padded) in [(Profile::Small, false), (Profile::Shared, true)] {
        let options = CreateOptions {
            profile,
            chunking: Chunking::new(ChunkingMethod::Fixed, 1024).expect("a length"),
            ..encrypted(&recipient, is_padded, is_padded)
        };
        for sound in [
            archive_of(&content, &options),
            piped_archive_of(&content, &options),
        ] {
            let archive = open(sound.clone());
            let lists = archive.root().stream(Stream::Content);
            for list in [&lists.lengths, &lists.references, &lists.keys] {
                assert!(!list.rows().is_empty(), "all kinds of parts");
            }
            assert!(!archive.root().weave_index.rows().is_empty());
            check(sound.clone()).expect("sound");
            for at in 0..sound.len() {
                let mut damaged = sound.clone();
                damaged[at] ^= 0x10;
                assert!(check(damaged).is_err(), "byte {at} of {}", sound.len());
            }
        }
    }
}
